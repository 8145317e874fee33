"""TemporaryFiles: files of a directory that exists as long as the object."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref

from commitlog_store.files import disk
from commitlog_store.files.whole_file import make_file_once


class TemporaryFiles:
    """A directory of its own, readable for this user alone, which ``close`` or the process's end removes.

    A process that was forked from this one does not remove it. Nor does a signal that ends the process.
    """

    def __init__(self) -> None:
        """``OSError``."""
        self.path = tempfile.mkdtemp(prefix="commitlog-")
        self._files: list[str] = []
        self._remove = weakref.finalize(self, _remove, self.path, os.getpid())

    def add(self, folder: str, name: str, data: bytes) -> None:
        """Write a new file, below a folder. ``OSError``."""
        directory = os.path.join(self.path, folder)
        if not disk.is_directory(directory):
            disk.make_directory(directory)
        path = os.path.join(directory, name)
        make_file_once(path, data)
        self._files.append(path)

    def are_whole(self) -> bool:
        """Whether all files exist: the system may remove old ones from its temporary directory."""
        return all(map(disk.is_file, self._files))

    def close(self) -> None:
        self._remove()


def _remove(path: str, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)
