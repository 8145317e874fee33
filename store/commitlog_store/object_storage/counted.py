"""StorageCounter: what a client asks of object storage; ``counted_storage``: what all clients made in a block ask."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from commitlog_store.storage_stats import StorageStats


class StorageCounter:
    """Adds up what one client of an object store asks, for any number of threads; and the counter around it, too."""

    def __init__(self) -> None:
        """``counted_storage`` around this call counts the same."""
        self._around = _around.get()
        self._lock = threading.Lock()
        self._stats = StorageStats()

    @property
    def stats(self) -> StorageStats:
        return self._stats

    def add(self, some: StorageStats) -> None:
        with self._lock:
            self._stats += some
        if self._around is not None:
            self._around.add(some)


_around: ContextVar[StorageCounter | None] = ContextVar("counted_storage", default=None)


@contextmanager
def counted_storage() -> Iterator[StorageCounter]:
    """Count what clients that are made within the block ask of object storage, also of one whose maker fails."""
    counter = StorageCounter()
    before = _around.set(counter)
    try:
        yield counter
    finally:
        _around.reset(before)
