"""OpenedArchive: one generation of an archive, and where the units of its queues are.

Opening takes three requests, whatever the archive's size: the listing that finds the newest manifest, the manifest, and
the head of the catalog. A queue's row of the catalog, its rows of groups and its units are read when they are needed.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from commitlog_store.archive.catalog import (
    GROUP_HEAD,
    SPAN_DTYPE,
    CatalogHead,
    decode_head,
    decode_row,
    decode_spans,
    span_at,
)
from commitlog_store.archive.damage import damaged, missing, other_bytes, other_page
from commitlog_store.archive.generations import StoredManifest, newest_stored, read_generation
from commitlog_store.archive.layout import COMMIT_LOG
from commitlog_store.archive.manifest import ObjectRef, Segment, decode_manifest
from commitlog_store.archive.queue_names import Structured
from commitlog_store.archive.unit_objects import decode_units
from commitlog_store.batch.visibility import NOTHING_HIDDEN
from commitlog_store.errors import ArchiveDamaged
from commitlog_store.format.arrays import Int64Array
from commitlog_store.format.checksum import crc32
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.object_storage.object_store import ObjectCut, ObjectMissing, ObjectStore
from commitlog_store.object_storage.pages import ObjectChanged, ObjectPages, PageChanged, StoredObject

_COMPARED_AT_ONCE = 8 << 20


@dataclass(frozen=True, slots=True)
class UnitRun:
    """Consecutive units of a queue that one segment has: ``count`` from queue offset ``start`` on."""

    segment: int
    start: int
    first_row: int
    count: int

    @property
    def stop(self) -> int:
        return self.start + self.count


class OpenedArchive:
    """What one manifest names. It never changes."""

    def __init__(self, stored_manifest: StoredManifest, head: CatalogHead, pages: ObjectPages, url: str) -> None:
        self.manifest = manifest = stored_manifest.manifest
        self.manifest_ref = stored_manifest.ref
        self.url = url
        self._head = head
        self._pages = pages
        self.bases = [segment.start for segment in manifest.segments]
        # The last segment before each part of the log that was never archived, and the path of the first file of that.
        self.gaps = [
            (index, f"{url}/{COMMIT_LOG}/{before.stop // manifest.file_size * manifest.file_size:020d}")
            for index, (before, after) in enumerate(pairwise(manifest.segments))
            if before.stop != after.start
        ]
        self.numbers = {name: number for number, name in enumerate(head.queues)}
        self._runs: dict[int, QueueRuns] = {}
        # Objects whose bytes were compared with their checksum, and what was wrong with each.
        self._compared: dict[str, ArchiveDamaged | None] = {}

    @classmethod
    def open(cls, objects: ObjectStore, pages: ObjectPages, known: ObjectRef | None = None) -> OpenedArchive:
        """The newest generation. ``ArchiveNotFound`` without one, ``ArchiveDamaged``, ``ArchiveFailed``.

        Or that of a ``known`` manifest: without a listing, and where a cache has it, without a request. Not one that
        was deleted since, as it is after a day: then the newest one.
        """
        url = str(objects)
        if known is not None:
            with contextlib.suppress(ArchiveDamaged):
                data = bytes(read_object(pages, url, known, 0, known.size))
                return cls._of(StoredManifest(decode_manifest(data, f"{url}/{known.name}"), known), url, pages)
        return cls._of(newest_stored(objects), url, pages)

    @classmethod
    def _of(cls, stored_manifest: StoredManifest, url: str, pages: ObjectPages) -> OpenedArchive:
        manifest = stored_manifest.manifest
        data = read_object(pages, url, manifest.catalog, 0, manifest.catalog_head)
        return cls(stored_manifest, decode_head(data, f"{url}/{manifest.catalog.name}"), pages, url)

    @classmethod
    def after(
        cls, generation: int, objects: ObjectStore, pages: ObjectPages, *, is_late: bool = False
    ) -> OpenedArchive | None:
        """The newest generation if it is a later one; one request shows that there is none.

        ``is_late``: the last look was so long ago that the next generation may be deleted already.
        """
        following = read_generation(objects, generation + 1)
        if following is None and not is_late:
            return None
        found = newest_stored(objects, following)
        return cls._of(found, str(objects), pages) if found.manifest.generation > generation else None

    def bounds(self, number: int) -> tuple[int, int]:
        """The bounds of a queue, by its number."""
        return int(self._head.min_offsets[number]), int(self._head.max_offsets[number])

    @property
    def hidden_from(self) -> int:
        """Where the batch begins of which the archive has a part, and which is not shown; ``NOTHING_HIDDEN``."""
        batch = self.manifest.open_batch
        return NOTHING_HIDDEN if batch is None else batch[0]

    def shown_offset(self, number: int) -> int:
        """The offset after the last message of a queue that is before ``hidden_from``, by the queue's number."""
        return int(self._head.shown_offsets[number])

    def segment_at(self, physical_offset: int) -> Segment | None:
        """The segment that holds that byte of the log."""
        place = bisect_right(self.bases, physical_offset) - 1
        segment = self.manifest.segments[place] if place >= 0 else None
        return segment if segment is not None and physical_offset < segment.stop else None

    def read(self, ref: ObjectRef, start: int, stop: int) -> memoryview:
        """Bytes of an object that the manifest names. ``ArchiveDamaged`` without them."""
        return read_object(self._pages, self.url, ref, start, stop)

    def refuse_changed(self, ref: ObjectRef) -> None:
        """``ArchiveDamaged`` for an object that has other bytes than the manifest says: all are compared, once.

        For one whose content leads to a wrong place: of a large one without checked pages, pages are read that no
        checksum is about. A damaged object may lead many messages to wrong places.
        """
        if ref.name not in self._compared:
            wrong: ArchiveDamaged | None = None
            try:
                self.compare(ref)
            except ArchiveDamaged as error:
                wrong = error.again()
            self._compared[ref.name] = wrong
        if (found := self._compared[ref.name]) is not None:
            raise found.again()

    def compare(self, ref: ObjectRef) -> None:
        """As ``refuse_changed``, each time: an object that was restored is whole."""
        crc = 0
        for at in range(0, ref.size, _COMPARED_AT_ONCE):
            crc = crc32(self.read(ref, at, at + _COMPARED_AT_ONCE), crc)
        if crc != ref.crc32:
            raise other_bytes(self.url, ref.name, ref.size, ref.crc32, found=crc)

    def refuse_changed_ends(self, segment: Segment) -> None:
        """``ArchiveDamaged`` for a log object whose first bytes, or those before the end of its last record, changed.

        No checksum of a record is about its header, so that a record may look like another one.
        """
        for start, end, expected in segment.log_ends():
            if (found := crc32(self.read(segment.log, start, end))) != expected:
                raise damaged(
                    *(self.url, segment.log.name),
                    offset=start,
                    expected=f"{end - start} bytes with the CRC-32 {expected:08x}",
                    found=f"{found:08x}",
                )

    def refuse_changed_units(self, queue: tuple[str, int], offset: int) -> None:
        """``ArchiveDamaged`` where the object with the unit of a message has other bytes than the manifest says."""
        number = self.numbers.get(queue)
        for run in () if number is None else self.runs(number).between(offset, offset + 1):
            self.refuse_changed(self.manifest.segments[run.segment].units)

    def runs(self, number: int) -> QueueRuns:
        """Where the units of a queue are."""
        found = self._runs.get(number)
        if found is None:
            low, high = self._head.row_range(number)
            offsets, spans = decode_row(self._head, self.read(self.manifest.catalog, low, high))
            self._refuse_impossible(spans, self.manifest.grouped, number, self.manifest.catalog, low)
            found = self._runs[number] = QueueRuns(self, number, offsets, spans)
        return found

    def group_spans(self, index: int, number: int) -> Structured:
        """The spans of a queue in the segments of a group; none for a queue that came later."""
        group = self.manifest.groups[index]
        if number >= group.queues:
            return np.zeros(0, SPAN_DTYPE)
        size = self.manifest.group_size * SPAN_DTYPE.itemsize
        start = GROUP_HEAD + number * size
        spans = decode_spans(self.read(group.table, start, start + size))
        self._refuse_impossible(spans, group.first_segment, number, group.table, start)
        return spans

    def _refuse_impossible(
        self, spans: Structured, first_segment: int, number: int, ref: ObjectRef, start: int
    ) -> None:
        """``ArchiveDamaged`` for spans whose units the segments do not have: rows have no checksum of their own.

        They are at the byte ``start`` of the object.
        """
        segments = self.manifest.segments[first_segment : first_segment + len(spans)]
        rows = np.array([segment.rows for segment in segments], np.int64)
        firsts, counts = spans["first_offset"].astype(np.int64), spans["count"].astype(np.int64)
        low, high = self.bounds(number)
        stops = np.concatenate(([low], firsts + counts))
        possible = (spans["first_row"] + counts <= rows) & (firsts >= stops[:-1]) & (stops[1:] <= high)
        if len(rows) != len(spans) or not possible.all():
            topic, queue_id = self._head.queues[number]
            raise damaged(
                *(self.url, ref.name),
                offset=start,
                expected=f"units of topic {topic!r}, queue {queue_id}, that the segments have",
                found="others",
            )

    def units(self, run: UnitRun) -> Structured:
        """The units of a run."""
        segment = self.manifest.segments[run.segment]
        return decode_units(self.read(segment.units, *self.unit_bytes(run)))

    def unit_bytes(self, run: UnitRun) -> tuple[int, int]:
        """Where the units of a run are in the segment's unit object."""
        start = self.manifest.segments[run.segment].units_head + run.first_row * UNIT_SIZE
        return start, start + run.count * UNIT_SIZE


class QueueRuns:
    """The runs of one queue's units, in order. What lies outside of the wanted offsets is not read."""

    def __init__(self, archive: OpenedArchive, number: int, group_offsets: Int64Array, spans: Structured) -> None:
        self._archive = archive
        self._number = number
        self._bounds = archive.bounds(number)
        self._group_offsets = group_offsets
        self._tail = spans
        self._of_group: dict[int, Structured] = {}
        self._gaps: list[tuple[int, int, str]] | None = None

    def gaps(self) -> list[tuple[int, int, str]]:
        """The queue offsets ``[start, stop)`` of messages in log files that were never archived, and the first file."""
        if self._gaps is None:
            self._gaps = []
            for index, path in self._archive.gaps:
                start, stop = self._around(index)
                if start < stop:
                    self._gaps.append((start, stop, path))
        return self._gaps

    def _around(self, segment: int) -> tuple[int, int]:
        """The queue offset after the last message up to a segment, and that of the first one after it."""
        (low, high), size = self._bounds, self._archive.manifest.group_size
        last, here = len(self._group_offsets), min(segment // size, len(self._group_offsets))
        before = (run.stop for part in range(here, -1, -1) for run in self._all(part)[::-1] if run.segment <= segment)
        after = (run.start for part in range(here, last + 1) for run in self._all(part) if run.segment > segment)
        return next(before, low), next(after, high)

    def _all(self, part: int) -> list[UnitRun]:
        """The runs of a group, by its number, or of the segments after the groups."""
        spans = self._tail if part == len(self._group_offsets) else self._spans_of(part)
        return _clipped(spans, part * self._archive.manifest.group_size, *self._bounds)

    def between(self, start: int, stop: int) -> list[UnitRun]:
        """The runs with units at the queue offsets ``[start, stop)``, clipped to these."""
        offsets, size = self._group_offsets, self._archive.manifest.group_size
        found: list[UnitRun] = []
        for index in range(span_at(offsets, start), len(offsets)):
            if offsets[index] >= stop:
                break
            found += _clipped(self._spans_of(index), index * size, start, stop)
        return found + _clipped(self._tail, len(offsets) * size, start, stop)

    def offset_at(self, segment: int) -> int:
        """The queue offset of the first message in a segment or after it."""
        manifest = self._archive.manifest
        low, high = self._bounds
        if segment >= len(manifest.segments):
            return high
        if segment >= manifest.grouped:
            found = int(self._tail["first_offset"][segment - manifest.grouped])
        else:
            spans = self._spans_of(segment // manifest.group_size)
            found = int(spans["first_offset"][segment % manifest.group_size]) if len(spans) else low
        return min(max(found, low), high)

    def _spans_of(self, group: int) -> Structured:
        found = self._of_group.get(group)
        if found is None:
            found = self._of_group[group] = self._archive.group_spans(group, self._number)
        return found


def _clipped(spans: Structured, first_segment: int, start: int, stop: int) -> list[UnitRun]:
    """The parts of a row's spans that have units at the queue offsets ``[start, stop)``."""
    firsts = spans["first_offset"].astype(np.int64)
    lows, highs = np.maximum(firsts, start), np.minimum(firsts + spans["count"], stop)
    return [
        UnitRun(first_segment + index, low, int(spans["first_row"][index]) + low - int(firsts[index]), high - low)
        for index, low, high in zip(range(len(spans)), lows.tolist(), highs.tolist(), strict=True)
        if low < high
    ]


def stored(ref: ObjectRef) -> StoredObject:
    """An object of the manifest, for pages: its content names it in caches.

    One of the log has no checksum here: its records have their own, and all but the damaged ones can be read.
    """
    of_log = ref.name.startswith(f"{COMMIT_LOG}/")
    return StoredObject(ref.name, ref.size, ref.sha256[:32], None if of_log else ref.crc32, ref.checked_pages)


def read_object(pages: ObjectPages, url: str, ref: ObjectRef, start: int, stop: int) -> memoryview:
    """Bytes of an object that a manifest names. ``ArchiveDamaged`` without them."""
    try:
        return pages.read(stored(ref), start, min(stop, ref.size))
    except ObjectMissing:
        raise missing(url, ref.name) from None
    except ObjectCut as cut:
        expected, found = f"{ref.size} bytes", f"{cut.size} bytes"
        raise damaged(url, ref.name, offset=cut.size, expected=expected, found=found) from None
    except ObjectChanged as changed:
        raise other_bytes(url, ref.name, ref.size, ref.crc32, found=changed.crc32) from None
    except PageChanged as changed:
        raise other_page(url, ref.name, changed.page) from None
