"""TemporaryFiles: files of a directory that exists as long as the object."""

from __future__ import annotations

import os
import tempfile

from commitlog_store.files import disk
from commitlog_store.files.whole_file import make_file_once


class TemporaryFiles:
    """A directory of its own, readable for this user alone, which ``close`` or the process's end removes."""

    def __init__(self) -> None:
        """``OSError``."""
        self._directory = tempfile.TemporaryDirectory(prefix="commitlog-")
        self.path = self._directory.name

    def add(self, folder: str, name: str, data: bytes) -> None:
        """Write a new file, below a folder. ``OSError``."""
        directory = os.path.join(self.path, folder)
        if not disk.is_directory(directory):
            disk.make_directory(directory)
        make_file_once(os.path.join(directory, name), data)

    def close(self) -> None:
        self._directory.cleanup()
