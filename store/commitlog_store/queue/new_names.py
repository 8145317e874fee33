"""Names of new queue files and directories that are not on the device yet.

Dispatch makes a queue's files without a sync, and the flush of the queues syncs each directory once, before the
checkpoint moves: until then nothing relies on a name, since recovery makes again what a power cut has lost
(docs/decisions/0030-names-are-synced-with-the-queues.md).
"""

from __future__ import annotations

import os


class NewNames:
    """The directories whose names are to be synced, and the number of queue files made whose names are on the device.

    Those that were deleted are subtracted from the number at once: it never counts a file that a power cut may lose.
    """

    def __init__(self) -> None:
        self.files = 0
        self._directories: set[str] = set()
        self._new_files = 0
        # Those of a sync that has not ended; they are among the next one's, too.
        self._syncing: set[str] = set()
        self._syncing_files = 0

    def add_directory(self, path: str) -> None:
        """Note a directory that was made."""
        self._directories.add(os.path.dirname(path))

    def add_file(self, path: str) -> None:
        """Note a queue file that was made."""
        self._directories.add(os.path.dirname(path))
        self._new_files += 1

    def discount(self, files: int) -> None:
        """Note that so many queue files are deleted."""
        self.files -= files

    def begin_sync(self) -> list[str]:
        """The directories that the caller has to sync before it calls ``end_sync``."""
        self._syncing |= self._directories
        self._syncing_files += self._new_files
        self._directories, self._new_files = set(), 0
        return sorted(self._syncing)

    def end_sync(self) -> None:
        self.files += self._syncing_files
        self._syncing, self._syncing_files = set(), 0
