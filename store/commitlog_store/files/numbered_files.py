"""List of the numbered files in a directory, each named by the offset of its first byte (20 digits).

Other names in the directory are ignored. The directory is listed again only after a change, which one ``stat`` shows.
"""

from __future__ import annotations

import sys
import time
from bisect import bisect_right

from commitlog_store.files import disk
from commitlog_store.paths import file_name_for_offset, parse_file_name

# A directory's time stamp moves in ticks; a name that appears in the same tick as the listing would go unseen. A
# listing is trusted only if the last change was this long before it.
_SETTLED_NS = 2_000_000_000


class DirectoryListing:
    """The names in a directory, listed again only after a change. A missing directory has no names."""

    __slots__ = ("_settled", "_signature", "names", "path")  # a reader has one for each queue

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

    def take(self, names: list[str], signature: disk.DirectorySignature) -> None:
        """Take the names that the directory is known to have with this signature, which cannot hide a later change."""
        self.names = names
        self._signature = signature
        self._settled = True

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


class NumberedFiles:
    """The first offsets of a directory's files, in order: ``bases``."""

    __slots__ = ("_listing", "bases", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.bases: list[int] = []
        self._listing = DirectoryListing(path)

    @property
    def exists(self) -> bool:
        """Whether the directory was there at the last refresh."""
        return self._listing.exists

    def forget(self) -> None:
        """Let the next ``refresh`` list the directory again, and say that it changed."""
        self._listing.forget()

    def take(self, bases: list[int], signature: disk.DirectorySignature) -> None:
        """Take the files that the directory is known to have with this signature (``DirectoryListing.take``)."""
        self._listing.take([sys.intern(file_name_for_offset(base)) for base in bases], signature)
        self.bases = bases

    def refresh(self) -> bool:
        """Update the list of files; True when it changed. ``NotADirectoryError``."""
        if not self._listing.refresh():
            return False
        # Thousands of queues have files of the same few names.
        names = self._listing.names = list(map(sys.intern, self._listing.names))
        self.bases = sorted(base for name in names if (base := parse_file_name(name)) is not None)
        return True

    def add(self, base: int) -> None:
        """Note a file that was made after the last refresh."""
        self.bases = sorted({*self.bases, base})

    def path_of(self, base: int) -> str:
        return f"{self.path}/{file_name_for_offset(base)}"

    def base_at(self, offset: int) -> int | None:
        """The base of the last file that starts at or before ``offset``; the file may end before it."""
        place = bisect_right(self.bases, offset) - 1
        return self.bases[place] if place >= 0 else None
