"""What the machine leaves a store: space, and how many files may be open."""

from __future__ import annotations

import os
import sys

__all__ = ["free_ratio", "most_open_files"]


def free_ratio(path: str) -> float:
    """Which part of the file system's space is free for this user: 0.0 to 1.0."""
    found = os.statvfs(path)
    return found.f_bavail / found.f_blocks if found.f_blocks else 1.0


def most_open_files() -> int:
    """How many files this process may have open at once."""
    import resource  # where there is none, no store is written either

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit
