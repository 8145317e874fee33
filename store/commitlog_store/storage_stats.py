"""StorageStats: what was asked of object storage."""

from __future__ import annotations

from dataclasses import dataclass


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
