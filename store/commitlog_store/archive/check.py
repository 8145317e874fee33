"""Check of an archive: whether every object that its newest manifest names is there, and says the same as the others.

The quick check lists the objects, and reads catalog, groups, the directories of all unit objects, and the first and
last bytes of each log file; it needs two requests a segment. The deep one reads all bytes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from commitlog_store.archive import catalog as catalogs
from commitlog_store.archive.generations import newest, read_identity
from commitlog_store.archive.index_objects import INDEX_HEAD, PLACE_SIZE, decode_index_head, places_start
from commitlog_store.archive.layout import IDENTITY, generation_of, is_of_archive
from commitlog_store.archive.manifest import Manifest, ObjectRef, Segment
from commitlog_store.archive.restore import download
from commitlog_store.archive.tables import QueueTables
from commitlog_store.archive.unit_objects import QueuePart, decode_directory
from commitlog_store.errors import ArchiveDamaged
from commitlog_store.format.arrays import Int64Array
from commitlog_store.format.checksum import crc32
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.object_storage.object_store import ObjectCut, ObjectStore
from commitlog_store.progress import Progress
from commitlog_store.threads.parallel import for_each

_THREADS = 8


@dataclass(frozen=True, kw_only=True)
class ArchiveCheckReport:
    """An archive as it was found. ``problems`` has a sentence for each thing that is wrong, sorted; empty for none.

    ``gaps`` are physical offsets that are in no segment; ``strays`` the records without a place in a queue.
    ``topics`` are the names and patterns of those that it has alone, None for all of its store.
    ``unnamed`` objects, of ``unnamed_size`` bytes, are named by no part of the newest generation: ``gc_archive``.
    """

    url: str
    generation: int
    start: int
    stop: int
    segments: int
    topics: tuple[str, ...] | None
    queues: int
    objects: int
    size: int
    gaps: list[tuple[int, int]]
    strays: int
    unnamed: int
    unnamed_size: int
    problems: list[str]


def check_archive(
    url: str | ObjectStore,
    *,
    deep: bool = False,
    options: dict[str, str] | None = None,
    progress: Progress | None = None,
) -> ArchiveCheckReport:
    """Compare the archive at ``url`` with its manifest; with ``deep``, all bytes with their checksums.

    ``progress`` is called with the bytes that are compared, and all. ``ArchiveNotFound``, ``ArchiveFailed``,
    ``UnsupportedArchive``, and ``ArchiveDamaged`` for the manifest itself; all else is in the report. ::

        report = check_archive("s3://bucket/orders")
        print(report.stop, report.problems)
    """
    objects = url if isinstance(url, ObjectStore) else ObjectStore.open(url, options=options)
    manifest = newest(objects)
    return _Check(objects, manifest, progress).run(deep=deep)


class _Check:
    def __init__(self, objects: ObjectStore, manifest: Manifest, progress: Progress | None) -> None:
        self._objects = objects
        self._manifest = manifest
        self._progress = progress
        self._problems: list[str] = []
        self._lock = threading.Lock()
        self._done = 0

    def run(self, *, deep: bool) -> ArchiveCheckReport:
        manifest = self._manifest
        named = {ref.name: ref for ref in manifest.objects()}
        found = {one.name: one.size for one in self._objects.list()}
        sound = {name for name, ref in named.items() if self._is_there(ref, found.get(name))}
        identity = read_identity(self._objects)
        if identity is None or identity.archive_id != manifest.archive_id:
            self._say("archive.json is missing, or of another archive than the manifest")
        parts: dict[int, list[QueuePart]] = {}

        def look(index: int) -> None:
            with self._reported():
                self._segment(index, sound, parts)

        for_each(look, range(len(manifest.segments)), most_threads=_THREADS)
        with self._reported():
            self._tables(sound, parts)
        if deep:
            total = sum(named[name].size for name in sound)
            for_each(lambda name: self._bytes(named[name], total), sorted(sound), most_threads=_THREADS)
        unnamed = [size for name, size in found.items() if name not in named and not _is_of_all(name)]
        return ArchiveCheckReport(
            url=str(self._objects),
            generation=manifest.generation,
            start=manifest.start,
            stop=manifest.stop,
            segments=len(manifest.segments),
            topics=None if manifest.selection is None else manifest.selection.topics,
            queues=manifest.queues,
            objects=len(named),
            size=sum(ref.size for ref in named.values()),
            gaps=[
                (before.stop, after.start)
                for before, after in pairwise(manifest.segments)
                if before.stop != after.start
            ],
            strays=sum(segment.strays for segment in manifest.segments),
            unnamed=len(unnamed),
            unnamed_size=sum(unnamed),
            problems=sorted(self._problems),
        )

    def _is_there(self, ref: ObjectRef, size: int | None) -> bool:
        if size is None:
            self._say(f"{ref.name} is missing")
        elif size != ref.size:
            self._say(f"{ref.name} has {size} bytes, not {ref.size}")
        return size == ref.size

    def _segment(self, index: int, sound: set[str], parts: dict[int, list[QueuePart]]) -> None:
        """One segment: its unit directory, the head of its index, and the first and last bytes of its log file."""
        segment = self._manifest.segments[index]
        if segment.log.name in sound:
            self._log_ends(segment)
        if segment.index.name in sound:
            self._index_head(segment)
        if segment.units.name not in sound:
            return
        (head,) = self._ranges(segment.units.name, (0, segment.units_head))
        directory = decode_directory(head, segment.units.name)
        rows = int(directory.entries["count"].sum())
        expected = directory.size + rows * UNIT_SIZE
        if (rows, expected) != (segment.rows, segment.units.size):
            self._say(f"{segment.units.name} has {rows} units in its directory, and {segment.rows} in the manifest")
        parts[index] = directory.parts()

    def _index_head(self, segment: Segment) -> None:
        (head,) = self._ranges(segment.index.name, (0, INDEX_HEAD))
        rows, places = decode_index_head(head, segment.index.name)
        if (rows, places_start(rows) + places * PLACE_SIZE) != (segment.index_rows, segment.index.content_size):
            self._say(f"{segment.index.name} has {rows} rows and {places} places, and not those of the manifest")

    def _log_ends(self, segment: Segment) -> None:
        ends = segment.log_ends()
        found = self._ranges(segment.log.name, *((start, stop) for start, stop, _ in ends))
        if [crc32(data) for data in found] != [crc for _, _, crc in ends]:
            self._say(f"{segment.log.name} begins or ends with other bytes than its manifest says")

    def _tables(self, sound: set[str], parts: dict[int, list[QueuePart]]) -> None:
        """The catalog and the groups, compared with what the directories of the segments say together."""
        manifest = self._manifest
        if manifest.catalog.name not in sound:
            return
        data = b"".join(download(self._objects, manifest.catalog))
        catalog = catalogs.decode_catalog(data, manifest.catalog_head, manifest.catalog.name)
        groups = [group.table for group in manifest.groups]
        read = {ref.name: b"".join(download(self._objects, ref)) for ref in groups if ref.name in sound}
        if len(parts) < len(manifest.segments):
            return  # reported
        # A part of a file had fewer queues than the whole one, which have the first numbers.
        order = {name: number for number, name in enumerate(catalog.queues)}
        tables, end = QueueTables(order=order), manifest.start
        shown_at_least = np.zeros(0, np.int64)
        for index, segment in enumerate(manifest.segments):
            if manifest.open_batch is not None and segment.start <= manifest.open_batch[0] < segment.stop:
                shown_at_least = tables.catalog().max_offsets
            tables.add(parts[index], segment.start - end)
            end = segment.stop
            if tables.open_segments == manifest.group_size and index < manifest.grouped:
                ref = groups[index // manifest.group_size]
                expected = tables.close_group()
                if ref.name in read and not np.array_equal(catalogs.decode_group(read[ref.name], ref.name), expected):
                    self._say(f"{ref.name} does not say what the segments' unit objects do")
        made = tables.catalog()
        same = made.queues == catalog.queues and all(
            np.array_equal(getattr(made, name), getattr(catalog, name))
            for name in ("min_offsets", "max_offsets", "group_offsets", "spans")
        )
        same = same and _is_possible(catalog, None if manifest.open_batch is None else shown_at_least)
        if not same:
            self._say(f"{manifest.catalog.name} does not say what the segments' unit objects do")

    def _bytes(self, ref: ObjectRef, total: int) -> None:
        """All bytes of an object."""
        with self._reported():
            for piece in download(self._objects, ref):
                with self._lock:
                    self._done += len(piece)
                    if self._progress is not None:
                        self._progress(self._done, total)

    def _ranges(self, name: str, *ranges: tuple[int, int]) -> list[bytes]:
        try:
            found = self._objects.get_ranges(name, ranges) if ranges else []
        except ObjectCut as cut:
            raise ArchiveDamaged(f"{name} has {cut.size} bytes", name=name) from None
        if found is None:
            raise ArchiveDamaged(f"{name} is missing", name=name)
        return found

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        """Makes a problem of an ``ArchiveDamaged``."""
        try:
            yield
        except ArchiveDamaged as damage:
            self._say(str(damage).rstrip("."))

    def _say(self, problem: str) -> None:
        with self._lock:
            self._problems.append(problem)


def _is_possible(catalog: catalogs.Catalog, before: Int64Array | None) -> bool:
    """Whether each queue is shown up to an offset that can be: its end, or, where the log ends within a batch, one from
    the end on that it had ``before`` the segment in which that batch begins (by number)."""
    if before is None:
        return bool((catalog.shown_offsets == catalog.max_offsets).all())
    least = np.concatenate([before, catalog.min_offsets[len(before) :]])
    return bool(((least <= catalog.shown_offsets) & (catalog.shown_offsets <= catalog.max_offsets)).all())


def _is_of_all(name: str) -> bool:
    """Whether an object is a manifest, or the identity, which no manifest names, or not one of an archive."""
    return name == IDENTITY or generation_of(name) is not None or not is_of_archive(name)
