"""Limits of the machine: how full its disks are, and the number of open files."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from typing import NamedTuple


class DiskUse(NamedTuple):
    """How full a disk is: the path by which it was found, and the share that is used, 0.0 to 1.0."""

    path: str
    used: float


def fullest_disk(paths: Iterable[str]) -> DiskUse:
    """The fullest one of the disks of these paths; a path that does not exist is left out. ``OSError``."""
    found = DiskUse("", 0.0)
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            used = _used_ratio(path)
            if used > found.used or not found.path:
                found = DiskUse(path, used)
    return found


def _used_ratio(path: str) -> float:
    """The share of the file system's space that is used, of what is used or free for this user.

    Blocks that are reserved for root are neither, as in ``df``. As RocketMQ counts
    (``UtilAll.getDiskPartitionSpaceUsedPercent``), rounded up to a percent.
    """
    found = os.statvfs(path)
    used = found.f_blocks - found.f_bfree
    total = used + found.f_bavail
    return -(-100 * used // total) / 100 if total else 0.0


def used_bytes(path: str) -> int:
    """The bytes of the file system that are used, as RocketMQ counts a broker's storage. ``OSError``."""
    found = os.statvfs(path)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def disk_size(path: str) -> int:
    """The bytes of the whole file system; as many as can be where it does not say."""
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize or sys.maxsize


def free_bytes(path: str) -> int:
    """The bytes of the file system that are free for this user; as many as can be where it does not say."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize if found.f_blocks else sys.maxsize


def allow_most_open_files() -> None:
    """Raise this process's limit of open files to what the system lets it have."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # macOS refuses what it calls unlimited.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def most_open_files() -> int:
    """The most files that this process may have open at once."""
    import resource  # on platforms without it, stores are not written either

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit
