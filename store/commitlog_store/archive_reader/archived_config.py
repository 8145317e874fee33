"""ArchivedConfig: the files of a store's ``config/`` as the newest generation has them.

They are as they were when that generation was made, a little after the end of the log that it has. What reads them
expects files: they are held in memory when they are asked for, at most seven requests a generation.
"""

from __future__ import annotations

import numpy as np

from commitlog_store.archive_reader.opened_archive import OpenedArchive, stored
from commitlog_store.files.held_files import HeldFiles
from commitlog_store.object_storage.pages import ObjectPages
from commitlog_store.paths import CONFIG


class ArchivedConfig:
    """The files of one generation after another."""

    def __init__(self, pages: ObjectPages) -> None:
        self._pages = pages
        self._files: HeldFiles | None = None
        self._generation = 0

    def home(self, archive: OpenedArchive) -> str:
        """The directory, in memory, that has the files in ``config/``. ``ArchiveDamaged``, ``ArchiveFailed``."""
        generation = archive.manifest.generation
        if self._files is None or self._generation != generation:
            files = HeldFiles(archive.url)
            for name, data in self._read(archive).items():
                files.add(CONFIG, name, data)
            self._files, self._generation = files, generation
        return self._files.path

    def _read(self, archive: OpenedArchive) -> dict[str, bytes]:
        ahead = self._pages.ahead()
        found: dict[str, bytes] = {}
        try:
            for ref in archive.manifest.config.values():
                if ref.size:
                    ahead.expect(stored(ref), np.zeros(1, np.int64), np.array([ref.size], np.int64))
            for name, ref in archive.manifest.config.items():
                data = bytes(archive.read(ref, 0, ref.size))
                archive.compare(ref)  # a large one may have come in several runs
                found[name] = data
        finally:
            ahead.close()
        return found

    def close(self) -> None:
        """Drop them."""
        self._files = None
