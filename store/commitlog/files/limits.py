"""Limits of the machine: free disk space, and the number of open files."""

from __future__ import annotations

import os
import sys

__all__ = ["free_bytes", "free_ratio", "most_open_files", "used_ratio"]


def free_ratio(path: str) -> float:
    """The share of the file system's space that is free for this user: 0.0 to 1.0."""
    found = os.statvfs(path)
    return found.f_bavail / found.f_blocks if found.f_blocks else 1.0


def used_ratio(path: str) -> float:
    """The share of the file system's space that is used, of what is used or free for this user: 0.0 to 1.0.

    As RocketMQ counts (``UtilAll.getDiskPartitionSpaceUsedPercent``), rounded up to a percent.
    """
    found = os.statvfs(path)
    used = found.f_blocks - found.f_bfree
    total = used + found.f_bavail
    return -(-100 * used // total) / 100 if total else 0.0


def free_bytes(path: str) -> int:
    """The bytes of the file system that are free for this user; as many as can be where it does not say."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize if found.f_blocks else sys.maxsize


def most_open_files() -> int:
    """The most files that this process may have open at once."""
    import resource  # on platforms without it, stores are not written either

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit
