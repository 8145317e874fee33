"""StoreWriter: the store that a server owns, the sessions and staged files of clients that write to it."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable

from commitlog_store.batch.staging import staged_bytes
from commitlog_store.batch_id import BatchId
from commitlog_store.engine.running_state import RunningFlags
from commitlog_store.errors import DiskFull, StagingLost
from commitlog_store.files.limits import disk_size
from commitlog_store.paths import STAGING
from commitlog_store.serve.sessions import Sessions
from commitlog_store.store import MessageStore

_MOST_FORGOTTEN = 10_000


class ForgottenWrites:
    """Writes without a name that the ledger does not know any more: a call for one comes late, and is not to be done.

    The last 10,000, until the server stops. Any number of threads.
    """

    def __init__(self, most: int = _MOST_FORGOTTEN) -> None:
        self._most = most
        self._lock = threading.Lock()
        # In the order in which they were forgotten.
        self._ids: dict[str, None] = {}

    def add(self, batch: BatchId) -> None:
        with self._lock:
            self._ids[batch.app_id] = None
            if len(self._ids) > self._most:
                del self._ids[next(iter(self._ids))]

    def refuse(self, batch: BatchId) -> None:
        """``StagingLost`` for a batch of a forgotten write."""
        if batch.app_id in self._ids:
            raise StagingLost(
                f"The write {batch.app_id!r} has ended, and this call came late: nothing was written. Begin another "
                "write.",
                path="",
            )


class StoreWriter:
    """What calls that write work with."""

    def __init__(self, store: MessageStore, *, most_staged: int | None = None) -> None:
        """``most_staged``: see ``StagingSpace``."""
        self.store = store
        self.staging = StagingSpace(store, most_staged)
        self.sessions = Sessions()
        self.forgotten = ForgottenWrites()


# Without a number, this part of the disk's size.
_PART_OF_DISK = 0.25
# A file costs at least so much.
_LEAST_SIZE = 4096
# So long a count is used that was made because the limit was reached.
_COUNT_SECONDS = 1.0


class StagingSpace:
    """Bounds what clients have staged and not committed, and allows nothing on a disk that is nearly full.

    A batch that is given up stays in ``staging/`` for up to seven days. Without a limit, a client that may write could
    fill the disk, and with it stop all puts, or have retention delete messages. Any number of threads.

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
