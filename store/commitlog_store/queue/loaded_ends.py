"""Loads the saved ends of a store that may be used now: docs/decisions/0038-saved-ends.md says which.

The content of the file that was read last is kept, for the next reader that this process opens.
"""

from __future__ import annotations

import os
import struct
import time
from typing import NamedTuple

from commitlog_store.errors import CommitLogError
from commitlog_store.files import disk
from commitlog_store.log.store_checkpoint import mark_if_readable
from commitlog_store.paths import CHECKPOINT, SAVED_ENDS
from commitlog_store.queue.saved_ends import SavedEnds, named_generation, proving_ns

_LARGEST = 1 << 30


class _Kept(NamedTuple):
    """What was read last, and of which file: the tasks of a Spark query each open the store that the one before has
    read."""

    path: str
    stamp: tuple[int, ...]
    saved: SavedEnds


_kept: _Kept | None = None


def load_saved_ends(store_path: str, known: SavedEnds | None = None) -> SavedEnds | None:
    """The saved ends of a store, if they may be used now: see the decision. None otherwise, whatever the reason.

    ``known`` is returned if it is of the same generation: no owner has changed a queue since it was loaded.
    """
    if os.name != "posix":
        return None  # what the other system calls st_ctime is the time at which a file was made
    try:
        generation = named_generation(store_path)
        if not generation:
            return None
        found = known
        if found is None or found.generation != generation:
            found = _read(store_path)
        mark = mark_if_readable(os.path.join(store_path, CHECKPOINT))
    except (OSError, CommitLogError, ValueError, struct.error):
        return None
    if mark is None or found.generation != generation or mark.saved_ends != generation:
        return None
    # After a power cut a file may have newer bytes than its times say: its owner has not closed the store.
    return found if mark.closed or found.is_of_this_boot else None


def _read(store_path: str) -> SavedEnds:
    """The content of the file now. ``OSError``, ``CommitLogError``, ``ValueError``."""
    global _kept  # noqa: PLW0603  # replaced as a whole
    path, now_ns = os.path.join(store_path, SAVED_ENDS), time.time_ns()
    file, kept = disk.stamp(path), _kept
    if file is None:
        raise ValueError("no file of saved ends")
    stamp = file.st_dev, file.st_ino, file.st_size, file.st_ctime_ns
    if kept is not None and (kept.path, kept.stamp) == (path, stamp):
        return kept.saved.again()
    found = SavedEnds(store_path, disk.read_file(path, _LARGEST))
    # Only while a later change has another time.
    _kept = _Kept(path, stamp, found.again()) if proving_ns(file, now_ns, file.st_dev) else None
    return found
