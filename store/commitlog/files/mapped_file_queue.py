"""A directory of files that follow one another, each named by the offset of its first byte (20 digits).

Sizes are taken from the files themselves, so no configuration has to match. Other names in the directory are left
alone. The list is taken again only when the directory changed, which one ``stat`` tells.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections import OrderedDict

from commitlog.files import disk
from commitlog.files.mapped_file import MappedFile
from commitlog.paths import file_name_for_offset, parse_file_name

__all__ = ["DirectoryListing", "MappedFileQueue"]

# A directory's time stamp moves in ticks; a name that appears in the same tick as the listing would go unseen. A
# listing is trusted only once the last change lay this far behind it.
_SETTLED_NS = 2_000_000_000


class DirectoryListing:
    """The names in a directory, listed again only after a change. A directory that is not there has no names."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.names: list[str] = []
        self._signature: disk.DirectorySignature | None = None
        self._settled = False

    @property
    def exists(self) -> bool:
        """Whether the directory was there at the last refresh."""
        return self._signature is not None

    def forget(self) -> None:
        """Let the next ``refresh`` list the directory again, and say that it changed."""
        self._signature = None
        self._settled = False

    def refresh(self) -> bool:
        """Bring ``names`` up to date; True when they may have changed."""
        try:
            signature: disk.DirectorySignature | None = disk.directory_signature(self.path)
        except FileNotFoundError:
            signature = None
        if signature == self._signature and (self._settled or signature is None):
            return False
        listed_at = time.time_ns()
        try:
            names = disk.list_names(self.path) if signature is not None else []
        except FileNotFoundError:
            signature, names = None, []
        changed = signature != self._signature or names != self.names
        self.names = names
        self._settled = signature is not None and listed_at - signature.modified_ns > _SETTLED_NS
        self._signature = signature
        return changed


class MappedFileQueue:
    """The files of one directory. Up to ``max_open`` of them are kept open, the ones used last."""

    def __init__(self, path: str, *, max_open: int = 8) -> None:
        self.path = path
        self.bases: list[int] = []
        self._listing = DirectoryListing(path)
        self._open: OrderedDict[int, MappedFile] = OrderedDict()
        self._max_open = max_open

    def refresh(self) -> bool:
        """Look whether files came or went; True when so."""
        if not self._listing.refresh():
            return False
        parsed = (parse_file_name(name) for name in self._listing.names)
        self.bases = sorted(base for base in parsed if base is not None)
        # A file of the same name may be another one now (a store restored in place).
        self.close()
        return True

    def path_of(self, base: int) -> str:
        return os.path.join(self.path, file_name_for_offset(base))

    def base_at(self, offset: int) -> int | None:
        """The base of the last file that starts at or before ``offset``; the file may end before it."""
        place = bisect_right(self.bases, offset) - 1
        return self.bases[place] if place >= 0 else None

    def file(self, base: int) -> MappedFile:
        """The file of that base, opened if it is not yet. ``FileNotFoundError`` when it has been removed."""
        found = self._open.get(base)
        if found is not None:
            self._open.move_to_end(base)
            return found
        found = MappedFile.open(self.path_of(base), base)
        self._open[base] = found
        if len(self._open) > self._max_open:
            self._open.popitem(last=False)[1].close()
        return found

    def opened(self, base: int) -> MappedFile | None:
        """The file of that base if it is open already."""
        return self._open.get(base)

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds the byte at ``offset``, or None."""
        base = self.base_at(offset)
        if base is None:
            return None
        found = self.file(base)
        return found if offset - base < found.size else None

    def end(self) -> int:
        """The offset behind the last file's last byte; 0 without files."""
        if not self.bases:
            return 0
        try:
            return self.bases[-1] + self.file(self.bases[-1]).size
        except FileNotFoundError:
            return self.bases[-1]

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()
