"""Places where a store's archive may not be made: the store's own directory, and the archive of another log."""

from __future__ import annotations

import os
from functools import partial

from commitlog_store.archive.log_files import LogSource
from commitlog_store.archive.manifest import HEAD_SIZE, Manifest, Segment, Selection
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
        raise _too_short(objects, source, newest.stop, max(here))


def refuse_other_topics(objects: ObjectStore, newest: Manifest, patterns: tuple[str, ...] | None) -> None:
    """``ArchiveMismatch`` for an archive of other topics than these names and patterns; None is for all."""
    selection = newest.selection
    if (None if selection is None else selection.topics) == patterns:
        return
    if selection is None:
        has = "all topics of its store. Archive a part of them"
    else:
        has = f"the topics {', '.join(map(repr, selection.topics))} alone. Name the same ones (--topic), or archive"
    raise ArchiveMismatch(
        f"The archive {objects} has {has} under another prefix. Nothing was changed.", offset=newest.stop
    )


def refuse_selection(objects: object, selection: Selection | None, why: str) -> None:
    """``ArchiveMismatch`` for an archive of some topics, where it takes one of a whole log."""
    if selection is not None:
        raise ArchiveMismatch(
            f"The archive {objects} has the topics {', '.join(map(repr, selection.topics))} alone, at other physical "
            f"offsets than their store: {why}",
            offset=selection.source_stop,
        )


def refuse_other_source(objects: ObjectStore, source: LogSource, selection: Selection, file_size: int) -> None:
    """``ArchiveMismatch`` for the archive of topics of another log: at its end, or as far as that was read."""
    base, bases = file_before(selection.tail_stop, file_size), source.bases()
    sums = source.look_at(base, partial(sums_before, selection.tail_stop)) if base in bases else None
    if sums is not None:
        if sums != (selection.head_crc32, selection.tail_crc32):
            raise mismatch(objects, source, base)
    elif bases and bases[-1] + file_size < selection.source_stop:
        raise _too_short(objects, source, selection.source_stop, bases[-1])


def file_before(physical_offset: int, file_size: int) -> int:
    """The first byte of the file with the byte before a physical offset."""
    return max(physical_offset - 1, 0) // file_size * file_size


def sums_before(stop: int, file: MappedFile) -> tuple[int, int]:
    """The checksums of a file's first and last bytes before a physical offset."""
    return crc32(file.read(0, min(HEAD_SIZE, stop - file.base))), tail_crc32(file, stop)


def _sums(segment: Segment, file: MappedFile) -> tuple[int, int]:
    """The checksums of a file's head and tail, as far as a segment has them."""
    return crc32(file.read(0, min(HEAD_SIZE, segment.log.size))), tail_crc32(file, segment.tail_stop)


def _too_short(objects: ObjectStore, source: LogSource, stop: int, last: int) -> ArchiveMismatch:
    return ArchiveMismatch(
        f"The archive {objects} ends at physical offset {stop}, and has no file of {source.paths.commit_log}, whose "
        f"last one begins before that, at {last}: it is of another store. Nothing was changed. Archive this store "
        "under another prefix.",
        offset=last,
    )


def mismatch(objects: ObjectStore, source: LogSource, offset: int) -> ArchiveMismatch:
    """The error for another log in the archive."""
    return ArchiveMismatch(
        f"The archive {objects} has another log than {source.paths.commit_log}: their files at physical "
        f"offset {offset} differ. It is of another store, or this one lost its end and grew again since. Nothing "
        "was changed. Archive this store under another prefix.",
        offset=offset,
    )
