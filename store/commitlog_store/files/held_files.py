"""HeldFiles: files of a directory that is in memory alone, and ends with the object or the process, however that ends.

``disk.read_file`` reads them by their paths. No other call knows them: for the operating system, nothing is there.
"""

from __future__ import annotations

import itertools
import os
import weakref

# The character that paths of such directories have, and addresses of archives do not.
_MARK = "#held-"
_numbers = itertools.count(1)
_directories: weakref.WeakValueDictionary[str, HeldFiles] = weakref.WeakValueDictionary()


class HeldFiles:
    """A directory in memory: its ``path``, and the files that were added."""

    def __init__(self, name: str) -> None:
        """``name`` says what the files are of, for errors."""
        self.path = f"{name}{_MARK}{next(_numbers)}"
        self._files: dict[str, bytes] = {}
        _directories[self.path] = self

    def add(self, folder: str, name: str, data: bytes) -> None:
        """Hold a file, below a folder."""
        self._files[os.path.join(self.path, folder, name)] = data

    def get(self, path: str) -> bytes | None:
        """The content of the file at a path; None without it."""
        return self._files.get(path)


def held_file(path: str) -> bytes | None:
    """The content of a held file; None for a path that is not in such a directory. ``FileNotFoundError``."""
    name, mark, rest = path.partition(_MARK)
    directory = _directories.get(f"{name}{mark}{rest.partition(os.sep)[0]}") if mark else None
    if directory is None:
        return None
    found = directory.get(path)
    if found is None:
        raise FileNotFoundError(2, os.strerror(2), path)
    return found
