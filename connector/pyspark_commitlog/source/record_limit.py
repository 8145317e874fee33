"""``maxRecordsPerPartition``: cuts partitions that were planned by bytes further, by the number of their offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark_commitlog.source.partitions import QueueRange, RangePartition

__all__ = ["limit_records"]


def limit_records(partitions: Sequence[RangePartition], most: int | None) -> list[RangePartition]:
    """The partitions, those of more than ``most`` offsets cut into pieces of about the same size; None: no limit.

    Queues that are read side by side stay so, unless there are more of them than ``most``.
    """
    if most is None:
        return list(partitions)
    return [piece for partition in partitions for piece in _cut(partition, most)]


def _cut(partition: RangePartition, most: int) -> Iterator[RangePartition]:
    ranges = partition.ranges
    total = sum(stop - start for _, _, start, stop in ranges)
    if total <= most:
        yield partition
    elif partition.side_by_side and most >= len(ranges):
        # Each range adds less than one offset to a piece by rounding, so that many less are shared out.
        count = -(-total // (most - len(ranges) + 1))
        for number in range(count):
            parts = [_share(one, number, count) for one in ranges]
            parts = [part for part in parts if part.start < part.stop]
            if not parts:  # the queues' shares are rounded, all down at first
                continue
            yield RangePartition(tuple(parts), side_by_side=len(parts) > 1, short=partition.short and len(parts) > 1)
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
