"""What was left in the staging area by applications that do not come again.

What is staged for an application goes with its next commit. When its driver dies and nobody starts it again, or it was
a write without a name, which commits once, nobody comes who would know that it is over. So its age decides.
"""

from __future__ import annotations

import contextlib
import os

from commitlog.errors import CommitLogError
from commitlog.files import disk
from commitlog.log.staging import remove_application
from commitlog.paths import STAGING

__all__ = ["LEFT_OVER_AFTER_SECONDS", "remove_leftovers"]

# Far longer than the tasks of a batch leave its directory alone: seven days.
LEFT_OVER_AFTER_SECONDS = 7 * 24 * 3600
# The versions' directories, and the files in them; what lies deeper, nobody staged.
_DEPTH = 2


def remove_leftovers(store_path: str, *, now: float) -> None:
    """Remove what applications have staged and left alone for seven days before ``now`` (seconds since the epoch).

    For the owner of the store. Nothing is raised, and what cannot be removed stays; nothing is touched through a
    symbolic link (invariant 10). Were such a batch to be committed after all, that would find ``StagingLost`` and write
    nothing.
    """
    staging = os.path.join(store_path, STAGING)
    with contextlib.suppress(OSError, CommitLogError):
        if disk.is_symlink(staging):
            return
        for name in disk.list_names(staging):
            _remove_if_left(store_path, name, before=now - LEFT_OVER_AFTER_SECONDS)


def _remove_if_left(store_path: str, name: str, *, before: float) -> None:
    directory = os.path.join(store_path, STAGING, name)
    with contextlib.suppress(OSError, CommitLogError):  # of one application; the others are looked at all the same
        if not disk.is_symlink(directory) and _last_change(directory, _DEPTH) < before:
            remove_application(store_path, name)


def _last_change(directory: str, depth: int) -> float:
    """When anything so deep in it was written last, links not followed; seconds since the epoch."""
    found = disk.modified_at(directory)
    for name in disk.list_names(directory):
        inner = os.path.join(directory, name)
        is_own = depth > 1 and disk.is_directory(inner) and not disk.is_symlink(inner)
        found = max(found, _last_change(inner, depth - 1) if is_own else disk.modified_at(inner))
    return found
