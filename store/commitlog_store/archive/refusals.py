"""Places where a store's archive may not be made: the store's own directory, and the archive of another log."""

from __future__ import annotations

import os
from functools import partial

from commitlog_store.archive.log_files import LogSource
from commitlog_store.archive.manifest import HEAD_SIZE, Manifest, Segment
from commitlog_store.archive.segments import tail_crc32
from commitlog_store.errors import ArchiveMismatch, InvalidValue
from commitlog_store.files import disk
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.checksum import crc32
from commitlog_store.object_storage.address import StorageAddress
from commitlog_store.object_storage.object_store import ObjectStore


def refuse_own_directory(url: str, paths: StorePaths) -> None:
    """``InvalidValue`` for a directory of the store itself: objects have the names of the store's own directories.

    To be called before the ``ObjectStore`` is opened, which makes the directory of an archive.
    """
    directory = disk.real_path(StorageAddress.parse(url).directory or "/")
    for own in (disk.real_path(paths.root), disk.real_path(paths.commit_log)):
        if os.path.commonpath([directory, own]) == own:
            raise InvalidValue(f"{url} is in the directory {own} of the store itself. Give another one.")


def refuse_other_log(objects: ObjectStore, source: LogSource, newest: Manifest) -> None:
    """``ArchiveMismatch`` for the archive of another log: the last file that store and archive both have differs."""
    here = set(source.bases())
    for segment in reversed(newest.segments):
        if segment.start not in here:
            continue
        sums = source.look_at(segment.start, partial(_sums, segment))
        if sums is None:
            continue
        if sums != (segment.head_crc32, segment.tail_crc32):
            raise mismatch(objects, source, segment.start)
        return
    if here and max(here) < newest.stop:
        # No file shows whether it is that log, and none would be archived until it has grown to there.
        raise ArchiveMismatch(
            f"The archive {objects} ends at physical offset {newest.stop}, and has no file of "
            f"{source.paths.commit_log}, whose last one begins before that, at {max(here)}: it is of another store. "
            "Nothing was changed. Archive this store under another prefix.",
            offset=max(here),
        )


def _sums(segment: Segment, file: MappedFile) -> tuple[int, int]:
    """The checksums of a file's head and tail, as far as a segment has them."""
    return crc32(file.read(0, min(HEAD_SIZE, segment.log.size))), tail_crc32(file, segment.tail_stop)


def mismatch(objects: ObjectStore, source: LogSource, offset: int) -> ArchiveMismatch:
    """The error for another log in the archive."""
    return ArchiveMismatch(
        f"The archive {objects} has another log than {source.paths.commit_log}: their files at physical "
        f"offset {offset} differ. It is of another store, or this one lost its end and grew again since. Nothing "
        "was changed. Archive this store under another prefix.",
        offset=offset,
    )
