"""Pull of messages from a queue offset on, answered with RocketMQ's statuses (``getMessage``).

A position that does not exist is an answer, not an error: the status says why, and ``next_begin_offset`` where to
continue. docs/decisions/0023 says what is decided at once here and unit by unit in RocketMQ.

Source: RocketMQ ``store/DefaultMessageStore.java`` (``getMessage``, ``isTheBatchFull``), ``GetMessageStatus.java``.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from commitlog_store.errors import CommitLogError, FileMissing, InvalidValue, QueueNotFound, TopicNotFound
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.format.arrays import BoolArray, Int64Array
from commitlog_store.format.consume_queue_unit import FILLER_SIZE, UNIT_SIZE
from commitlog_store.format.single_record import message_of
from commitlog_store.java_numbers import MAX_LONG, integer
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.message import MessageExt
from commitlog_store.queue.block_reader import BlockReader
from commitlog_store.queue.expired_units import count_before
from commitlog_store.queue.log_blocks import BlockLimits, LogBlocks
from commitlog_store.queue.skipped import Skips
from commitlog_store.queue.views import CatalogView, QueueView, ReaderView

_T = TypeVar("_T")

# RocketMQ's maxTransferCountOnMessageInMemory and maxTransferBytesOnMessageInMemory.
DEFAULT_PULL_MESSAGES = 32
DEFAULT_PULL_BYTES = 262_144
# RocketMQ's maxFilterMessageSize: the bytes of units that one call looks at, if not more messages are asked for.
_MAX_FILTER_SIZE = 16_000
# So many messages are read one by one.
_FEW = 16


class GetMessageStatus(enum.Enum):
    """RocketMQ's ``GetMessageStatus``; which one is meant is decided in the order of ``get_message``'s docstring.

    ``OFFSET_RESET`` is a broker's answer to a consumer whose offset was reset; a store never gives it::

        with StoreReader.open("/data/store") as reader:
            result = reader.get_message("orders", 0, 0)
            if result.status is GetMessageStatus.OFFSET_TOO_SMALL:
                print("The first messages have expired; the queue begins at", result.next_begin_offset)
    """

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_RESET = "OFFSET_RESET"


@dataclass(frozen=True, kw_only=True)
class GetMessageResult:
    """Answer of ``get_message``: the messages, and the offset to continue at, whatever the status.

    ``min_offset`` and ``max_offset`` are the bounds of the queue when it was asked, 0 for a queue that does not exist::

        position = 0
        with StoreReader.open("/data/store") as reader:
            while not (result := reader.get_message("orders", 0, position)).may_wait:
                for message in result.messages:
                    print(message.queue_offset, message.body)
                position = result.next_begin_offset
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: list[MessageExt] = field(default_factory=list)

    @property
    def may_wait(self) -> bool:
        """Whether the same question may find messages later: the position is the queue's end, or it has none yet."""
        return self.status in _AT_THE_END


_AT_THE_END = frozenset(
    {
        GetMessageStatus.OFFSET_OVERFLOW_ONE,
        GetMessageStatus.NO_MESSAGE_IN_QUEUE,
        GetMessageStatus.NO_MATCHED_LOGIC_QUEUE,
    }
)


def checked_int(name: str, value: int) -> int:
    """The number, also one of numpy. ``InvalidValue`` for what is not an integer."""
    number = integer(value)
    if number is None:
        raise InvalidValue(f"{name} is an int, not {value!r}.")
    return number


def checked_count(name: str, value: int) -> int:
    """The number. ``InvalidValue`` unless it is an integer of at least 1."""
    count = checked_int(name, value)
    if count < 1:
        raise InvalidValue(f"{name} is at least 1, not {count}.")
    return count


@dataclass(frozen=True, kw_only=True, slots=True)
class PullLimits:
    """The most messages and bytes of records that one call gives; one message is given whatever its size.

    ``window`` is how many units it looks at, if that is more than RocketMQ does; it looks at ``most_units`` at most.
    """

    messages: int = DEFAULT_PULL_MESSAGES
    size: int = DEFAULT_PULL_BYTES
    window: int = 0
    most_units: int = MAX_LONG

    def __post_init__(self) -> None:
        checked_count("max_messages", self.messages)
        checked_count("max_bytes", self.size)

    @property
    def units(self) -> int:
        """The number of units that one call looks at."""
        units = max(-(-max(_MAX_FILTER_SIZE, self.messages * UNIT_SIZE) // UNIT_SIZE), self.window)
        return min(units, self.most_units)


def wait_for_match(
    look: Callable[[int], GetMessageResult], wait: Callable[[int, float], object], offset: int, wait_s: float
) -> GetMessageResult:
    """The answer at ``offset``, or as soon as a message matches, within ``wait_s`` seconds; each is looked at once.

    ``look`` asks at an offset, ``wait`` waits for a message there, up to so many seconds. Messages that do not match do
    not end the wait (``PullRequestHoldService.notifyMessageArriving``); ``next_begin_offset`` is after them.
    """
    deadline = time.monotonic() + wait_s
    position = offset
    while True:
        result = look(position)
        nothing_matched = result.status is GetMessageStatus.NO_MATCHED_MESSAGE
        if nothing_matched:
            position = result.next_begin_offset
        at_end = result.may_wait and result.next_begin_offset == position
        left = deadline - time.monotonic()
        if left <= 0 or not (nothing_matched or at_end):
            break
        if at_end:
            wait(position, left)
    if at_end and position != offset:
        return replace(result, status=GetMessageStatus.NO_MATCHED_MESSAGE)
    return result


class Pulled(NamedTuple):
    """Status, the offset after the last unit that was looked at, and the messages as record batches."""

    status: GetMessageStatus
    next_begin_offset: int
    batches: list[pa.RecordBatch]


class ReadCounts(Protocol):
    """Counts what readers give: the owner's ``StoreStatsService``, which is in a room above."""

    def get(self, topic: str, count: int, size: int) -> None: ...
    def pull(self, topic: str, count: int, size: int, seconds: float) -> None: ...


class Pulls:
    """Pulls from the queues of a store, for ``get_message`` and consumers."""

    def __init__(
        self,
        reader: ReaderView,
        commit_log: CommitLog,
        catalog: CatalogView,
        skips: Callable[[], Skips | None],
        counts: ReadCounts | None,
    ) -> None:
        """``skips`` gives what a pull reports damage to."""
        self._reader = reader
        self._commit_log = commit_log
        self._catalog = catalog
        self._skips = skips
        self._counts = counts

    def messages(
        self, topic: str, queue_id: int, offset: int, limits: PullLimits, wanted: MessageFilter
    ) -> GetMessageResult:
        """The answer of ``get_message``. ``StoreBusy``, and the errors of ``rows``."""

        def ask() -> tuple[Pulled, tuple[int, int], list[MessageExt]]:
            bounds, pulled = self._bounds(topic, queue_id, offset)
            if pulled is not None:
                return pulled, bounds, []
            queue = self._catalog.queue(topic, queue_id)
            few = self._few(queue, offset, bounds[1], limits, wanted)
            if few is not None:
                return few[0], bounds, few[1]
            columns = ("queueOffset", "physicalOffset")
            pulled = self._pull(queue, offset, bounds[1], limits, wanted, columns, verify_crc=True)
            places = [place for batch in pulled.batches for place in batch.column("physicalOffset").to_pylist()]
            records = (self._commit_log.read_record(place, check_crc=False) for place in places)
            return pulled, bounds, [message_of(record, self._commit_log.body(record)) for record in records]

        started = time.perf_counter()
        pulled, (low, high), messages = self._reader.consistently(ask, one_moment=False)
        if self._counts is not None:
            size = sum(message.store_size for message in messages)
            self._counts.pull(topic, len(messages), size, time.perf_counter() - started)
        return GetMessageResult(
            status=pulled.status,
            next_begin_offset=pulled.next_begin_offset,
            min_offset=low,
            max_offset=high,
            messages=messages,
        )

    def rows(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        limits: PullLimits,
        wanted: MessageFilter,
        columns: Sequence[str],
        *,
        verify_crc: bool,
    ) -> tuple[Pulled, tuple[int, int]]:
        """The answer of ``get_message`` as record batches, and the queue's bounds; ``queueOffset`` has to be among the
        columns. ``StoreBusy``, and damage as in ``StoreReader.read``."""

        def ask() -> tuple[Pulled, tuple[int, int]]:
            bounds, pulled = self._bounds(topic, queue_id, offset)
            if pulled is None:
                queue = self._catalog.queue(topic, queue_id)
                pulled = self._pull(queue, offset, bounds[1], limits, wanted, columns, verify_crc=verify_crc)
            return pulled, bounds

        return self._reader.consistently(ask, one_moment=False)

    def _bounds(self, topic: str, queue_id: int, offset: int) -> tuple[tuple[int, int], Pulled | None]:
        """The bounds of a queue, and the answer at an offset if it follows from them."""
        try:
            info = self._reader.queue_info(topic, queue_id)
        except (TopicNotFound, QueueNotFound):
            return (0, 0), Pulled(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, [])
        bounds = info.min_offset, info.max_offset
        return bounds, answer_without_reading(offset, *bounds)

    def _few(
        self, queue: QueueView, offset: int, stop: int, limits: PullLimits, wanted: MessageFilter
    ) -> tuple[Pulled, list[MessageExt]] | None:
        """The answer of a queue that has few messages from ``offset`` on, each of which is read by itself: as columns
        they take several times as long. None where more than tags decides, or anything is unusual.
        """
        if stop - offset > min(_FEW, limits.units) or wanted.expression is not None or wanted.keys is not None:
            return None
        if queue.fillers_are_lost:
            return None  # they are reported, whatever tags are wanted
        try:
            units = next(queue.units(offset, stop, chunk=_FEW))
            if len(units) < stop - offset:
                return None
            matched = wanted.may_match(units["tags_code"])
            end = _first_full(units["size"], matched, limits)
            records = [
                (row, self._commit_log.read_record(int(units["physical_offset"][row])))
                for row in np.flatnonzero(matched[:end]).tolist()
            ]
            messages = [message_of(record, self._commit_log.body(record)) for _, record in records]
        except CommitLogError:
            return None  # the usual way reads again, and distinguishes damage from what retention has removed
        for (row, record), message in zip(records, messages, strict=True):
            if (message.topic, message.queue_id, message.queue_offset) != (queue.topic, queue.queue_id, offset + row):
                return None
            if record.total_size != units["size"][row]:
                return None
        tags = None if wanted.tags is None else wanted.tags.tags
        found = [message for message in messages if tags is None or message.tags in tags]
        status = GetMessageStatus.FOUND if found else GetMessageStatus.NO_MATCHED_MESSAGE
        return Pulled(status, offset + end, []), found

    def _pull(
        self,
        queue: QueueView,
        offset: int,
        stop: int,
        limits: PullLimits,
        wanted: MessageFilter,
        columns: Sequence[str],
        *,
        verify_crc: bool,
    ) -> Pulled:
        """The messages from ``offset`` on, which is within the queue's bounds; ``stop`` is the queue's end.

        ``queueOffset`` has to be among the columns. ``OffsetOutOfRange`` if retention removes files at the same time:
        look at the queue's bounds again. Damage is raised, or reported to ``skips``.
        """
        skips = self._skips()
        try:
            # The first array ends where the queue's file ends, as a call of RocketMQ does.
            window = min(stop, offset + limits.units)
            units = next(queue.units(offset, window, chunk=limits.units, check=skips is None))
        except FileMissing as missing:
            return Pulled(GetMessageStatus.OFFSET_FOUND_NULL, missing.stop, [])
        self._commit_log.refresh()  # retention may have removed log files since the bounds were read
        judged = units
        if queue.fillers_are_lost:  # they are no head that was removed: reading reports them
            judged = np.where(units["size"] == FILLER_SIZE, np.zeros(1, units.dtype), units)
        removed = np.arange(len(units)) < count_before(judged, self._commit_log.min_offset)
        # Those that match, as far as that is known.
        matched = ~removed & wanted.may_match(units["tags_code"])
        units_decide = wanted.expression is None and wanted.keys is None
        if not units_decide:
            matched = np.zeros(len(units), np.bool_)
        end = _first_full(units["size"], matched, limits)
        blocks = BlockReader(
            LogBlocks(self._commit_log),
            queue,
            BlockLimits() if units_decide else BlockLimits(rows=max(limits.messages, DEFAULT_PULL_MESSAGES)),
            verify_crc=verify_crc,
            skips=skips,
            wanted=None if wanted.is_all else wanted,
        )
        batches: list[pa.RecordBatch] = []
        start = offset + int(np.count_nonzero(removed))  # what was removed stands at the head
        for batch in blocks.batches(start, offset + end, columns) if start < offset + end else ():
            batches.append(batch)
            if not units_decide:
                matched[batch.column("queueOffset").to_numpy() - offset] = True
                end = _first_full(units["size"], matched, limits)
                if offset + end <= blocks.position:
                    break
        return _answer(offset, end, batches, bool(removed[:end][-1:].any()))


def answer_without_reading(offset: int, low: int, high: int) -> Pulled | None:
    """The answer that follows from the queue's bounds; None where units are to be read."""
    if high == 0:
        return Pulled(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, [])
    if offset < low:
        return Pulled(GetMessageStatus.OFFSET_TOO_SMALL, low, [])
    if offset == high:
        return Pulled(GetMessageStatus.OFFSET_OVERFLOW_ONE, offset, [])
    if offset > high:
        return Pulled(GetMessageStatus.OFFSET_OVERFLOW_BADLY, high, [])
    return None


def _answer(offset: int, end: int, batches: list[pa.RecordBatch], last_was_removed: bool) -> Pulled:
    """The messages before the unit ``end``; without any, the status of the last unit that was looked at."""
    given = [batch for batch in (_before(batch, offset + end) for batch in batches) if batch.num_rows]
    if given:
        return Pulled(GetMessageStatus.FOUND, offset + end, given)
    if last_was_removed:
        return Pulled(GetMessageStatus.MESSAGE_WAS_REMOVING, offset + end, [])
    return Pulled(GetMessageStatus.NO_MATCHED_MESSAGE, offset + end, [])


def _before(batch: pa.RecordBatch, stop: int) -> pa.RecordBatch:
    offsets = batch.column("queueOffset").to_numpy()
    return batch if not len(offsets) or offsets[-1] < stop else batch.slice(0, int(np.searchsorted(offsets, stop)))


def _first_full(sizes: Int64Array, matched: BoolArray, limits: PullLimits) -> int:
    """The first unit that is not looked at, since the messages before it, and its own size, reach a limit."""
    counted = np.where(matched, sizes, 0).astype(np.int64)
    bytes_before = np.cumsum(counted) - counted
    count_before: Int64Array = np.cumsum(matched) - matched
    full = (count_before >= limits.messages) | (bytes_before + sizes > limits.size)
    full &= count_before > 0
    return int(np.argmax(full)) if full.any() else len(sizes)
