"""Pulls that give messages as they are stored: the bytes of their records, for who decodes them elsewhere.

The owner answers from what it has in memory and in its open files, without the looks at the disk by which a reader
follows another process. What is unusual (a batch that is being dispatched, damage, files that are missing) it leaves to
a reader.

Source: RocketMQ ``store/DefaultMessageStore.java`` (``getMessage``), ``broker/processor/PullMessageProcessor.java``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from commitlog_store.batch.visibility import BatchGate
from commitlog_store.engine.stats import StoreStatsService
from commitlog_store.errors import CommitLogError
from commitlog_store.files import disk
from commitlog_store.files.mapped_file_queue_writer import MappedFileQueueWriter
from commitlog_store.files.mapped_file_writer import MappedFileWriter
from commitlog_store.format.arrays import BoolArray, Int64Array
from commitlog_store.format.consume_queue_unit import FILLER_SIZE
from commitlog_store.format.record import MAGIC_V1, MAGIC_V2, RECORD_PREFIX
from commitlog_store.queue.consume_queue_store import ConsumeQueueStore, QueueLook
from commitlog_store.queue.get_message import GetMessageStatus, PullLimits, answer_without_reading

# Records of one queue lie between those of others: up to so many bytes, reading what lies between costs less than
# another call.
_GAP = 16 << 10
# What is nearer to the log's end is taken to be in memory where the file system cannot say. RocketMQ takes 40 percent
# of the machine's memory (accessMessageInMemoryMaxRatio); other programs need some of it, too.
_NEAR_END = 256 << 20
_MAGICS = (MAGIC_V1, MAGIC_V2)

MayMatch: TypeAlias = Callable[[Int64Array], BoolArray]
"""Which tags codes of units may lead to a message that is wanted."""


class StoredPull(NamedTuple):
    """RocketMQ's ``GetMessageResult``: ``messages`` records, one after the other in ``data``."""

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    data: bytes = b""
    messages: int = 0


class _Chosen(NamedTuple):
    """Where the chosen records lie: pieces of the log, each of whole records, whose sizes follow each other."""

    pieces: list[tuple[int, int]]
    sizes: list[int]
    looked_at: int


class StoredMessages:
    """Pulls of stored bytes from an open store. Any number of threads."""

    def __init__(
        self, queues: ConsumeQueueStore, files: MappedFileQueueWriter, gate: BatchGate, stats: StoreStatsService
    ) -> None:
        self._queues = queues
        self._files = files
        self._gate = gate
        self._stats = stats
        # Whether the file system can say what is in memory.
        self._knows_cached = True
        # Of queues whose first messages have expired: the log's first byte then, and the first offset that is left.
        self._first_left: dict[tuple[str, int], tuple[int, int]] = {}

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        limits: PullLimits,
        may_match: MayMatch | None,
        *,
        at_once: bool = False,
    ) -> StoredPull | None:
        """The answer of ``get_message``, with stored bytes; None for what a reader has to answer. ``ReadFailed``.

        With ``at_once`` None, too, where reading the records would wait for the disk.
        """
        started = time.perf_counter()
        pulled = self._pull(topic, queue_id, offset, limits, may_match, at_once=at_once)
        if pulled is not None:
            self._stats.pull(topic, pulled.messages, len(pulled.data), time.perf_counter() - started)
        return pulled

    def _pull(
        self, topic: str, queue_id: int, offset: int, limits: PullLimits, may_match: MayMatch | None, *, at_once: bool
    ) -> StoredPull | None:
        # Where every message matches, no more units are looked at than messages are given.
        look = self._queues.look(topic, queue_id, offset, limits.messages if may_match is None else limits.units)
        # After the look: no unit of a batch that was hidden at its time is taken for visible.
        if not self._gate.state.is_open:
            return None
        if look is None:
            return StoredPull(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low, high = self._low(topic, queue_id, look), look.next_offset
        if (answer := answer_without_reading(offset, low, high)) is not None:
            return StoredPull(answer.status, answer.next_begin_offset, low, high)
        chosen = self._choose(look, limits, may_match)
        if chosen is None:
            return None
        after = offset + chosen.looked_at
        if not chosen.sizes:
            return StoredPull(GetMessageStatus.NO_MATCHED_MESSAGE, after, low, high)
        data = self._read(chosen, at_once=at_once)
        if data is None:
            return None
        return StoredPull(GetMessageStatus.FOUND, after, low, high, data, len(chosen.sizes))

    def bytes_of(self, places: list[tuple[int, int]]) -> bytes | None:
        """The records at physical offsets, each with its size; None if one is not there."""
        return self._read(_Chosen(places, [size for _, size in places], len(places)), at_once=False)

    def _low(self, topic: str, queue_id: int, look: QueueLook) -> int:
        """The offset of the queue's first message that the log still has."""
        log_start = self._files.min_offset
        if not log_start and not look.first_offset:
            return 0
        known = self._first_left.get((topic, queue_id))
        if known is None or known[0] != log_start or known[1] < look.first_offset:
            known = log_start, self._queues.first_left(topic, queue_id, log_start)
            self._first_left[topic, queue_id] = known
        return known[1]

    def _choose(self, look: QueueLook, limits: PullLimits, may_match: MayMatch | None) -> _Chosen | None:
        """The records to give, as ``isTheBatchFull`` limits them; None unless all units are plain ones."""
        matched = None if may_match is None else may_match(look.units["tags_code"]).tolist()
        log_start, most, room = self._files.min_offset, limits.messages, limits.size
        pieces: list[tuple[int, int]] = []
        sizes: list[int] = []
        looked_at = 0
        start = end = -1
        for row, (place, size, _) in enumerate(look.units.tolist()):
            if not 0 < size < FILLER_SIZE or place < log_start:
                return None
            if sizes and (len(sizes) >= most or size > room):
                break
            looked_at += 1
            if matched is not None and not matched[row]:
                continue
            sizes.append(size)
            room -= size
            if place != end:
                if end >= 0:
                    pieces.append((start, end - start))
                start = place
            end = place + size
        if end >= 0:
            pieces.append((start, end - start))
        return _Chosen(pieces, sizes, looked_at) if looked_at else None

    def _read(self, chosen: _Chosen, *, at_once: bool) -> bytes | None:
        """The records' bytes; None if a record is not whole, its file is gone, or it is not in memory."""
        parts: list[bytes | bytearray | memoryview] = []
        pieces, at = chosen.pieces, 0
        try:
            while at < len(pieces):
                first, (start, length) = at, pieces[at]
                file = self._files.find(start)
                if file is None:
                    return None
                at, stop, end = at + 1, start + length, file.base + file.capacity
                while at < len(pieces) and pieces[at][0] < end and 0 <= pieces[at][0] - stop <= _GAP:
                    stop = sum(pieces[at])
                    at += 1
                span = self._span(file, start, stop - start, at_once=at_once)
                if span is None:
                    return None
                if at - first == 1:
                    parts.append(span)
                else:
                    view = memoryview(span)
                    parts += [view[place - start : place - start + size] for place, size in pieces[first:at]]
        except (CommitLogError, OSError, ValueError):  # retention has just closed the file: a reader says what is wrong
            return None
        data = b"".join(parts)
        return data if _holds_records(data, chosen.sizes) else None

    def _span(self, file: MappedFileWriter, start: int, length: int, *, at_once: bool) -> bytes | bytearray | None:
        """Bytes of a file from the physical offset ``start`` on; with ``at_once`` None where it would wait."""
        if at_once and self._knows_cached:
            try:
                return file.read_cached(start - file.base, length)
            except disk.CachedUnknown:
                self._knows_cached = False
        if at_once and self._files.max_wrote - start > _NEAR_END:
            return None
        return file.read(start - file.base, length)


def _holds_records(data: bytes, sizes: Sequence[int]) -> bool:
    """Whether the data are whole records of these sizes, by how each begins."""
    at, start_of = 0, RECORD_PREFIX.unpack_from
    if sum(sizes) != len(data):
        return False
    for size in sizes:
        found, magic = start_of(data, at)
        if found != size or magic not in _MAGICS:
            return False
        at += size
    return True
