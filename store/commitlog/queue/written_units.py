"""Where the units of a queue's file end, found by a few reads: for all queues of a store, at every opening."""

from __future__ import annotations

from commitlog.files import disk
from commitlog.format.consume_queue_unit import UNIT_SIZE

__all__ = ["written_units"]

# Units that are read at once: a page of them.
_PIECE = 4096 // UNIT_SIZE
# Most queues end near the beginning of a file: the next read is at most so many times as far as the last written unit.
_STRIDE = 8


def written_units(path: str) -> int:
    """How many units a queue's file begins with; what follows them is zero. ``OSError``.

    A search that narrows down on the end; if there are zeros between units, it ends at some of them.
    """
    descriptor = disk.open_file(path)
    try:
        low, high, at = 0, -(-disk.size_of(descriptor) // UNIT_SIZE), 0
        while low < high:
            data = disk.read_at(descriptor, _PIECE * UNIT_SIZE, at * UNIT_SIZE)
            count = -(-len(data.rstrip(b"\0")) // UNIT_SIZE)
            if count:
                low = at + count
            if count < _PIECE:
                high = at + count
            at = min((low + high) // 2, _STRIDE * low)
        return low
    finally:
        disk.close(descriptor)
