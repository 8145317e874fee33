"""Scan of messages: several queues at once, merged in the order of the log, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store.errors import FileMissing, OffsetOutOfRange
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.format.consume_queue_unit import FILLER_SIZE
from commitlog_store.message import MessageExt
from commitlog_store.reader import QueueInfo, StoreReader

Range = tuple[str, int, int, int]  # topic, queue id, first offset, offset after the last
Position = dict[tuple[str, int], int]  # the offset after the last that was read, by topic and queue id

ALL = MessageFilter()
"""The filter that every message matches."""

ROW_COLUMNS = (
    "topic", "queueId", "queueOffset", "physicalOffset", "msgId", "storeTimestamp", "bornTimestamp", "bornHost",
    "tags", "keys", "properties", "body",
)  # fmt: skip

# The first batch is small: the first messages show at once, and those before damage are printed.
_FIRST_ROWS, _ROWS = 256, 4096
# Queue offsets that are read of one queue, in search of a message that matches, before the others are looked at.
_FILTERED_PIECE = 65_536
# Milliseconds that a timestamp in microseconds can hold.
_MOST_MS = 2**63 // 1000
# Bytes of bodies in the batches of all queues together, and of one at least and at most.
_ALL_SIZE, _LEAST_SIZE, _MOST_SIZE = 32 << 20, 64 << 10, 1 << 20


def as_row(message: MessageExt) -> dict[str, Any]:
    """A message with the names of all columns, and times in milliseconds."""
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "msgId": message.message_id,
        "storeTimestamp": message.store_timestamp,
        "bornTimestamp": message.born_timestamp,
        "bornHost": message.born_host,
        "tags": message.tags,
        "keys": " ".join(message.keys) or None,
        "properties": dict(message.properties),
        "body": message.body,
        "uniqKey": message.unique_key,
        "storeHost": message.store_host,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "storeSize": message.store_size,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bodyCrc": message.body_crc,
        "reconsumeTimes": message.reconsume_times,
    }


def arrow_row(message: MessageExt) -> dict[str, Any]:
    """A message as a row of the columns' Arrow types. Times that these cannot hold are null, as in a read."""
    row = as_row(message)
    for name in ("storeTimestamp", "bornTimestamp"):
        row[name] = row[name] * 1000 if abs(row[name]) < _MOST_MS else None
    row["properties"] = list(row["properties"].items())
    return row


def column_values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column as Python objects: times in milliseconds, properties as dictionaries."""
    if pa.types.is_timestamp(column.type):
        values = column.cast(pa.int64())
        if values.null_count:
            return [None if one is None else one // 1000 for one in values.to_pylist()]
        return (values.to_numpy() // 1000).tolist()  # type: ignore[no-any-return]
    if pa.types.is_map(column.type):
        return [one for chunk in column.chunks for one in _dictionaries(chunk)]
    if pa.types.is_integer(column.type):
        return column.to_pylist() if column.null_count else column.to_numpy().tolist()  # type: ignore[no-any-return]
    return [one for chunk in column.chunks for one in chunk.to_numpy(zero_copy_only=False).tolist()]


def _dictionaries(maps: pa.MapArray) -> Iterator[dict[str, str]]:
    bounds = maps.offsets.to_numpy().tolist()
    names = maps.keys.to_numpy(zero_copy_only=False).tolist()
    values = maps.items.to_numpy(zero_copy_only=False).tolist()
    for start, stop in pairwise(bounds):
        yield dict(zip(names[start:stop], values[start:stop], strict=True))


def ranges(
    reader: StoreReader,
    topics: Sequence[str],
    queue: int | None = None,
    *,
    offset: int | None = None,
    begin: int | None = None,
    end: int | None = None,
) -> list[Range]:
    """The range of each queue between two offsets or two times; by default from the first message to the end."""

    def look() -> list[Range]:
        infos = reader.queue_infos(lambda: _queues(reader, topics, queue))
        return [_range(reader, info, offset, begin, end) for info in infos]

    return reader.consistently(look, one_moment=False)


def _range(reader: StoreReader, bounds: QueueInfo, offset: int | None, begin: int | None, end: int | None) -> Range:
    topic, queue_id, start, stop = bounds.topic, bounds.queue_id, bounds.min_offset, bounds.max_offset
    if offset is not None:
        if not start <= offset <= stop:
            raise OffsetOutOfRange(**asdict(bounds), start=offset, stop=max(stop, offset + 1))
        start = offset
    if begin is not None:
        start = reader.offset_by_time(topic, queue_id, begin, bounds=bounds)
    if end is not None:
        stop = max(reader.offset_by_time(topic, queue_id, end, bounds=bounds), start)
    return topic, queue_id, start, stop


def _queues(reader: StoreReader, topics: Sequence[str], queue: int | None) -> Iterator[tuple[str, int]]:
    for topic in topics:
        for queue_id in [queue] if queue is not None else reader.queue_ids(topic):
            yield topic, queue_id


def count_of(wanted: Sequence[Range]) -> int:
    """The number of queue offsets in ranges."""
    return sum(stop - start for _, _, start, stop in wanted)


def merged(
    reader: StoreReader,
    wanted: Sequence[Range],
    columns: Sequence[str],
    chosen: MessageFilter = ALL,
    advance: Callable[[int], None] = lambda _: None,
    verify_crc: bool = True,
) -> Iterator[pa.Table]:
    """The messages of several ranges, merged by physical offset, in tables of the columns and ``physicalOffset``.

    ``chosen`` says which of them. ``advance`` is called with the number of queue offsets that were read. ``verify_crc``
    is that of ``StoreReader.read``.
    """
    names = list(dict.fromkeys([*columns, "physicalOffset"]))
    size = min(max(_ALL_SIZE // max(len(wanted), 1), _LEAST_SIZE), _MOST_SIZE)
    filled = [one for one in wanted if one[2] < one[3]]
    sources = [_Source(_steps(reader, one, names, size, chosen, advance, verify_crc)) for one in filled]
    place = -1
    while sources := [source for source in sources if source.fill(place)]:
        # Every source has its rows up to there, so they can be put in order.
        first = min(sources, key=lambda source: source.last)
        place = first.last
        taken = [source.take(place, whole=source is first) for source in sources]
        pieces = [piece for piece in taken if piece is not None]
        if not pieces:
            continue
        table = pa.Table.from_batches(pieces)
        if len(pieces) > 1:
            places = table.column("physicalOffset").to_numpy()
            table = table.take(pa.array(np.argsort(places, kind="stable")))
        yield table


class _Step(NamedTuple):
    """Rows of a queue, perhaps none, and the physical offset up to which these are all that match."""

    batch: pa.RecordBatch | None
    last: int


def _steps(
    reader: StoreReader,
    wanted: Range,
    columns: Sequence[str],
    size: int,
    chosen: MessageFilter,
    advance: Callable[[int], None],
    verify_crc: bool,
) -> Iterator[_Step]:
    topic, queue_id, start, stop = wanted
    for low, high, rows in _pieces(start, stop, _FILTERED_PIECE if not chosen.is_all else stop - start):
        batches = reader.read(
            topic,
            queue_id,
            low,
            high,
            columns=columns,
            verify_crc=verify_crc,
            max_batch_rows=rows,
            max_batch_bytes=size,
            filter=chosen,
        )
        at = low
        for batch in batches:
            advance(batches.position - at)
            at = batches.position
            yield _Step(batch, batch.column("physicalOffset")[-1].as_py())
        advance(high - at)
        if not chosen.is_all:
            # Other queues need not wait for this one to find a row that matches.
            yield _Step(None, place_of(reader, topic, queue_id, high - 1))


def place_of(reader: StoreReader, topic: str, queue_id: int, offset: int) -> int:
    """The physical offset of the message at a queue offset; one before all messages where it is not known."""
    try:
        return max(int(units["physical_offset"][-1]) for units in reader.units(topic, queue_id, offset, offset + 1))
    except (FileMissing, OffsetOutOfRange):
        return -1


def _pieces(start: int, stop: int, size: int) -> Iterator[tuple[int, int, int]]:
    """The parts of a range, and the rows of a batch of each."""
    middle = min(start + _FIRST_ROWS, stop)
    yield start, middle, _FIRST_ROWS
    for low in range(middle, stop, size):
        yield low, min(low + size, stop), _ROWS


class _Source:
    """The rows of one queue that are not taken yet."""

    def __init__(self, steps: Iterator[_Step]) -> None:
        self._steps = steps
        self._batch: pa.RecordBatch | None = None
        self._places: npt.NDArray[np.int64] = np.empty(0, np.int64)
        # The physical offset up to which the rows are known.
        self.last = -1

    def fill(self, place: int) -> bool:
        """Read on when no row is left and all rows up to ``place`` have been. Returns whether rows may be left."""
        while not len(self._places) and self.last <= place:
            step = next(self._steps, None)
            if step is None:
                return False
            self._batch, self.last = step.batch, max(step.last, self.last)
            if self._batch is not None:
                self._places = self._batch.column("physicalOffset").to_numpy()
        return True

    def take(self, place: int, *, whole: bool) -> pa.RecordBatch | None:
        """Remove and return the rows up to a physical offset, or all."""
        count = len(self._places) if whole else int(np.searchsorted(self._places, place, side="right"))
        if self._batch is None or not count:
            return None
        taken = self._batch.slice(0, count)
        self._batch, self._places = self._batch.slice(count), self._places[count:]
        return taken


def newest(reader: StoreReader, whole: Sequence[Range], count: int) -> list[Range]:
    """The ranges of the newest ``count`` messages of the chosen ranges.

    The consume queues alone say which messages those are; no other message is read.
    """
    last = [(name, queue_id, max(start, stop - count), stop) for name, queue_id, start, stop in whole]
    place = _nth_newest_place(reader, last, count)
    wanted = [(*one[:2], _first_from(reader, one, place), one[3]) for one in last]
    return [one for one in wanted if one[2] < one[3]]


def _nth_newest_place(reader: StoreReader, wanted: list[Range], count: int) -> int:
    """The physical offset of the ``count``-th newest message of several ranges; 0 when they hold fewer."""
    newest_places = np.empty(0, np.int64)
    for one in wanted:
        for units in reader.units(*one):
            real = units["physical_offset"][units["size"] != FILLER_SIZE]
            newest_places = np.concatenate((newest_places, real))
            if len(newest_places) > count:
                newest_places = np.partition(newest_places, -count)[-count:]
    return int(newest_places.min()) if len(newest_places) == count > 0 else 0


def _first_from(reader: StoreReader, wanted: Range, place: int) -> int:
    """The first offset of a range whose message lies at or after a physical offset, or the range's end."""
    *_, at, stop = wanted
    for units in reader.units(*wanted):
        after = np.flatnonzero((units["physical_offset"] >= place) & (units["size"] != FILLER_SIZE))
        if len(after):
            return at + int(after[0])
        at += len(units)
    return stop


def arrived(
    reader: StoreReader, topics: Sequence[str], queue: int | None, position: Position
) -> tuple[list[Range], Position]:
    """The messages after ``position``, and the position after them. New queues are read from their start."""
    now = ranges(reader, topics, queue)
    fresh = [(*one[:2], max(position.get(one[:2], one[2]), one[2]), one[3]) for one in now]
    return [one for one in fresh if one[2] < one[3]], after(fresh)


def after(wanted: Sequence[Range]) -> Position:
    """The position after ranges."""
    return {(topic, queue_id): stop for topic, queue_id, _, stop in wanted}
