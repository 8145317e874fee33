"""``refuse_own_directory``: no archive is made in the directory of its own store."""

from __future__ import annotations

import os

from commitlog_store.errors import InvalidValue
from commitlog_store.files import disk
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.object_storage.address import StorageAddress


def refuse_own_directory(url: str, paths: StorePaths) -> None:
    """``InvalidValue`` for a directory of the store itself: objects have the names of the store's own directories.

    To be called before the ``ObjectStore`` is opened, which makes the directory of an archive.
    """
    directory = disk.real_path(StorageAddress.parse(url).directory or "/")
    for own in (disk.real_path(paths.root), disk.real_path(paths.commit_log)):
        if os.path.commonpath([directory, own]) == own:
            raise InvalidValue(f"{url} is in the directory {own} of the store itself. Give another one.")
