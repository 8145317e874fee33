"""ArchivedConfig: the files of a store's ``config/`` as the newest generation has them.

They are as they were when that generation was made, a little after the end of the log that it has. What reads them
expects files: they are copied into a temporary directory when they are asked for, at most seven requests a generation.
"""

from __future__ import annotations

import numpy as np

from commitlog_store.archive_reader.opened_archive import OpenedArchive, stored
from commitlog_store.errors import ReadFailed
from commitlog_store.files.temporary import TemporaryFiles
from commitlog_store.object_storage.pages import ObjectPages
from commitlog_store.paths import CONFIG


class ArchivedConfig:
    """The files of one generation after another."""

    def __init__(self, pages: ObjectPages) -> None:
        self._pages = pages
        self._files: TemporaryFiles | None = None
        self._generation = 0

    def home(self, archive: OpenedArchive) -> str:
        """The directory that has the files in ``config/``. ``ArchiveDamaged``, ``ArchiveFailed``, ``ReadFailed``."""
        generation = archive.manifest.generation
        if self._files is None or self._generation != generation or not self._files.are_whole():
            self.close()
            found = self._read(archive)
            try:
                self._files = files = TemporaryFiles()
                for name, data in found.items():
                    files.add(CONFIG, name, data)
            except OSError as error:
                self.close()
                raise ReadFailed("copy config files of an archive to", path=str(error.filename), cause=error) from error
            self._generation = generation
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
                archive.refuse_changed(ref)  # a large one may have come in several runs
                found[name] = data
        finally:
            ahead.close()
        return found

    def close(self) -> None:
        """Remove the copies."""
        if self._files is not None:
            self._files.close()
            self._files = None
