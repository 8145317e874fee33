"""The log that a salvage reads: the files of a store directory, or of a directory of CommitLog files.

Files that were swapped, or restored under a wrong name, are found by their first record, which says its own place.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from itertools import pairwise
from typing import NamedTuple

from commitlog_store.errors import NotAStore, StoreNotFound
from commitlog_store.files import disk
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.paths import COMMIT_LOG, CONSUME_QUEUE, file_name_for_offset, parse_file_name
from commitlog_store.verify.log_files import claimed_base

_MAX_OPEN = 8


class MisnamedFile(NamedTuple):
    """A file whose records belong into the file of another name."""

    name: str
    belongs: str


class LogSource:
    """Read-only CommitLog files, by the physical offset of their first byte: ``bases``. Takes no lock."""

    def __init__(self, path: str, paths: dict[int, str], misnamed: list[MisnamedFile]) -> None:
        """Use ``LogSource.at``."""
        self.path = path
        self.bases = sorted(paths)
        self.misnamed = misnamed
        self._paths = paths
        self._open: dict[int, MappedFile] = {}

    @classmethod
    def at(cls, path: str) -> LogSource:
        """The log in a store directory, or in a directory of log files. ``StoreNotFound``, ``NotAStore``.

        That of a store with queues may have no file at all.
        """
        if not disk.exists(path):
            raise StoreNotFound(f"No store at {path}: the directory does not exist.", path=path)
        if not disk.is_directory(path):
            raise NotAStore(
                f"{path} is a file; salvage takes a store directory, or one with CommitLog files.", path=path
            )
        for directory in (os.path.join(path, COMMIT_LOG), path):
            names = disk.list_names(directory) if disk.is_directory(directory) else []
            bases = {
                base: name
                for name in names
                if (base := parse_file_name(name)) is not None and not disk.is_directory(os.path.join(directory, name))
            }
            if bases:
                claimed = {base: claimed_base(os.path.join(directory, name), base) for base, name in bases.items()}
                taken = _assigned(claimed)
                misnamed = [
                    MisnamedFile(bases[base], file_name_for_offset(place)) for base, place in taken if base != place
                ]
                paths = {place: os.path.join(directory, bases[base]) for base, place in taken}
                return cls(directory, paths, sorted(misnamed))
        if disk.is_directory(os.path.join(path, CONSUME_QUEUE)):
            return cls(os.path.join(path, COMMIT_LOG), {}, [])
        raise NotAStore(
            f"{path} holds no CommitLog file: neither it nor its directory '{COMMIT_LOG}' has a file that is named by "
            "20 digits.",
            path=path,
        )

    def base_at(self, offset: int) -> int | None:
        """The base of the last file that starts at or before ``offset``."""
        place = bisect_right(self.bases, offset) - 1
        return self.bases[place] if place >= 0 else None

    def find(self, offset: int, /) -> MappedFile | None:
        """The file that holds the byte at ``offset``; None outside the log and in a gap."""
        base = self.base_at(offset)
        if base is None:
            return None
        file = self._file(base)
        return file if offset - base < file.size else None

    def _file(self, base: int) -> MappedFile:
        found = self._open.get(base)
        if found is None:
            if len(self._open) >= _MAX_OPEN:
                self._open.pop(next(iter(self._open))).close()
            found = self._open[base] = MappedFile.open(self._paths[base], base)
        return found

    def end(self) -> int:
        """The offset after the last file's last byte."""
        return self.bases[-1] + disk.file_size(self._paths[self.bases[-1]])

    def file_size(self) -> int:
        """The size of the log's files: the most usual distance between two, or the size of the only one."""
        distances = Counter(other - one for one, other in pairwise(self.bases))
        # A missing file makes a larger distance.
        most = max(distances.values(), default=0)
        usual = min((distance for distance, count in distances.items() if count == most), default=0)
        return usual or disk.file_size(self._paths[self.bases[0]])

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


def _assigned(claimed: dict[int, int]) -> list[tuple[int, int]]:
    """The name's offset of each file, and the one at which its records are taken to be.

    A file is moved only if its records fit between the others: on the grid of file sizes, at a place that no file whose
    records agree with its name has, and that no other file claims.
    """
    bases = sorted(claimed)
    grid = min((other - one for one, other in pairwise(bases)), default=0)
    wanted = Counter(claimed.values())
    moved = {
        base: place
        for base, place in claimed.items()
        if place != base and wanted[place] == 1 and grid and not (place - bases[0]) % grid
    }
    # A file whose own place is wanted by another one stays only if it moves too, or its records agree with its name.
    while clash := {base for base, place in moved.items() if place in claimed and place not in moved}:
        moved = {base: place for base, place in moved.items() if base not in clash}
    return [(base, moved.get(base, base)) for base in bases]
