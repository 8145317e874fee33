"""Pending half messages: derived from the half queue, and from the op queue, which lists those that have ended.

Both queues are read from the positions of the group ``CID_RMQ_SYS_TRANS`` on: every half message before its position
has ended, and no op message before the other one names a half message after it. The positions only save reading; a
half message that an op message names is not pending, wherever they stand.

A broker's check puts a half message back at the end of the queue, and moves its position past the first one. When that
position is lost in a crash, both look pending. The copy is known by its properties and counts alone: it has the link to
the first one, or the same unique key and birth and one check more. The key alone does not say it: a program that
repeats its work may prepare two half messages with one key.

A broker that stops between a commit and its op message leaves a committed message and a half message that looks
pending; RocketMQ 5 leaves them also at an orderly stop, since it gathers op messages for up to three seconds. The
committed message is found in the index by unique key, and says of which half message it is: by its
PREPAREDTRANSACTIONOFFSET. A check in between has put the half message back at another place; such a copy has the birth
and the body of the committed message.

Source: RocketMQ ``broker/transaction/queue/TransactionalMessageServiceImpl.java`` (``check``, ``fillOpRemoveMap``).
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from commitlog_store.columnar.columns import BODY_COLUMN
from commitlog_store.errors import CommitLogError, CorruptRecord, MessageNotFound, QueueNotFound, TopicNotFound
from commitlog_store.format.half_messages import (
    HALF_QUEUE_ID,
    HALF_TOPIC,
    OP_TOPIC,
    TRANSACTION_GROUP,
    check_times,
    named_offsets,
    prepared_queue_offset,
)
from commitlog_store.format.properties import PGROUP, REAL_QID, REAL_TOPIC, UNIQ_KEY, decode_properties
from commitlog_store.format.record import Record
from commitlog_store.format.single_record import message_of
from commitlog_store.format.sys_flag import TRANSACTION_COMMIT_TYPE, transaction_type
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.half_message import HalfMessageHandle, PendingHalfMessage
from commitlog_store.index.service import IndexService
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.queue.block_reader import BlockReader
from commitlog_store.queue.log_blocks import BlockLimits, LogBlocks
from commitlog_store.queue.skipped import SkippedRange, Skips
from commitlog_store.queue.views import CatalogView, ReaderView

_LOG = logging.getLogger(__name__)

_HALF_QUEUE = (HALF_TOPIC, HALF_QUEUE_ID)
_OP_QUEUE = (OP_TOPIC, HALF_QUEUE_ID)


class HalfPlace(NamedTuple):
    """A half message in its queue. ``copy_of`` is the offset of the message it was copied from, -1 if not named.

    ``born_timestamp`` is None for a number that is not a time, ``topic`` the one that the message is meant for.
    """

    queue_offset: int
    physical_offset: int
    unique_key: str
    born_timestamp: int | None
    check_times: int
    copy_of: int
    topic: str
    producer_group: str

    @property
    def is_copy(self) -> bool:
        """Whether a check has put it there."""
        return self.copy_of >= 0 or self.check_times != 0


class OpMessage(NamedTuple):
    """An op message: its own offset, and the offsets of the half messages that have ended."""

    queue_offset: int
    named: list[int]


class HalfQueues:
    """The half queue and the op queue of a store, read in ranges.

    With ``skips``, a message that cannot be read is skipped and reported there. Without, it is ``CorruptRecord`` or
    ``CorruptConsumeQueue``.
    """

    def __init__(self, commit_log: CommitLog, catalog: CatalogView, skips: Skips | None = None) -> None:
        self._commit_log = commit_log
        self._catalog = catalog
        self._skips = skips

    def half_bounds(self) -> tuple[int, int]:
        """First and next offset of the half queue; 0 and 0 without one."""
        return self._bounds(_HALF_QUEUE)

    def op_bounds(self) -> tuple[int, int]:
        """First and next offset of the op queue; 0 and 0 without one."""
        return self._bounds(_OP_QUEUE)

    def _bounds(self, queue: tuple[str, int]) -> tuple[int, int]:
        self._commit_log.refresh()
        try:
            return self._catalog.bounds(*queue)
        except (TopicNotFound, QueueNotFound):
            return 0, 0

    def half_messages(self, start: int, stop: int) -> Iterator[HalfPlace]:
        """The half messages of a range."""
        columns = ("queueOffset", "physicalOffset", "bornTimestamp", "properties")
        for offset, place, born_us, entries in self._rows(_HALF_QUEUE, start, stop, columns):
            properties: dict[str, str] = dict(entries or ())
            key, copy_of = properties.get(UNIQ_KEY, ""), prepared_queue_offset(properties)
            born = None if born_us is None else born_us // 1000
            # The names are few, and an owner keeps the places of all pending ones.
            names = (sys.intern(properties.get(name, "")) for name in (REAL_TOPIC, PGROUP))
            yield HalfPlace(offset, place, key, born, check_times(properties), copy_of, *names)

    def op_messages(self, start: int, stop: int) -> Iterator[OpMessage]:
        """The op messages of a range."""
        for offset, tags, body in self._rows(_OP_QUEUE, start, stop, ("queueOffset", "tags", "body")):
            yield OpMessage(offset, named_offsets(tags, body or b""))

    def _rows(self, queue: tuple[str, int], start: int, stop: int, columns: tuple[str, ...]) -> Iterator[tuple]:  # type: ignore[type-arg]
        if start >= stop:
            return
        view, blocks = self._catalog.queue(*queue), LogBlocks(self._commit_log)
        reader = BlockReader(blocks, view, BlockLimits(), verify_crc=BODY_COLUMN in columns, skips=self._skips)
        for batch in reader.batches(start, stop, columns):
            yield from zip(*(_values(column) for column in batch.columns), strict=True)


def _values(column: pa.Array) -> list[Any]:
    """The values of a column; times as microseconds."""
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()  # type: ignore[no-any-return]


class HalfPositions(NamedTuple):
    """Positions in the half queue and in the op queue: where reading begins."""

    half: int
    op: int


def half_positions(offsets: ConsumerOffsets, half: tuple[int, int], op: tuple[int, int]) -> HalfPositions:
    """The positions of the group ``CID_RMQ_SYS_TRANS``; ``half`` and ``op`` are the bounds of the two queues.

    One after the end of its queue shows that the log has lost op messages, or half messages. What the positions say was
    read is then not there any more, and both queues are read from their beginnings.
    """
    noted_half = offsets.get(TRANSACTION_GROUP, HALF_TOPIC).get(HALF_QUEUE_ID, half[0])
    noted_op = offsets.get(TRANSACTION_GROUP, OP_TOPIC).get(HALF_QUEUE_ID, op[0])
    if noted_half > half[1] or noted_op > op[1]:
        return HalfPositions(half[0], op[0])
    return HalfPositions(max(noted_half, half[0]), max(noted_op, op[0]))


class PendingHalfMessages:
    """The half messages that have not ended, as far as both queues were read."""

    def __init__(self, half_position: int, op_position: int) -> None:
        """The positions of the group: where reading begins."""
        self._places: dict[int, HalfPlace] = {}
        self._next_half = half_position
        self._next_op = op_position
        # Op messages that may name half messages after the half position: own offset and the last offset it names.
        self._ops: deque[tuple[int, int]] = deque()
        # The copy of a half message by the offset that it links to, and all of one unique key, in the queue's order.
        self._copies: dict[int, int] = {}
        self._by_key: dict[str, list[int]] = {}
        # Offsets that were not read yet, of half messages that have ended.
        self._ended_ahead: set[int] = set()

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, queue_offset: int) -> bool:
        return queue_offset in self._places

    def __iter__(self) -> Iterator[HalfPlace]:
        """In the order of the half queue."""
        return iter([self._places[offset] for offset in sorted(self._places)])

    @property
    def ended_ahead(self) -> int:
        """How many half messages are remembered to have ended, until the queue is read up to them."""
        return len(self._ended_ahead)

    @property
    def half_position(self) -> int:
        """Every half message before it has ended."""
        return min(min(self._places, default=self._next_half), self._next_half)

    @property
    def op_position(self) -> int:
        """No op message before it names a half message from ``half_position`` on."""
        self._forget_done_ops()
        return self._ops[0][0] if self._ops else self._next_op

    def _forget_done_ops(self) -> None:
        """Forget the op messages before ``op_position``."""
        done = self.half_position
        while self._ops and self._ops[0][1] < done:
            self._ops.popleft()

    def read_up_to(self, queues: HalfQueues, half_bounds: tuple[int, int], op_bounds: tuple[int, int]) -> None:
        """Read both queues on. ``half_bounds`` were read after ``op_bounds``, or both in one consistent read."""
        self._forget_before(half_bounds[0])
        self._next_op = max(self._next_op, op_bounds[0])
        ended: set[int] = set()
        for op in queues.op_messages(self._next_op, op_bounds[1]):
            named = [offset for offset in op.named if offset < half_bounds[1]]
            self._ops.append((op.queue_offset, max(named, default=-1)))
            for offset in named:
                ended.add(offset)
                self.end(offset)
        for place in queues.half_messages(self._next_half, half_bounds[1]):
            if place.queue_offset in self._ended_ahead:
                self._ended_ahead.discard(place.queue_offset)
            elif place.queue_offset not in self._places:
                self._add(place, ended)
        self._next_op, self._next_half = max(self._next_op, op_bounds[1]), max(self._next_half, half_bounds[1])
        self._forget_done_ops()  # an owner that never checks asks for no positions until it closes

    def _forget_before(self, first: int) -> None:
        """Forget the half messages that retention has removed."""
        if first > self._next_half:
            self._next_half = first
            self._ended_ahead = {offset for offset in self._ended_ahead if offset >= first}
        gone = [offset for offset in self._places if offset < first]
        for offset in gone:
            self._remove(offset)
        if gone:
            _LOG.warning(
                "%d pending half messages before the offset %d of %s were removed from the log with their files: they "
                "can be neither committed nor rolled back any more.",
                len(gone),
                first,
                HALF_TOPIC,
            )

    def note(self, place: HalfPlace) -> None:
        """Add a half message that was put just now, before the queue is read up to it."""
        if place.queue_offset >= self._next_half and place.queue_offset not in self._ended_ahead:
            self._add(place, set())

    def _add(self, place: HalfPlace, ended: set[int]) -> None:
        if place.is_copy:  # also one that has ended: what it was copied from has ended with it
            for first in (place.copy_of, self._copies.get(place.copy_of, -1), self._copied_by_key(place)):
                self._remove(first)
        if place.queue_offset in ended or place.copy_of in ended:
            return
        if place.copy_of >= 0:
            self._copies[place.copy_of] = place.queue_offset
        if place.unique_key:
            self._by_key.setdefault(place.unique_key, []).append(place.queue_offset)
        self._places[place.queue_offset] = place

    def _copied_by_key(self, copy: HalfPlace) -> int:
        """What a copy was copied from, by unique key, birth and checks; -1 if that is not pending."""
        for offset in self._by_key.get(copy.unique_key, ()):
            place = self._places[offset]
            if (place.born_timestamp, place.check_times) == (copy.born_timestamp, copy.check_times - 1):
                return offset
        return -1

    def end(self, queue_offset: int) -> None:
        """Note that a half message has ended, and a copy of it with it."""
        if queue_offset >= self._next_half and queue_offset in self._places:
            self._ended_ahead.add(queue_offset)
        self._remove(queue_offset)
        self._remove(self._copies.get(queue_offset, -1))

    def leave_out(self, queue_offset: int) -> None:
        """Do not count a half message as pending, since it cannot be read."""
        self._remove(queue_offset)

    def _remove(self, queue_offset: int) -> None:
        place = self._places.pop(queue_offset, None)
        if place is None:
            return
        self._copies.pop(place.copy_of, None)
        same = self._by_key.get(place.unique_key, [])
        if queue_offset in same:
            same.remove(queue_offset)
            if not same:
                del self._by_key[place.unique_key]

    def current(self, handle: HalfMessageHandle, born_timestamp: int) -> HalfPlace | None:
        """The pending message of a handle: the one at its place, or the copy that was put back in its stead.

        ``born_timestamp`` is that of the message at its place, which its copies have too.
        """
        found = self._places.get(handle.queue_offset)
        if found is not None:
            return found if found.physical_offset == handle.physical_offset else None
        copy = self._places.get(self._copies.get(handle.queue_offset, -1))
        if copy is None:
            same = [self._places[offset] for offset in self._by_key.get(handle.unique_key, ())]
            born = (born_timestamp, None)
            copy = next((place for place in reversed(same) if place.is_copy and place.born_timestamp in born), None)
        return copy if copy is not None and copy.queue_offset > handle.queue_offset else None


def read_pending(
    log: CommitLog, place: HalfPlace, skips: Skips | None = None
) -> tuple[Record, PendingHalfMessage] | None:
    """A pending half message: its record, and what people and callbacks see.

    ``CorruptRecord``, ``MessageNotFound``; with ``skips`` None, which is reported there.
    """
    try:
        record = log.read_record(place.physical_offset)
        return record, _pending_message(record, log.body(record))
    except (CorruptRecord, MessageNotFound) as error:
        if skips is None:
            raise
        skips.add(
            SkippedRange(
                topic=HALF_TOPIC,
                queue_id=HALF_QUEUE_ID,
                start=place.queue_offset,
                stop=place.queue_offset + 1,
                physical_start=-1,
                physical_stop=-1,
                reason=str(error),
            )
        )
        skips.flush()
        return None


def _pending_message(record: Record, body: bytes) -> PendingHalfMessage:
    """With the topic and queue that the message is meant for."""
    stored = message_of(record, body)
    properties: Mapping[str, str] = decode_properties(record.properties)
    queue_id = properties.get(REAL_QID, "")
    fields = {**vars(stored), "topic": properties.get(REAL_TOPIC, "")}
    fields["queue_id"] = int(queue_id) if queue_id.isdigit() and len(queue_id) <= 10 else 0
    return PendingHalfMessage(
        handle=HalfMessageHandle(
            stored.physical_offset, stored.queue_offset, properties.get(PGROUP, ""), stored.unique_key or ""
        ),
        message=type(stored)(**fields),
        check_times=max(check_times(properties), 0),
    )


def committed_messages(index: IndexService, log: CommitLog, half: Record) -> list[Record] | None:
    """The committed messages of a half message, or of a copy: with its topic, unique key and birth, from the index.

    None where that cannot be said: the half message has no unique key, or index or log are damaged.
    """
    properties = decode_properties(half.properties)
    topic, key = properties.get(REAL_TOPIC, ""), properties.get(UNIQ_KEY, "")
    if not key:
        return None
    try:
        hits = index.candidates(topic, key, half.store_timestamp, MAX_LONG, strict=False)
        records = [log.read_record(hit.physical_offset) for hit in hits]
    except CommitLogError:
        return None
    return [record for record in records if _is_committed(record, half, topic, key)]


def is_commit_of(committed: Record, half: Record) -> bool:
    """Whether one of the ``committed_messages`` of a half message is that one's, or that of its original."""
    if committed.prepared_transaction_offset == half.physical_offset:
        return True
    properties = decode_properties(half.properties)
    is_copy = check_times(properties) != 0 or prepared_queue_offset(properties) >= 0
    same = committed.born_timestamp == half.born_timestamp and committed.body_crc == half.body_crc
    return is_copy and same and committed.prepared_transaction_offset < half.physical_offset


def _is_committed(record: Record, half: Record, topic: str, key: str) -> bool:
    """Whether it is committed, with that topic and key, and names the half message or has its birth."""
    return (
        transaction_type(record.sys_flag) == TRANSACTION_COMMIT_TYPE
        and record.topic == topic.encode()
        and decode_properties(record.properties).get(UNIQ_KEY) == key
        and (record.prepared_transaction_offset == half.physical_offset or record.born_timestamp == half.born_timestamp)
    )


def pending_places(
    reader: ReaderView, commit_log: CommitLog, catalog: CatalogView, skips: Skips | None
) -> list[HalfPlace]:
    """The pending half messages, without their bodies. The errors of ``HalfQueues``, ``CorruptConfig``."""
    # Before the queues: positions only grow, so what is pending by these is by later ones, or has ended.
    offsets = ConsumerOffsets(reader.config_home)
    topics = reader.topics()
    queues = [queue for queue in (_HALF_QUEUE, _OP_QUEUE) if queue[0] in topics]
    bounds = dict(zip(queues, ((one.min_offset, one.max_offset) for one in reader.queue_infos(queues)), strict=True))
    half_bounds, op_bounds = bounds.get(_HALF_QUEUE, (0, 0)), bounds.get(_OP_QUEUE, (0, 0))
    pending = PendingHalfMessages(*half_positions(offsets, half_bounds, op_bounds))
    pending.read_up_to(HalfQueues(commit_log, catalog, skips), half_bounds, op_bounds)
    return list(pending)


def pending_half_messages(
    reader: ReaderView,
    commit_log: CommitLog,
    catalog: CatalogView,
    skips: Skips | None,
    *,
    is_wanted: Callable[[HalfPlace], bool] = lambda _: True,
    part: Callable[[int], slice] = slice,
) -> list[PendingHalfMessage]:
    """``StoreReader.pending_half_messages``, read once. The errors of ``pending_places``.

    ``part`` gets the number of wanted messages, and returns the slice to read, by default all.
    """
    places = [place for place in pending_places(reader, commit_log, catalog, skips) if is_wanted(place)]
    found = (read_pending(commit_log, place, skips) for place in places[part(len(places))])
    return [one[1] for one in found if one is not None]
