"""StoreWriter: the store that a server owns, the sessions of the clients that write to it, and forgotten writes."""

from __future__ import annotations

import threading

from commitlog_store.batch_id import BatchId
from commitlog_store.errors import StagingLost
from commitlog_store.serve.sessions import Sessions
from commitlog_store.serve.staging_space import StagingSpace
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
