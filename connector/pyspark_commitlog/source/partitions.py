"""Partitions: cuts the ranges of a batch into parts of even size, so that one hot queue still uses every core.

Each further task of a Python source costs Spark some 40 ms, so what one task reads in that time is not cut into
several: docs/decisions/0016-small-batches.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql.datasource import InputPartition

from commitlog_store import FILLER_SIZE, StoreReader
from commitlog_store.errors import FileMissing
from pyspark_commitlog import loss
from pyspark_commitlog.source.units_of_ranges import (
    QueueRange,
    Sizes,
    Units,
    message_sizes,
    units_around_holes,
)

if TYPE_CHECKING:
    from commitlog_store.history.planned import PlannedManifest

# Up to this many queues each has its own partitions. Beyond, small ones share: 2,000 queues are not 2,000 tasks.
_MOST_UNSHARED_QUEUES = 32
# Ranges that are read at once, all of them in memory: about what a batch of rows holds anyway.
_SHORT_ROWS = 16_384
_SHORT_BYTES = 16 << 20
# What Spark spends on one more task, on a core; what a task spends on one more queue, and what it reads in a second.
# Rounded: a wrong factor of two makes a batch one task too many or too few. docs/decisions/0016-small-batches.md.
_TASK_SECONDS = 0.04
_QUEUE_SECONDS = 0.0002
_ROWS_A_SECOND = 2_000_000
_BYTES_A_SECOND = 1_000_000_000
# When at least this part of a stretch of the log is read, several queues are read side by side.
_DENSE = 0.5
# The same where the log is fetched, which comes in pages of 256 KiB: from about 4 KiB of a page on that all queues want
# together, a task for each queue would fetch most pages again.
_DENSE_FETCHED = 1 / 64
# A stretch of several topics that is fetched, at most. They are read one after the other, and a reader keeps 64 MiB of
# pages in memory (``PageLimits``): so each page is fetched once.
_MOST_OF_SEVERAL_TOPICS = 48 << 20
# A queue is measured in blocks, and only the blocks that are cut are read again. This many units are 80 KiB.
_BLOCK_UNITS = 4096
# Of so many units, Python's sum takes less time than numpy's.
_FEW_UNITS = 8
_BLOCKS_A_READ = 64


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """The ranges of one task, read one after the other, or ``side_by_side`` in even steps, or all at once where they
    are ``short``. ``store`` is the name of their store, None if it has none. ``manifest`` is that with which an archive
    was planned: a task need not look for it again. Only values: Spark pickles it.

    Those of a stream have the ``run`` of their source, and are ``number`` of ``count`` in their batch
    (``task_reports``).
    """

    ranges: tuple[QueueRange, ...]
    side_by_side: bool = False
    short: bool = False
    store: str | None = None
    manifest: PlannedManifest | None = None
    run: str = ""
    number: int = 0
    count: int = 0

    @classmethod
    def of(cls, ranges: Sequence[QueueRange], size: int, *, side_by_side: bool = False) -> RangePartition:
        """A partition of ranges whose messages take ``size`` bytes in the log."""
        if len(ranges) < 2:
            return cls(tuple(ranges))
        short = size <= _SHORT_BYTES and sum(one.stop - one.start for one in ranges) <= _SHORT_ROWS
        return cls(tuple(ranges), side_by_side=side_by_side, short=short)


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """A range in blocks: block ``i`` ends before offset ``ends[i]``, ``totals[i]`` bytes after the range's start.

    Its messages lie between ``log_start`` and ``log_stop`` of the CommitLog, most likely with others among them.
    """

    range: QueueRange
    ends: Sizes | tuple[int, ...]
    totals: Sizes | tuple[int, ...]
    total: int
    log_start: int
    log_stop: int

    @property
    def rows(self) -> int:
        return self.range.stop - self.range.start


def plan_partitions(
    reader: StoreReader,
    ranges: Iterable[QueueRange],
    *,
    max_bytes: int,
    min_partitions: int | None,
    fail_on_data_loss: bool = True,
    fetched: bool = False,
) -> list[RangePartition]:
    """Partitions of at most ``max_bytes`` (one larger message goes alone), and about ``min_partitions`` or more.

    Beyond that, no more than read for as long as Spark takes to start a task. ``fetched``: the log comes from object
    storage, in pages, so that each task of interleaved queues would fetch what the others do.

    Cuts are exact: they come from the sizes and physical offsets in the consume queues. For a missing file of a queue,
    ``DataLossError``, or a warning and the range without its messages. Raises the errors of ``StoreReader.units``.
    """
    measured = list(_measure_all(reader, list(ranges), fail=fail_on_data_loss))
    total = sum(one.total for one in measured)
    worthwhile = max(min_partitions or 1, _worthwhile_tasks(measured))
    target = max_bytes
    if min_partitions is not None:
        target = max(1, min(max_bytes, -(-total // min_partitions)))
    # The parts on both sides of a hole must not be read side by side: a queue's messages come in their order.
    if len({one.range[:2] for one in measured}) == len(measured) > 1:
        count = min(worthwhile, max(min(len(measured), _MOST_UNSHARED_QUEUES), -(-total // target)))
        together = _plan_together(reader, measured, count, target, max_bytes if fetched else None)
        if together is not None:
            return together
    pieces = [piece for one in measured for piece in _cut(reader, one, target)]
    most = min(worthwhile, _MOST_UNSHARED_QUEUES) if len(measured) > _MOST_UNSHARED_QUEUES else worthwhile
    if len(pieces) <= most:
        return [RangePartition((piece,)) for piece, _ in pieces]
    return _pack(pieces, max(1, min(target, -(-total // most))))


def _plan_together(
    reader: StoreReader, measured: Sequence[_Measured], count: int, target: int, most_fetched: int | None
) -> list[RangePartition] | None:
    """About ``count`` partitions that have messages of several queues each; None where each queue has its own.

    ``most_fetched`` is for a log that is fetched: the bytes of it that a task fetches at most, where that is less than
    queue by queue.
    """
    total = sum(one.total for one in measured)
    log_start = min(one.log_start for one in measured)
    log_stop = max(one.log_stop for one in measured)
    length = log_stop - log_start
    every = [one.range for one in measured]
    if most_fetched is not None and total > length * _DENSE_FETCHED:
        if any(one.topic != every[0].topic for one in every):
            most_fetched = min(most_fetched, _MOST_OF_SEVERAL_TOPICS)
        if count == 1 and length <= most_fetched:
            return [RangePartition.of(every, total, side_by_side=True)]
        return _cut_log(reader, measured, log_start, log_stop, count, most_fetched)
    if len(measured) > _MOST_UNSHARED_QUEUES:
        return None
    dense = total > length * _DENSE
    if count == 1 and total <= target:
        return [RangePartition.of(every, total, side_by_side=dense)]
    if dense and (total > target or count < len(measured)):
        return _cut_log(reader, measured, log_start, log_stop, count, target)
    return None


def _worthwhile_tasks(measured: Sequence[_Measured]) -> int:
    """The number of tasks that each read for as long as it takes to start one."""
    size, rows = sum(one.total for one in measured), sum(one.rows for one in measured)
    seconds = size / _BYTES_A_SECOND + rows / _ROWS_A_SECOND + len(measured) * _QUEUE_SECONDS
    return max(1, int(seconds / _TASK_SECONDS))


def _cut_log(
    reader: StoreReader, measured: Sequence[_Measured], log_start: int, log_stop: int, count: int, most: int
) -> list[RangePartition]:
    """About ``count`` partitions that are stretches of the log of at most ``most`` bytes, with all queues' messages.

    Queues are interleaved in the log. A task that reads them side by side reads its stretch once; with one task per
    queue, every task would read all of it.
    """
    begins = {one.range: one.range.start for one in measured}
    partitions = []
    at = log_start
    while at < log_stop:
        begun, left = at, log_stop - at
        count = max(count, -(-left // most))
        at, stops = _stretch(reader, begins, at, at + -(-left // count))
        count = max(count - 1, 1)
        if at >= log_stop:
            stops = {wanted: wanted.stop for wanted in begins}  # also when a damaged unit led the search astray
        ranges = tuple(
            wanted._replace(start=begins[wanted], stop=stop) for wanted, stop in stops.items() if begins[wanted] < stop
        )
        begins = {wanted: stop for wanted, stop in stops.items() if stop < wanted.stop}
        if ranges:
            partitions.append(RangePartition.of(ranges, at - begun, side_by_side=True))
    return partitions


def _stretch(
    reader: StoreReader, begins: Mapping[QueueRange, int], start: int, wanted: int
) -> tuple[int, dict[QueueRange, int]]:
    """The end of a stretch of the log that begins at ``start``, and its offset in each queue.

    It ends at ``wanted``, or before the message across that position: then it holds no more bytes than it is long. Only
    a message that fills the whole stretch is included, alone.
    """
    found = reader.first_offsets_from([(*queue[:2], wanted, begin, queue.stop) for queue, begin in begins.items()])
    stops = dict(zip(begins, found, strict=True))
    lasts = {queue[:2]: queue for queue, end in stops.items() if begins[queue] < end}
    stop = wanted
    ranges = [(*key, stops[queue] - 1, stops[queue]) for key, queue in lasts.items()]
    for number, last in reader.units_of(ranges):
        queue = lasts[ranges[number][:2]]
        place = int(last["physical_offset"][0])
        after = place + int(message_sizes(last)[0])
        if after > wanted and place > start:
            stop = place
            stops[queue] -= 1
        elif after > wanted:
            stop = after
    return stop, stops


def _measure_all(reader: StoreReader, ranges: Sequence[QueueRange], *, fail: bool) -> Iterator[_Measured]:
    """The ranges that hold messages, or their parts between the files of the queue that are missing."""
    for wanted, found in groupby(units_around_holes(reader, ranges), key=itemgetter(0)):
        measuring = _Measuring(wanted)
        for _, units in found:
            if isinstance(units, FileMissing):
                yield from _measure_around_holes(reader, wanted, fail=fail)
                break
            if len(units) == wanted.stop - wanted.start <= _FEW_UNITS:
                yield _measured_at_once(wanted, units)
                break
            measuring.add(units)
        else:
            yield measuring.measured()


def _measured_at_once(wanted: QueueRange, units: Units) -> _Measured:
    """A range by all its units, as most of many queues have them."""
    sizes = [0 if size == FILLER_SIZE else size for size in units["size"].tolist()]
    places, total = units["physical_offset"], sum(sizes)
    return _Measured(
        range=wanted,
        ends=(wanted.stop,),
        totals=(total,),
        total=total,
        log_start=int(places[0]),
        log_stop=int(places[-1]) + sizes[-1],
    )


def _measure_around_holes(reader: StoreReader, wanted: QueueRange, *, fail: bool) -> Iterator[_Measured]:
    """The range, or its parts between the files of the queue that are missing."""
    left = wanted
    while left.start < left.stop:
        try:
            yield _measure(reader, left)
            return
        except FileMissing as missing:
            after = loss.file_missing(missing, (left.start, left.stop), fail=fail)
            if left.start < missing.start:
                yield _measure(reader, left._replace(stop=missing.start))
            left = left._replace(start=after)


def _measure(reader: StoreReader, wanted: QueueRange) -> _Measured:
    measuring = _Measuring(wanted)
    for units in reader.units(*wanted, chunk=_BLOCK_UNITS * _BLOCKS_A_READ):
        measuring.add(units)
    return measuring.measured()


class _Measuring:
    """Measures a range by its units, which come in arrays."""

    def __init__(self, wanted: QueueRange) -> None:
        self._range = wanted
        self._at = wanted.start
        self._sums: list[Sizes] = []
        self._ends: list[Sizes] = []
        self._log_start = self._log_stop = 0

    def add(self, units: Units) -> None:
        # The arrays end where a file of the queue ends, so a block may be shorter than the others.
        sizes = message_sizes(units)
        firsts = np.arange(0, len(sizes), _BLOCK_UNITS)
        self._sums.append(np.add.reduceat(sizes, firsts))
        self._ends.append(self._at + np.append(firsts[1:], len(sizes)))
        if self._at == self._range.start:
            self._log_start = int(units["physical_offset"][0])
        self._log_stop = int(units["physical_offset"][-1]) + int(sizes[-1])
        self._at += len(sizes)

    def measured(self) -> _Measured:
        totals = np.cumsum(np.concatenate(self._sums))
        return _Measured(
            range=self._range,
            ends=np.concatenate(self._ends),
            totals=totals,
            total=int(totals[-1]),
            log_start=self._log_start,
            log_stop=self._log_stop,
        )


def _cut(reader: StoreReader, one: _Measured, target: int) -> list[tuple[QueueRange, int]]:
    """Pieces of at most ``target`` bytes and of about the same size, each with its number of bytes."""
    if one.total <= target:
        return [(one.range, one.total)]
    topic, queue_id, at, stop = one.range
    done = 0
    pieces: list[tuple[QueueRange, int]] = []
    while one.total - done > target:
        left = one.total - done
        share = -(-left // -(-left // target))
        end, reached = _offset_within(reader, one, done + share)
        if end <= at:  # a single message larger than the share
            end, reached = at + 1, done + _size_at(reader, one.range, at)
        if end >= stop:
            break
        pieces.append((QueueRange(topic, queue_id, at, end), reached - done))
        at, done = end, reached
    pieces.append((QueueRange(topic, queue_id, at, stop), one.total - done))
    return pieces


def _offset_within(reader: StoreReader, one: _Measured, budget: int) -> tuple[int, int]:
    """The last offset that the first ``budget`` bytes reach, and the bytes before it."""
    block = int(np.searchsorted(one.totals, budget, side="right"))
    before = int(one.totals[block - 1]) if block else 0
    first = int(one.ends[block - 1]) if block else one.range.start
    if block == len(one.totals):
        return one.range.stop, before
    totals = np.cumsum(_sizes(reader, one.range, first, int(one.ends[block])))
    count = int(np.searchsorted(totals, budget - before, side="right"))
    return first + count, before + (int(totals[count - 1]) if count else 0)


def _size_at(reader: StoreReader, wanted: QueueRange, offset: int) -> int:
    return int(_sizes(reader, wanted, offset, offset + 1)[0])


def _sizes(reader: StoreReader, wanted: QueueRange, start: int, stop: int) -> Sizes:
    parts = [message_sizes(units) for units in reader.units(wanted.topic, wanted.queue_id, start, stop)]
    return np.concatenate(parts)


def _pack(pieces: Sequence[tuple[QueueRange, int]], target: int) -> list[RangePartition]:
    """Neighbours together while they stay within ``target`` bytes."""
    packed: list[RangePartition] = []
    current: list[QueueRange] = []
    filled = 0
    for piece, size in pieces:
        if current and filled + size > target:
            packed.append(RangePartition.of(current, filled))
            current, filled = [], 0
        if current and current[-1][:2] == piece[:2] and current[-1].stop == piece.start:
            current[-1] = current[-1]._replace(stop=piece.stop)
        else:
            current.append(piece)
        filled += size
    if current:
        packed.append(RangePartition.of(current, filled))
    return packed


def limit_records(partitions: Sequence[RangePartition], most: int | None) -> list[RangePartition]:
    """The partitions, those of more than ``most`` offsets cut into pieces of about the same size; None: no limit.

    Queues that are read side by side stay so, unless ``most`` is less than two messages of each.
    """
    if most is None:
        return list(partitions)
    return [piece for partition in partitions for piece in _cut_by_rows(partition, most)]


def _cut_by_rows(partition: RangePartition, most: int) -> Iterator[RangePartition]:
    ranges = partition.ranges
    total = sum(stop - start for _, _, start, stop in ranges)
    if total <= most:
        yield partition
    elif partition.side_by_side and most >= 2 * len(ranges):
        # Each range adds less than one offset to a piece by rounding, so that many less are shared out: at most half.
        count = -(-total // (most - len(ranges) + 1))
        for number in range(count):
            parts = [_share(one, number, count) for one in ranges]
            parts = [part for part in parts if part.start < part.stop]
            if parts:
                more = len(parts) > 1
                yield RangePartition(tuple(parts), side_by_side=more, short=partition.short and more)
    else:
        for pieces in _one_after_the_other(ranges, -(-total // -(-total // most))):
            yield RangePartition(tuple(pieces), short=partition.short and len(pieces) > 1)


def _share(whole: QueueRange, number: int, count: int) -> QueueRange:
    """One of ``count`` even parts of a range."""
    length = whole.stop - whole.start
    return whole._replace(
        start=whole.start + length * number // count, stop=whole.start + length * (number + 1) // count
    )


def _one_after_the_other(ranges: Sequence[QueueRange], size: int) -> Iterator[list[QueueRange]]:
    """Pieces of ``size`` offsets, the last one of the rest."""
    parts: list[QueueRange] = []
    room = size
    for whole in ranges:
        at = whole.start
        while at < whole.stop:
            stop = min(whole.stop, at + room)
            parts.append(whole._replace(start=at, stop=stop))
            room -= stop - at
            at = stop
            if not room:
                yield parts
                parts, room = [], size
    if parts:
        yield parts
