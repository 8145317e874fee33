"""Memory pages: locks them, has the kernel read them ahead, faults them in, gives them back; keeps freed memory."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import mmap
import os

import numpy as np
import numpy.typing as npt

# Linux's number; Python's mmap module has no name for it.
_MADV_POPULATE_READ = 22
# Its errors where touching a page would kill the process: beyond the end, or a page that the memory has lost.
_UNREADABLE = (errno.EFAULT, getattr(errno, "EHWPOISON", errno.EFAULT))
# glibc learns from no piece over 32 MiB, with its header.
_LARGEST_REUSED = (32 << 20) - (64 << 10)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def lock_memory(view: memoryview) -> bool:
    """``mlock``; False where RLIMIT_MEMLOCK does not allow it, and then the memory works all the same."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(view))
    return bool(_libc().mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(view))) == 0)


def will_need(mapping: mmap.mmap) -> None:
    """Advise the kernel that all of a mapping will be used soon. A refusal does no harm."""
    if hasattr(mmap, "MADV_WILLNEED"):
        with contextlib.suppress(OSError):
            mapping.madvise(mmap.MADV_WILLNEED)


def populate_pages(mapping: mmap.mmap, start: int, stop: int) -> bool:
    """Fault in ``[start, stop)`` in one call, which is cheaper than page by page; False where that call does not exist
    (before Linux 5.14). ``OSError`` (EFAULT) where a page is not available: touching it would kill the process."""
    first = start - start % mmap.PAGESIZE
    pages = np.frombuffer(mapping, np.uint8, stop - first, first)
    # Not by ``mmap.madvise``, which holds the interpreter's lock while the device is read.
    if _libc().madvise(ctypes.c_void_p(pages.ctypes.data), ctypes.c_size_t(stop - first), _MADV_POPULATE_READ) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNREADABLE:
        raise OSError(number, os.strerror(number))
    # Not every kernel has it, and not every sandbox allows it; page by page works everywhere.
    return False


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


@functools.cache
def keep_freed_memory() -> None:
    """Have the C library keep freed memory for the next blocks, up to 64 MiB in each heap (threads have their own).

    glibc gives freed memory back to the system beyond twice the largest piece that it ever saw freed, and each page of
    the next piece is then faulted in again. So one large piece is freed, of which no page was touched. It has no effect
    where the user has chosen limits (``MALLOC_TRIM_THRESHOLD_``), nor in other C libraries.
    """
    with contextlib.suppress(MemoryError):
        np.empty(_LARGEST_REUSED, np.uint8)


def return_free_memory() -> None:
    """Give memory that was freed back to the system (``malloc_trim``), where the C library can."""
    trim = getattr(_libc(), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
