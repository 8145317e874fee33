"""Where the units of a queue's file end.

``written_units`` narrows down on the end with a few reads, whatever the file's size. Zeros between units can mislead
it: it is for a caller that compares the result with another one, or knows of units that the search can begin after.
``last_written`` cannot be misled. In a file without such zeros both find the same end.
"""

from __future__ import annotations

from commitlog_store.files import disk
from commitlog_store.format.consume_queue_unit import UNIT_SIZE

# Units that are read at once: a page of them.
_PIECE = 4096 // UNIT_SIZE
# Most queues end near the beginning of a file: the next read is at most so many times as far as the last written unit.
_STRIDE = 8
_ZEROS = bytes(64 << 10)


def written_units(descriptor: int, first: int = 0) -> int:
    """How many units a queue's file begins with; what follows them is zero. ``OSError``.

    ``first`` of them are known to be written. A search that narrows down on the end; if there are zeros between units,
    it ends at some of them.
    """
    low, high, at = first, -(-disk.size_of(descriptor) // UNIT_SIZE), first
    while low < high:
        data = disk.read_at(descriptor, _PIECE * UNIT_SIZE, at * UNIT_SIZE)
        count = -(-len(data.rstrip(b"\0")) // UNIT_SIZE)
        if count:
            low = at + count
        if count < _PIECE:
            high = at + count
        at = min((low + high) // 2, _STRIDE * low)
    return low


def last_written(descriptor: int) -> int:
    """How many units a queue's file has up to the last one that is not zero, whatever damage has left before it.

    The end of a sparse file's data is read, and all zeros after the last unit of a file without holes. ``OSError``.
    """
    for first, last in reversed(disk.data_extents(descriptor, 0, disk.size_of(descriptor))):
        stop = last
        while stop > first:
            start = max(stop - (len(_ZEROS) if stop < last else _PIECE * UNIT_SIZE), first)
            data = disk.read_at(descriptor, stop - start, start)
            if data != _ZEROS[: len(data)]:
                return -(-(start + len(data.rstrip(b"\0"))) // UNIT_SIZE)
            stop = start
    return 0
