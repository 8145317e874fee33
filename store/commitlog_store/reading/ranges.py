"""Ranges of queues as record batches: one range, several together, in turn or side by side, and a scan of topics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TypeVar

import pyarrow as pa

from commitlog_store.columnar.columns import BODY_COLUMN, arrow_schema
from commitlog_store.errors import CommitLogError, InvalidValue, OffsetOutOfRange, UnsupportedStore
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.format.consume_queue_unit import Units
from commitlog_store.queue.block_reader import BlockReader
from commitlog_store.queue.catalog import matching_queues
from commitlog_store.queue.get_message import ReadCounts, checked_count, checked_int
from commitlog_store.queue.log_blocks import DEFAULT_ROWS, BlockLimits, BlockSource, QueueRange
from commitlog_store.queue.several_queues import SideBySide, Together, read_in_turn, read_together
from commitlog_store.queue.skipped import Skips
from commitlog_store.queue.unchanged_queue import good_units
from commitlog_store.queue.views import CatalogView, QueueInfo, ReaderView
from commitlog_store.reading.arguments import Range, checked_filter, checked_ranges
from commitlog_store.reading.damage import OnDamage, without_impossible
from commitlog_store.reading.settled_answers import UNITS_AHEAD, SettledAnswers
from commitlog_store.timestamps import GivenTime, milliseconds_of

_T = TypeVar("_T")

# Ranges whose units are read before the first of them are given.
_READ_AHEAD = 256
# Queues of a scan in memory at once.
_QUEUES_AT_ONCE = 8_192

_logger = logging.getLogger(__name__)


class MessageBatches(Iterator[pa.RecordBatch]):
    """The batches of one read. ``ReaderClosed`` for the next one once the reader is closed.

    ::

        with StoreReader.open("/data/store") as reader:
            batches = reader.read("orders", 0, 0, tags="paid")
            rows = sum(batch.num_rows for batch in batches)
            print(rows, "of the messages up to queue offset", batches.position)
    """

    def __init__(
        self, batches: Iterator[pa.RecordBatch], blocks: BlockReader, topic: str, start: int, ranges: RangeReads
    ) -> None:
        self._batches = batches
        self._topic = topic
        self._blocks = blocks
        self._start = start
        self._ranges = ranges

    def __next__(self) -> pa.RecordBatch:
        return self._ranges.next_counted(self._topic, self._batches)

    @property
    def position(self) -> int:
        """The queue offset up to which messages have been read, whether they match the filter or not.

        At the end of the read it is the end of the range.
        """
        return max(self._blocks.position, self._start)


class SideBySideBatches(Iterator[pa.RecordBatch]):
    """The batches of ``StoreReader.read_side_by_side``. ``ReaderClosed`` for the next one once the reader is closed."""

    def __init__(self, blocks: SideBySide, topic: str, ranges: RangeReads) -> None:
        self._blocks = blocks
        self._topic = topic
        self._ranges = ranges

    def __next__(self) -> pa.RecordBatch:
        return self._ranges.next_counted(self._topic, self._blocks)

    @property
    def positions(self) -> list[int]:
        """For each range, the queue offset up to which its messages have been read, whether they match or not."""
        return self._blocks.positions


class RangeReads:
    """Reads ranges through the blocks of a reader. Its methods are those of ``StoreReader`` of these names."""

    def __init__(
        self,
        reader: ReaderView,
        catalog: CatalogView,
        blocks: BlockSource,
        *,
        skips: Callable[[OnDamage | None], Skips | None],
        refuse_closed: Callable[[], None],
        counts: ReadCounts | None,
        settled: SettledAnswers,
    ) -> None:
        """``skips`` gives what a read reports damage to; ``refuse_closed`` is called before each batch, and ``counts``
        gets its messages and bytes."""
        self._reader = reader
        self._catalog = catalog
        self._blocks = blocks
        self._skips = skips
        self._refuse_closed = refuse_closed
        self._counts = counts
        self._settled = settled

    def read(
        self,
        place: tuple[str, int, int, int | None],
        columns: Sequence[str],
        wanted: MessageFilter,
        limits: BlockLimits,
        *,
        verify_crc: bool,
        on_damage: OnDamage | None = None,
    ) -> MessageBatches:
        """The messages of one range; without an end, those up to the queue's end."""
        self._refuse_closed()
        topic, queue_id, start, stop = place
        schema = arrow_schema(columns)
        low, high = checked_range(self._reader, topic, queue_id, start, stop)
        blocks = BlockReader(
            self._blocks,
            self._catalog.queue(topic, queue_id),
            limits,
            verify_crc=verify_crc and BODY_COLUMN in schema.names,
            skips=self._skips(on_damage),
            wanted=None if wanted.is_all else wanted,
        )
        return MessageBatches(blocks.batches(low, high, schema.names), blocks, topic, low, self)

    def scan(
        self,
        topics: str | Sequence[str],
        since: GivenTime | None,
        until: GivenTime | None,
        columns: Sequence[str],
        wanted: MessageFilter,
        *,
        verify_crc: bool,
    ) -> pa.RecordBatchReader:
        schema = arrow_schema(columns)
        first = None if since is None else milliseconds_of(since, "since")
        last = None if until is None else milliseconds_of(until, "until")
        ranges = self._ranges_by_time(topics, first, last)

        def batches() -> Iterator[pa.RecordBatch]:
            filled = [one for one in ranges if one.min_offset < one.max_offset]
            for first in range(0, len(filled), _QUEUES_AT_ONCE):
                some = filled[first : first + _QUEUES_AT_ONCE]
                queues = self._catalog.uncached_queues([(one.topic, one.queue_id) for one in some])
                part = [(queue, one.min_offset, one.max_offset) for queue, one in zip(queues, some, strict=True)]
                for read, together in self._in_turn(part, schema, wanted, verify_crc=verify_crc):
                    if together is None:
                        yield from self.read(read[0], schema.names, wanted, BlockLimits(), verify_crc=verify_crc)
                    else:
                        yield from while_open(iter(together), self._refuse_closed)

        return pa.RecordBatchReader.from_batches(schema, batches())

    def _ranges_by_time(
        self, topics: str | Sequence[str], first_ms: int | None, last_ms: int | None
    ) -> list[QueueInfo]:
        """The ranges of all queues of topics between two store times, the second one excluded."""
        unreadable: list[UnsupportedStore] = []

        def queues() -> list[tuple[str, int]]:
            found, unreadable[:] = matching_queues(self._catalog, topics, self._reader.path)
            return found

        def ask() -> list[QueueInfo]:
            infos = self._reader.queue_infos(queues)
            if first_ms is None and last_ms is None:
                return infos
            starts = [info.min_offset for info in infos] if first_ms is None else self._all_by_time(infos, first_ms)
            stops = [info.max_offset for info in infos] if last_ms is None else self._all_by_time(infos, last_ms)
            return [
                QueueInfo(info.topic, info.queue_id, start, stop)
                for info, start, stop in zip(infos, starts, stops, strict=True)
            ]

        ranges = self._reader.consistently(ask, one_moment=False)
        for error in unreadable:
            _logger.warning("%s It matches a pattern of the scan and is skipped.", error)
        return ranges

    def _all_by_time(self, infos: Sequence[QueueInfo], time_ms: int) -> list[int]:
        """The first offset of each queue stored at or after a time. The errors of ``offset_by_time``."""
        offsets = []
        for found in self._reader.offsets_by_time([(info, time_ms) for info in infos]):
            if isinstance(found, CommitLogError):
                raise found
            offsets.append(found)
        return offsets

    def read_together(
        self, ranges: Iterable[Range], columns: Sequence[str], wanted: MessageFilter | None, *, verify_crc: bool
    ) -> list[pa.RecordBatch] | None:
        self._refuse_closed()
        arrow_schema(columns)
        return self.read_checked_together(self.checked(ranges), columns, checked_filter(wanted), verify_crc=verify_crc)

    def read_checked_together(
        self, ranges: Iterable[QueueRange], columns: Sequence[str], wanted: MessageFilter | None, *, verify_crc: bool
    ) -> list[pa.RecordBatch] | None:
        """``read_together`` of ranges that were checked, or are checked where their blocks come from."""
        self._refuse_closed()
        schema = arrow_schema(columns)
        by_topic: dict[str, list[QueueRange]] = {}
        for one in ranges:
            by_topic.setdefault(one[0].topic, []).append(one)
        parts = [one for of_topic in by_topic.values() for one in of_topic]
        if not parts:
            return []
        names = schema.names or ["queueOffset"]  # the rows of batches without columns cannot be counted
        check = verify_crc and BODY_COLUMN in names
        read = read_together(self._blocks, parts, names, BlockLimits(), verify_crc=check, wanted=wanted)
        if read is None:
            return None
        self._count_together(parts, read)
        return [batch.select(schema.names) for batch in read.batches]

    def read_in_turn(
        self, ranges: Iterable[Range], columns: Sequence[str], wanted: MessageFilter | None, *, verify_crc: bool
    ) -> Iterator[tuple[list[Range], list[pa.RecordBatch] | None]]:
        self._refuse_closed()
        schema = arrow_schema(columns)
        checked, wanted = self.checked(ranges), checked_filter(wanted)
        return self._in_turn(checked, schema, MessageFilter() if wanted is None else wanted, verify_crc=verify_crc)

    def _in_turn(
        self, ranges: Sequence[QueueRange], schema: pa.Schema, wanted: MessageFilter, *, verify_crc: bool
    ) -> Iterator[tuple[list[Range], list[pa.RecordBatch] | None]]:
        names = schema.names or ["queueOffset"]  # the rows of batches without columns cannot be counted
        check = verify_crc and BODY_COLUMN in names
        for some, together in read_in_turn(self._blocks, ranges, names, verify_crc=check, wanted=wanted):
            self._refuse_closed()
            batches = None
            if together is not None:
                self._count_together(some, together)
                batches = [
                    batch.slice(at, DEFAULT_ROWS).select(schema.names)
                    for batch in together.batches
                    for at in range(0, batch.num_rows, DEFAULT_ROWS)
                ]
            yield [(queue.topic, queue.queue_id, start, stop) for queue, start, stop in some], batches

    def read_side_by_side(
        self, ranges: Sequence[Range], columns: Sequence[str], wanted: MessageFilter | None, *, verify_crc: bool
    ) -> SideBySideBatches:
        self._refuse_closed()
        ranges = checked_ranges(ranges)
        topics = sorted({topic for topic, *_ in ranges})
        if len(topics) != 1:
            raise InvalidValue(f"The ranges that are read side by side are those of one topic, not of {topics}.")
        names = arrow_schema(columns).names
        parts = self.checked(ranges)
        check = verify_crc and BODY_COLUMN in names
        blocks = SideBySide(self._blocks, parts, names, BlockLimits(), verify_crc=check, wanted=checked_filter(wanted))
        return SideBySideBatches(blocks, topics[0], self)

    def units(self, topic: str, queue_id: int, start: int, stop: int, chunk: int, *, strict: bool) -> Iterator[Units]:
        """The units of one range; unless ``strict``, an impossible one is given as a filler."""
        self._refuse_closed()
        low, high = checked_range(self._reader, topic, queue_id, start, stop)
        units = self._catalog.queue(topic, queue_id).units(low, high, chunk=checked_count("chunk", chunk), check=strict)
        return while_open(units if strict else map(without_impossible, units), self._refuse_closed)

    def units_of(self, ranges: Sequence[Range], chunk: int, *, strict: bool) -> Iterator[tuple[int, Units]]:
        self._refuse_closed()
        checked_count("chunk", chunk)
        return self.units_of_checked(self.checked(ranges), chunk, strict=strict)

    def units_of_checked(
        self, checked: Sequence[QueueRange], chunk: int, *, strict: bool
    ) -> Iterator[tuple[int, Units]]:
        """``units_of`` of ranges that ``checked`` has given."""
        chunk = checked_count("chunk", chunk)
        settled = self._settled.now(len(checked)) if chunk >= UNITS_AHEAD else None

        def found() -> Iterator[tuple[int, Units]]:
            for first in range(0, len(checked), _READ_AHEAD):
                some = checked[first : first + _READ_AHEAD]
                short = zip(some, _short(some, chunk, settled), strict=True)
                for number, ((queue, start, stop), known) in enumerate(short, first):
                    good = settled.units(queue, start, stop) if known is None and settled is not None else known
                    if good is not None:
                        yield number, good
                        continue
                    for units in queue.units(start, stop, chunk=chunk, check=strict):
                        yield number, (units if strict else without_impossible(units))

        return while_open(found(), self._refuse_closed)

    def checked(self, ranges: Iterable[Range]) -> list[QueueRange]:
        """The ranges with their queues. ``OffsetOutOfRange``, ``QueueNotFound``, ``InvalidValue``."""
        ranges = checked_ranges(ranges)
        infos = self._reader.queue_infos([key[:2] for key in ranges])
        for (*_, start, stop), info in zip(ranges, infos, strict=True):
            _refuse_outside(info, start, stop)
        queues = self._catalog.uncached_queues([key[:2] for key in ranges])
        return [(queue, start, stop) for queue, (*_, start, stop) in zip(queues, ranges, strict=True)]

    def next_counted(self, topic: str, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
        """The next batch of a topic's messages, which is counted. ``ReaderClosed``."""
        self._refuse_closed()
        batch = next(batches)
        if self._counts is not None:
            self._counts.get(topic, batch.num_rows, batch.nbytes)
        return batch

    def _count_together(self, ranges: Sequence[QueueRange], together: Together) -> None:
        if self._counts is not None:
            for topic, rows, size in together.by_topic(ranges):
                self._counts.get(topic, rows, size)


def _short(ranges: Sequence[QueueRange], chunk: int, settled: SettledAnswers | None) -> list[Units | None]:
    """The units of short ranges that are known, or of queues that are as they were saved; None for those that are to be
    read one by one.
    """
    if settled is None:
        return good_units(ranges, chunk)
    found = [settled.known_units(*one) for one in ranges]
    missing = [number for number, known in enumerate(found) if known is None]
    ahead = [settled.with_units_ahead(*ranges[number]) for number in missing]
    for number, read, units in zip(missing, ahead, good_units(ahead, chunk), strict=True):
        if units is not None:
            settled.keep_units(read, units)
            _, start, stop = ranges[number]
            found[number] = units[: stop - start]
    return found


def while_open(items: Iterator[_T], refuse_closed: Callable[[], None]) -> Iterator[_T]:
    """The items; ``ReaderClosed`` for the next one once the reader is closed."""
    for item in items:
        yield item
        refuse_closed()


def checked_range(reader: ReaderView, topic: str, queue_id: int, start: int, stop: int | None) -> tuple[int, int]:
    """The range, up to the queue's end without ``stop``. ``OffsetOutOfRange``, ``InvalidValue``, ``QueueNotFound``."""
    start = checked_int("start", start)
    info = reader.queue_info(topic, queue_id)
    high = info.max_offset if stop is None else checked_int("stop", stop)
    if stop is None and start > high:
        _refuse_outside(info, start, start + 1)
    _refuse_outside(info, start, high)
    return start, high


def _refuse_outside(info: QueueInfo, start: int, stop: int) -> None:
    """``OffsetOutOfRange``, ``InvalidValue``."""
    refuse_reversed(start, stop)
    if start < info.min_offset or stop > info.max_offset:
        raise OffsetOutOfRange(**asdict(info), start=start, stop=stop)


def refuse_reversed(start: int, stop: int) -> None:
    """``InvalidValue``."""
    if start > stop:
        raise InvalidValue(f"A range of offsets begins at or before its end, not at {start} with the end {stop}.")


def batch_limits(max_batch_rows: int, max_batch_bytes: int) -> BlockLimits:
    """The limits of a batch. ``InvalidValue``."""
    rows, size = checked_count("max_batch_rows", max_batch_rows), checked_count("max_batch_bytes", max_batch_bytes)
    return BlockLimits(rows=rows, size=size)


def chosen_filter(
    tags: str | None, given: str | MessageFilter | None, keys: str | Sequence[str] | None
) -> MessageFilter:
    """The filter of a read. ``FilterError``, ``InvalidValue``."""
    if not isinstance(given, MessageFilter):
        return MessageFilter.parse(tags=tags, filter=given, keys=keys)
    if tags is not None or keys is not None:
        raise InvalidValue("A MessageFilter has tags and keys of its own; give them to MessageFilter.parse.")
    return given
