"""Uploads of an archiver: objects named by their content, skipped where they are there already, at a limited rate."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from commitlog_store.archive.layout import object_name
from commitlog_store.archive.manifest import ObjectRef
from commitlog_store.errors import ArchiveFailed
from commitlog_store.format.checksum import crc32
from commitlog_store.object_storage.checked_pages import checked_pages
from commitlog_store.object_storage.object_store import ObjectStore
from commitlog_store.progress import Progress

GRACE_S = 24 * 3600
"""Objects that no manifest names are deleted (``gc``) when they are as old."""

# An object that is found is relied on if it is younger, and only by a manifest that is committed so soon after it was
# found. Together less than GRACE_S: the rest is for clocks that differ.
_YOUNG_S = 6 * 3600
_LONGEST_STEP_S = 12 * 3600
_MS = 1000


class Pace:
    """Limits a stream of bytes to a rate, over the time since it began."""

    def __init__(
        self,
        max_rate: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``max_rate`` in bytes a second; 0 for no limit."""
        self._max_rate = max_rate
        self._clock = clock
        self._sleep = sleep
        self._free_at = 0.0

    def take(self, size: int) -> None:
        """Wait until so many bytes may go."""
        if not self._max_rate:
            return
        now = self._clock()
        if self._free_at > now:
            self._sleep(self._free_at - now)
        self._free_at = max(self._free_at, now) + size / self._max_rate


class Uploads:
    """Puts objects below one prefix. ``uploaded`` counts the bytes."""

    def __init__(self, objects: ObjectStore, pace: Pace, progress: Progress | None = None) -> None:
        self.uploaded = 0
        self._objects = objects
        self._pace = pace
        self._progress = progress

    def too_old(self, began: float) -> bool:
        """Whether objects that were found since then (monotonic time) may have been deleted: nothing named them."""
        return time.monotonic() - began > _LONGEST_STEP_S

    def log_file(self, ref: ObjectRef, pieces: Iterable[bytes]) -> None:
        """Put the object of a log file, in parts, unless it is there."""
        self._put(ref, self._counted(pieces, ref.size))

    def put(self, kind: str, offset: int, parts: Sequence[bytes | memoryview], *, checked: bool = False) -> ObjectRef:
        """Put an object of a kind, of parts in memory, unless it is there; its name, size and checksums.

        ``checked``: in pages with checksums.
        """
        if checked:
            parts = list(checked_pages(parts))
        sha256, crc, size = hashlib.sha256(), 0, 0
        for part in parts:
            sha256.update(part)
            crc = crc32(part, crc)
            size += len(part)
        digest = sha256.hexdigest()
        ref = ObjectRef(
            name=object_name(kind, offset, digest), size=size, crc32=crc, sha256=digest, checked_pages=checked
        )
        self._put(ref, parts)
        return ref

    def _put(self, ref: ObjectRef, parts: Iterable[bytes | memoryview]) -> None:
        found = self._objects.head(ref.name)
        if found is not None and found.size == ref.size and time.time() - found.modified_ms / _MS < _YOUNG_S:
            self._objects.sync(ref.name)  # what put it may have been killed before it did
            return
        self._objects.put(ref.name, parts, ref.size)
        self.uploaded += ref.size
        found = self._objects.head(ref.name)
        if found is None or found.size != ref.size:
            there = "it is not there" if found is None else f"it has {found.size} bytes"
            raise ArchiveFailed(
                f"{self._objects}/{ref.name} was put with {ref.size} bytes, and {there}. Try again.", name=ref.name
            )

    def _counted(self, pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
        done = 0
        for piece in pieces:
            self._pace.take(len(piece))
            yield piece
            done += len(piece)
            if self._progress is not None:
                self._progress(done, size)
