"""StagingSpace: how many bytes clients may have staged that are not committed, and none on a disk that is nearly full.

A batch that is given up stays in ``staging/`` for up to seven days. Without a limit, a client that may write could fill
the disk, and with it stop all puts, or have retention delete messages.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable

from commitlog_store.batch.staging import staged_bytes
from commitlog_store.engine.running_state import RunningFlags
from commitlog_store.errors import DiskFull
from commitlog_store.files.limits import disk_size
from commitlog_store.paths import STAGING
from commitlog_store.store import MessageStore

# Without a number, this part of the disk's size.
_PART_OF_DISK = 0.25
# A file costs at least so much.
_LEAST_SIZE = 4096
# So long a count is used that was made because the limit was reached.
_COUNT_SECONDS = 1.0


class StagingSpace:
    """Counts what is staged. Any number of threads.

    ``most`` is in bytes; None for a quarter of the disk. The count only grows, and the files are counted again when it
    has reached the limit.
    """

    def __init__(
        self, store: MessageStore, most: int | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._most = int(disk_size(store.path) * _PART_OF_DISK) if most is None else most
        self._clock = clock
        self._lock = threading.Lock()
        self._staged: int | None = None
        # None: files may have been removed since.
        self._counted_at: float | None = None

    def take(self, size: int, *, is_new: bool = False) -> None:
        """Count ``size`` bytes that are about to be staged, in a new file or another one. ``DiskFull``."""
        if self._store.flags & RunningFlags.DISK_FULL:
            raise self._full("the disk is nearly full, and the store rejects puts, too")
        wanted = max(size, _LEAST_SIZE) if is_new else size
        with self._lock:
            if self._staged is None or (self._staged + wanted > self._most and self._may_count()):
                self._staged, self._counted_at = staged_bytes(self._store.path, _LEAST_SIZE), self._clock()
            if self._staged + wanted > self._most:
                raise self._full(
                    f"batches that are not committed hold {self._staged} bytes, and {self._most} is the limit "
                    "(--max-staged)"
                )
            self._staged += wanted

    def note_removed(self) -> None:
        """Staged files were removed: the next count is due whenever the limit is reached."""
        self._counted_at = None

    def _may_count(self) -> bool:
        return self._counted_at is None or self._clock() >= self._counted_at + _COUNT_SECONDS

    def _full(self, why: str) -> DiskFull:
        return DiskFull(
            "stage a batch in",
            path=os.path.join(self._store.path, STAGING),
            cause=OSError(errno.ENOSPC, why),
            advice="Nothing of it was written. The commit of a batch frees its space; what an application has given up "
            "goes with its next commit, or when its directory there is removed.",
        )
