"""Memory that stays in memory: locked against being swapped out, read ahead by the kernel."""

from __future__ import annotations

import ctypes
import mmap

__all__ = ["lock_memory", "will_need"]


def lock_memory(view: memoryview) -> bool:
    """``mlock``; False where RLIMIT_MEMLOCK does not allow it, and then the memory works all the same."""
    libc = ctypes.CDLL(None, use_errno=True)
    address = ctypes.addressof(ctypes.c_char.from_buffer(view))
    return bool(libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(view))) == 0)


def will_need(mapping: mmap.mmap) -> None:
    """Tell the kernel that all of a mapping will be used soon."""
    if hasattr(mmap, "MADV_WILLNEED"):
        mapping.madvise(mmap.MADV_WILLNEED)
