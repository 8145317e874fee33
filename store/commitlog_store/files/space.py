"""Space on the device for a file that is written from its start on: allocated in steps, ahead of the writer.

A file has its full size from the beginning, as RocketMQ's files have, and is a hole after the allocated position. A
write into a hole on a full disk is an error half-way, and through a mapping it kills the process (SIGBUS). So nothing
is written after the allocated position, and a step that finds no space leaves the file as it was.

docs/decisions/0018-allocation-in-steps.md explains the sizes: all that is allocated ahead of the data of a store, of
RocketMQ's default sizes, is at most 64 MiB.
"""

from __future__ import annotations

import contextlib
import errno
import mmap

from commitlog_store.files import disk

# The system's errors for a full disk or an exhausted quota.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
# Its errors where a file system has no holes.
_NO_HOLES = (errno.EOPNOTSUPP, errno.ENOSYS)

# The space of a new file, and of a write that nothing was allocated for.
FIRST_STEP = 4 << 20
# The largest step ahead. The next one is ordered when less than this is left.
LARGEST_STEP = 16 << 20


def first_step(size: int) -> int:
    """The allocated position of a new file of that size."""
    return min(size, FIRST_STEP)


def needed(end: int, size: int) -> int:
    """The position up to which to allocate for a write that ends at ``end`` and cannot wait."""
    return min(size, -(-end // FIRST_STEP) * FIRST_STEP)


def next_step(allocated: int, size: int) -> int:
    """The position up to which to allocate ahead: twice as far, but by no more than the largest step."""
    return min(size, allocated + min(max(allocated, FIRST_STEP), LARGEST_STEP))


def order_from(allocated: int, size: int) -> int:
    """The position after which a writer orders the next step; ``size`` when all is allocated."""
    return size if allocated >= size else allocated - min(LARGEST_STEP, allocated // 2)


def page_before(position: int) -> int:
    """The start of the page in which a position lies."""
    return position - position % mmap.PAGESIZE


def page_after(position: int) -> int:
    """The start of the first page that begins at a position or after it."""
    return -(-position // mmap.PAGESIZE) * mmap.PAGESIZE


def allocate(descriptor: int, start: int, stop: int, *, unwritten: int) -> None:
    """Allocate ``[start, stop)``; without space for all of it, nothing. ``OSError``.

    From ``unwritten`` on, the file holds no bytes of value.
    """
    try:
        disk.allocate(descriptor, start, stop - start)
    except OSError as error:
        if error.errno in NO_SPACE:
            # Some file systems keep the part that they found space for, which others need more.
            first = page_after(max(start, unwritten))
            with contextlib.suppress(OSError):
                if first < stop:
                    disk.punch_hole(descriptor, first, stop - first)
        raise


def release(descriptor: int, start: int, stop: int) -> bool:
    """Make ``[start, stop)`` a hole; False on a file system without holes. ``OSError``."""
    try:
        disk.punch_hole(descriptor, start, stop - start)
    except OSError as error:
        if error.errno not in _NO_HOLES:
            raise
        return False
    return True
