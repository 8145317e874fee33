"""PageCache: pages of objects on the local disk, shared by the processes of one host, within a limit of bytes.

::

    <directory>/commitlog-pages/<first two letters of the key>/<key>-<page number>
      the page's bytes | CRC-32 of them and of the name, 4 bytes big-endian | "CLPG"

A key is made of an object's SHA-256, so a page never changes, and archives with the same content share it. A page gets
its name once it is written. It is not synced: one that a power cut has torn fails its CRC, and is fetched again. Pages
are removed oldest first. A cache never fails a read: what the disk refuses is not cached.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import struct
import threading
import time

from commitlog_store.errors import CommitLogError
from commitlog_store.files import disk
from commitlog_store.format.checksum import crc32

_logger = logging.getLogger(__name__)

_DIRECTORY = "commitlog-pages"
_TRAILER = struct.Struct(">I4s")
_MARK = b"CLPG"
_TEMPORARY = ".tmp"
# A page that is being written takes no hour: what is older was left by a process that was killed.
_LEFT_OVER_S = 3600.0
# Pages are removed down to this part of the limit, so that the directory is not listed for each new page.
_KEPT_PART = 0.9
# The directory is listed after so large a part of the limit was written by this process.
_LISTED_PART = 1 / 32
DEFAULT_LIMIT = 10 << 30


class PageCache:
    """The cache in one directory. Any number of threads and processes at a time."""

    def __init__(self, directory: str, limit: int = DEFAULT_LIMIT) -> None:
        """``limit`` is in bytes. ``OSError`` when the directory cannot be made."""
        self._path = os.path.join(directory, _DIRECTORY)
        self._limit = limit
        self._lock = threading.Lock()
        # Bytes that this process has written since it last listed the directory; it does so at its first page.
        self._written = limit
        self._warned = False
        for path in (directory, self._path):
            with contextlib.suppress(FileExistsError):
                disk.make_directory(path)

    def has(self, key: str, number: int) -> bool:
        """Whether it seems to have a page: ``read_into`` may find it damaged, or gone."""
        return disk.is_file(self._path_of(key, number))

    def read_into(self, data: memoryview, key: str, number: int) -> bool:
        """Fill ``data``, which is as long as the page, with its bytes; False without it."""
        path = self._path_of(key, number)
        try:
            descriptor = disk.open_file(path)
            try:
                length = disk.read_into(descriptor, data, 0)
                trailer = disk.read_at(descriptor, _TRAILER.size + 1, length)
            finally:
                disk.close(descriptor)
        except (OSError, CommitLogError):
            return False
        if len(trailer) == _TRAILER.size and trailer == _trailer_of(key, number, data):
            return True
        _logger.warning("%s is damaged: it is fetched again.", path)
        with contextlib.suppress(OSError):
            disk.unlink(path)
        return False

    def put(self, key: str, number: int, data: bytes | memoryview) -> None:
        path = self._path_of(key, number)
        temporary = f"{path}-{secrets.token_hex(8)}{_TEMPORARY}"
        try:
            self._make_room(len(data))
            self._write(temporary, data, _trailer_of(key, number, data))
            disk.rename(temporary, path)
        except (OSError, CommitLogError) as error:
            with contextlib.suppress(OSError):
                disk.unlink(temporary)
            if not self._warned:
                self._warned = True
                _logger.warning("Pages of archives are not kept in %s: %s", self._path, error)

    def _path_of(self, key: str, number: int) -> str:
        return os.path.join(self._path, key[:2], f"{key}-{number}")

    def _write(self, path: str, data: bytes | memoryview, trailer: bytes) -> None:
        try:
            descriptor = disk.create_file(path)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                disk.make_directory(os.path.dirname(path))
            descriptor = disk.create_file(path)
        try:
            disk.write_at(descriptor, data, 0)
            disk.write_at(descriptor, trailer, len(data))
        finally:
            disk.close(descriptor)

    def _make_room(self, size: int) -> None:
        with self._lock:
            self._written += size
            if self._written < self._limit * _LISTED_PART:
                return
            self._written = 0
        self.evict()

    def evict(self) -> None:
        """Remove the oldest pages beyond the limit, and what killed processes have left."""
        found: list[tuple[float, int, str]] = []
        for name in disk.list_directories(self._path):
            directory = os.path.join(self._path, name)
            for page in disk.list_names(directory):
                path = os.path.join(directory, page)
                with contextlib.suppress(OSError):  # another process has removed it
                    found.append((disk.modified_at(path), disk.size_at(path), path))
        left_over = time.time() - _LEFT_OVER_S
        total = sum(size for _, size, _ in found)
        # What may be written before the next look is within the limit, too.
        most = self._limit * (1 - _LISTED_PART)
        is_full, kept = total > most, most * _KEPT_PART
        for modified, size, path in sorted(found):
            if (path.endswith(_TEMPORARY) and modified < left_over) or (is_full and total > kept):
                with contextlib.suppress(OSError):
                    disk.unlink(path)
                total -= size


def _trailer_of(key: str, number: int, data: bytes | memoryview) -> bytes:
    return _TRAILER.pack(crc32(data, crc32(f"{key}-{number}".encode())), _MARK)
