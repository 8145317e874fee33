"""The CommitLog's sequence of files, opened for reading when they are used.

Sizes are taken from the files themselves, so no configuration has to match.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from commitlog_store.errors import ReaderClosed
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.files.numbered_files import NumberedFiles


class MappedFileQueue:
    """The files of one directory. Up to ``max_open`` of them are kept open, the ones used last."""

    def __init__(
        self, path: str, *, max_open: int = 8, open_file: Callable[[str, int], MappedFile] = MappedFile.open
    ) -> None:
        """``open_file`` opens the file of a path and a base."""
        self.files = NumberedFiles(path)
        self._open_file = open_file
        self._open: OrderedDict[int, MappedFile] = OrderedDict()
        self._max_open = max_open
        self._closed = False

    @property
    def bases(self) -> list[int]:
        return self.files.bases

    def refresh(self) -> bool:
        """Update the list of files; True when it changed. ``ReaderClosed``."""
        self._refuse_closed()
        if not self.files.refresh():
            return False
        # A file of the same name may be another one now (a store restored in place).
        self._close_files()
        return True

    def file(self, base: int) -> MappedFile:
        """The file of that base, opened if need be. ``FileNotFoundError`` when it is deleted, ``ReaderClosed``."""
        found = self._open.get(base)
        if found is not None:
            self._open.move_to_end(base)
            return found
        self._refuse_closed()
        found = self._open_file(self.files.path_of(base), base)
        self._open[base] = found
        if len(self._open) > self._max_open:
            self._open.popitem(last=False)[1].close()
        return found

    def opened(self, base: int) -> MappedFile | None:
        """The file of that base if it is open already."""
        return self._open.get(base)

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds the byte at ``offset``, or None."""
        base = self.files.base_at(offset)
        if base is None:
            return None
        found = self.file(base)
        return found if offset - base < found.size else None

    def end(self) -> int:
        """The offset after the last file's last byte; 0 without files."""
        if not self.bases:
            return 0
        try:
            return self.bases[-1] + self.file(self.bases[-1]).size
        except FileNotFoundError:
            return self.bases[-1]

    def close(self) -> None:
        """Close all files; no file can be opened after that."""
        self._closed = True
        self._close_files()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ReaderClosed(f"The reader of {self.files.path} is closed; open the store again to read on.")

    def _close_files(self) -> None:
        while self._open:
            self._open.popitem()[1].close()
