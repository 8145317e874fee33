"""The log's files as recovery would find them, opened for reading: for the forecast of an opening.

``MappedFileQueueWriter.load`` removes or extends the files that a crash left incomplete; here they only count as
removed or extended.
"""

from __future__ import annotations

from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from commitlog_store.files import disk
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.files.mapped_file_queue_writer import check_log_file, count_leftovers
from commitlog_store.files.numbered_files import NumberedFiles

_UNOPENED = -1
_MOST_OPEN = 8


class _FileOnDisk(MappedFile):
    """One file, opened at its first use. It reads as if it had ``capacity`` bytes: those after its end are zero."""

    def __init__(self, path: str, base: int, identity: disk.FileIdentity, capacity: int, opened: list[_FileOnDisk]):
        super().__init__(path, base, _UNOPENED, identity)
        self.capacity = capacity
        self._others = opened

    def _opened(self) -> int:
        if self._descriptor == _UNOPENED:
            self._descriptor = disk.open_file(self.path)
            self._others.append(self)
            if len(self._others) > _MOST_OPEN:
                self._others.pop(0).close()
        return self._descriptor

    @property
    def size(self) -> int:
        return max(super().size, self.capacity)

    def read(self, position: int, length: int) -> bytes:
        data = super().read(position, length)
        return data.ljust(max(min(length, self.capacity - position), 0), b"\0")

    def data_extents(self, start: int, stop: int) -> list[tuple[int, int]]:
        stop = min(stop, super().size)
        return super().data_extents(start, stop) if start < stop else []

    def span(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        # Not mapped: a bad sector would kill the process.
        return np.frombuffer(self.read(start, stop - start), np.uint8)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, _UNOPENED
        self._mapping, self._resident = None, (0, 0)
        if descriptor != _UNOPENED:
            disk.close(descriptor)


class LogOnDisk:
    """The files of a log in order, for ``log_end.find_end`` and ``past_damage.walk_past_damage``."""

    def __init__(self, path: str, files: list[_FileOnDisk], opened: list[_FileOnDisk]) -> None:
        self.path = path
        self.files = files
        self.bases = [file.base for file in files]
        self._opened = opened

    @classmethod
    def load(cls, path: str, *, aborted: bool) -> LogOnDisk:
        """Find all files. ``CorruptRecord`` for files that do not fit together, as ``MappedFileQueueWriter.load``."""
        names = NumberedFiles(path)
        names.refresh()
        bases = names.bases[: len(names.bases) - count_leftovers(names.bases, names.path_of)]
        file_size = disk.file_size(names.path_of(bases[0])) if bases else 0
        files: list[_FileOnDisk] = []
        opened: list[_FileOnDisk] = []
        for base, following in zip_longest(bases, bases[1:]):
            file = names.path_of(base)
            identity = disk.identity_of(file)
            extended = aborted and following is None and len(bases) > 1 and identity.size < file_size
            size = file_size if extended else identity.size
            check_log_file(file, base, size, file_size, following)
            files.append(_FileOnDisk(file, base, identity, size, opened))
        return cls(path, files, opened)

    @property
    def min_offset(self) -> int:
        return self.files[0].base if self.files else 0

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds the byte at ``offset``; None outside the log."""
        if not self.files or not offset - self.files[0].base >= 0:
            return None
        place = (offset - self.files[0].base) // max(self.files[0].capacity, 1)
        return self.files[place] if place < len(self.files) else None

    def close(self) -> None:
        for file in self.files:
            file.close()
