"""Where the units of a queue's file end, found by a read or two: for all queues of a store, at every opening."""

from __future__ import annotations

from commitlog.files import disk
from commitlog.format.consume_queue_unit import UNIT_SIZE

__all__ = ["written_units"]

# Units that are read at once: more than a page, the least part of a file that is not a hole.
_PIECE = 4096 // UNIT_SIZE + 2


def written_units(path: str) -> int:
    """How many units a queue's file begins with; what follows them is zero. ``OSError``.

    In a sparse file the last bytes before its hole are read first, and hold the end. In others it is found by
    bisection, which ends at some zeros if there are several stretches of them.
    """
    descriptor = disk.open_file(path)
    try:
        extents = disk.data_extents(descriptor, 0, disk.size_of(descriptor))
        low, high = 0, -(-extents[-1][1] // UNIT_SIZE) if extents else 0
        at = max(high - _PIECE, 0)
        while low < high:
            data = disk.read_at(descriptor, _PIECE * UNIT_SIZE, at * UNIT_SIZE)
            count = -(-len(data.rstrip(b"\0")) // UNIT_SIZE)
            if count:
                low = at + count
            if count < _PIECE:
                high = at + count
            at = (low + high) // 2
        return low
    finally:
        disk.close(descriptor)
