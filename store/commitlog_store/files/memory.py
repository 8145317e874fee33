"""Memory pages: locks them against swapping, has the kernel read them ahead, faults them in and gives them back."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap

import numpy as np
import numpy.typing as npt

# Linux's number; Python's mmap module has no name for it.
_MADV_POPULATE_READ = 22
# Its errors where touching a page would kill the process: beyond the end, or a page that the memory has lost.
_UNREADABLE = (errno.EFAULT, getattr(errno, "EHWPOISON", errno.EFAULT))


def lock_memory(view: memoryview) -> bool:
    """``mlock``; False where RLIMIT_MEMLOCK does not allow it, and then the memory works all the same."""
    libc = ctypes.CDLL(None, use_errno=True)
    address = ctypes.addressof(ctypes.c_char.from_buffer(view))
    return bool(libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(view))) == 0)


def will_need(mapping: mmap.mmap) -> None:
    """Advise the kernel that all of a mapping will be used soon. A refusal does no harm."""
    if hasattr(mmap, "MADV_WILLNEED"):
        with contextlib.suppress(OSError):
            mapping.madvise(mmap.MADV_WILLNEED)


def populate_pages(mapping: mmap.mmap, start: int, stop: int) -> bool:
    """Fault in ``[start, stop)`` in one call, which is cheaper than page by page; False where that call does not exist
    (before Linux 5.14). ``OSError`` (EFAULT) where a page is not available: touching it would kill the process."""
    first = start - start % mmap.PAGESIZE
    try:
        mapping.madvise(_MADV_POPULATE_READ, first, stop - first)
    except OSError as error:
        if error.errno in _UNREADABLE:
            raise
        # Not every kernel has it, and not every sandbox allows it; page by page works everywhere.
        return False
    return True


def zeroed_bytes(size: int) -> npt.NDArray[np.uint8]:
    """So many zero bytes, of which no page takes memory until it is written."""
    return np.frombuffer(mmap.mmap(-1, max(size, 1)), np.uint8, size)


def drop_pages(mapping: mmap.mmap, start: int, stop: int) -> None:
    """Give back the pages of ``[start, stop)``: they stay in the page cache, but no longer count as this process's.

    The kernel may refuse, as it does for locked pages, which does no harm.
    """
    first = start - start % mmap.PAGESIZE
    if hasattr(mmap, "MADV_DONTNEED"):
        with contextlib.suppress(OSError):
            mapping.madvise(mmap.MADV_DONTNEED, first, stop - first)


def return_free_memory() -> None:
    """Give memory that was freed back to the system (``malloc_trim``), where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
