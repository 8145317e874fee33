"""LineLog: a file of lines; each line is on the device before the call that appends it returns.

A file that has reached its bound gets the name ``PATH.1``, the one before it ``PATH.2``, and so on; the oldest goes.
"""

from __future__ import annotations

import os
import threading
from itertools import pairwise

from commitlog_store.errors import TargetFailed
from commitlog_store.files import disk


class LineLog:
    """Any number of threads of one process. The file is opened for each line, so it may be moved away at any time."""

    def __init__(self, path: str, *, largest: int, kept: int) -> None:
        """A file of ``largest`` bytes gets no further line; ``kept`` older ones stay beside it."""
        self.path = path
        self._largest, self._older = largest, [f"{path}.{number}" for number in range(1, kept + 1)]
        self._lock = threading.Lock()

    def append(self, line: bytes) -> None:
        """Append a line, without its end. A line that a crash has torn stays by itself.

        ``TargetFailed``, and then the line may be in the file, or a part of it; ``StoreAccessDenied``; ``NotAStore``
        for anything but a file.
        """
        try:
            with self._lock:
                self._append(line)
        except OSError as error:
            raise TargetFailed("append to", path=self.path, cause=error) from error

    def _append(self, line: bytes) -> None:
        if disk.file_size(self.path) >= self._largest:
            self._put_aside()
        is_new = not disk.exists(self.path)
        descriptor = disk.create_file(self.path) if is_new else disk.open_for_writing(self.path)
        try:
            end = disk.size_of(descriptor)
            is_torn = end > 0 and disk.read_at(descriptor, 1, end - 1) != b"\n"
            disk.write_at(descriptor, (b"\n" if is_torn else b"") + line + b"\n", end)
            disk.sync(descriptor)
        finally:
            disk.close(descriptor)
        if is_new:
            disk.sync_directory(os.path.dirname(self.path))

    def _put_aside(self) -> None:
        names = [self.path, *self._older]
        for newer, older in reversed(list(pairwise(names))):
            if disk.exists(newer):
                disk.rename(newer, older)
