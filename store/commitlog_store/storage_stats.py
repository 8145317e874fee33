"""StorageStats: what was asked of object storage, and StorageCounter, which adds it up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

__all__ = ["StorageCounter", "StorageStats", "counted_storage"]


@dataclass(frozen=True, slots=True)
class StorageStats:
    """What a reader has asked of object storage so far: all 0 for one that reads none.

    ``requests`` are those with answers, ``bytes_fetched`` the bytes of these, ``bytes_from_cache`` what came from the
    cache on the local disk in their place, and ``repeated`` attempts that broke off and were made again.
    """

    requests: int = 0
    bytes_fetched: int = 0
    bytes_from_cache: int = 0
    repeated: int = 0

    def __add__(self, more: StorageStats) -> StorageStats:
        return StorageStats(
            self.requests + more.requests,
            self.bytes_fetched + more.bytes_fetched,
            self.bytes_from_cache + more.bytes_from_cache,
            self.repeated + more.repeated,
        )


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
        """Count some more."""
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
