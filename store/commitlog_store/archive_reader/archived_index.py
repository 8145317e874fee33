"""ArchivedIndex: messages of an archive by key, through the index objects of its segments.

A segment without the key costs one request of a page or two, and one with it at most one more, besides the records.
Segments are asked from the newest to the oldest, those of other times not at all, some at a time before their answers
are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from commitlog_store.archive.damage import damaged
from commitlog_store.archive.index_objects import (
    INDEX_HEAD,
    INDEX_ROW_SIZE,
    PLACE_SIZE,
    decode_places,
    decode_rows,
    mixed_hashes,
    places_start,
    window,
)
from commitlog_store.archive.manifest import Segment
from commitlog_store.archive_reader.opened_archive import OpenedArchive, stored
from commitlog_store.format.arrays import BoolArray, Int32Array, Int64Array
from commitlog_store.format.java_hash import index_key_hash
from commitlog_store.index.many_keys import KeyHits
from commitlog_store.index.service import IndexFileInfo, IndexHit
from commitlog_store.object_storage.checked_pages import content_of, stored_place
from commitlog_store.object_storage.pages import ObjectPages, ReadAhead

# How many segments are asked for a key at a time, while the answers of those before are read: from few to many, since
# a key that many messages have is found in the newest ones.
_FIRST_STEP, _LONGEST_STEP = 2, 16
# Records that are fetched ahead: as many as a query gives by default.
_RECORDS_AHEAD = 64
# With so many keys, all rows of a segment are read.
_MANY_KEYS = 256


class ArchivedIndex:
    """The index of one generation after another. A ``KeyIndex``."""

    def __init__(self, archive: OpenedArchive, pages: ObjectPages) -> None:
        self._archive = archive
        self._pages = pages

    def use(self, archive: OpenedArchive) -> None:
        """Show another generation from now on."""
        self._archive = archive

    def files(self) -> list[IndexFileInfo]:
        """The index objects, as index files are shown."""
        return [
            IndexFileInfo(
                path=f"{self._archive.url}/{one.index.name}",
                begin_timestamp=one.first_timestamp_ms,
                end_timestamp=one.last_timestamp_ms,
                begin_physical_offset=one.start,
                end_physical_offset=one.tail_stop,
                slot_count=one.index_rows,
                index_count=(one.index.content_size - places_start(one.index_rows)) // PLACE_SIZE,
            )
            for one in self._archive.manifest.segments
            if one.index_rows
        ]

    def candidates(self, topic: str, key: str, begin: int, end: int, *, strict: bool) -> Iterator[IndexHit]:
        """See ``KeyIndex``. ``ArchiveDamaged``, ``ArchiveFailed``."""
        del strict  # which is for index files that an owner is writing
        hashes = np.array([index_key_hash(f"{topic}#{key}")], np.int32)
        segments = [
            one
            for one in reversed(self._archive.manifest.segments)
            if one.first_timestamp_ms <= end and one.last_timestamp_ms >= begin
        ]
        ahead = self._pages.ahead()
        try:
            for hits in self._hits(segments, hashes, ahead):
                for first, places in hits.places_of(0):
                    for number in range(len(places) - 1, -1, -1):
                        if (len(places) - 1 - number) % _RECORDS_AHEAD == 0:
                            hits.expect_records(places[max(number - _RECORDS_AHEAD + 1, 0) : number + 1])
                        yield IndexHit(
                            hits.segment.start + int(places[number]), hits.path, hits.byte_of_place(first + number)
                        )
        finally:
            ahead.close()

    def hits_of(self, key_hashes: Int32Array) -> Iterator[KeyHits]:
        """See ``KeyIndex``. ``ArchiveDamaged``, ``ArchiveFailed``."""
        ahead = self._pages.ahead()
        try:
            yield from self._hits(self._archive.manifest.segments[::-1], key_hashes, ahead)
        finally:
            ahead.close()

    def refuse_damaged_index(self, hit: IndexHit) -> None:
        """See ``KeyIndex``. ``ArchiveDamaged``."""
        for segment in self._archive.manifest.segments:
            if hit.path.endswith(f"/{segment.index.name}"):
                self._archive.refuse_changed(segment.index)

    def _hits(self, segments: Sequence[Segment], hashes: Int32Array, ahead: ReadAhead) -> Iterator[_SegmentHits]:
        """What each segment has, asked for some segments ahead."""
        mixed = mixed_hashes(hashes).astype(np.int64)
        coming: list[_SegmentHits] = []
        indexed = [one for one in segments if one.index_rows]
        start, step = 0, _FIRST_STEP
        while start < len(indexed):
            new = [_SegmentHits(self._archive, one, mixed, ahead) for one in indexed[start : start + step]]
            start, step = start + step, min(2 * step, _LONGEST_STEP)
            for one in new:
                one.expect_rows()
            yield from coming
            coming = new
        yield from coming


class _SegmentHits:
    """Where the messages of keys may be within one segment. A ``KeyHits``."""

    def __init__(self, archive: OpenedArchive, segment: Segment, mixed: Int64Array, ahead: ReadAhead) -> None:
        self.segment = segment
        self.given_up: BoolArray = np.zeros(len(mixed), np.bool_)
        self._archive = archive
        self._mixed = mixed
        self._ahead = ahead
        self._rows = segment.index_rows
        self._places = (segment.index.content_size - places_start(self._rows)) // PLACE_SIZE
        # The places of keys that were found, those that were not taken yet.
        self._left: dict[int, Int64Array] | None = None

    @property
    def path(self) -> str:
        return f"{self._archive.url}/{self.segment.index.name}"

    def byte_of_place(self, number: int) -> int:
        """Where in the index object a place is."""
        return stored_place(places_start(self._rows) + number * PLACE_SIZE)

    def expect_rows(self) -> None:
        """Say that the rows of the keys will be read."""
        if len(self._mixed) > _MANY_KEYS:
            windows = [(0, self._rows)]
        else:
            windows = sorted(window(mixed, self._rows) for mixed in self._mixed.tolist())
        starts = np.array([low for low, _ in windows], np.int64) * INDEX_ROW_SIZE + INDEX_HEAD
        stops = np.array([high for _, high in windows], np.int64) * INDEX_ROW_SIZE + INDEX_HEAD
        # One more row says where the last one's places end.
        stops = np.minimum(stops + INDEX_ROW_SIZE, self.segment.index.content_size)
        self._ahead.expect(stored(self.segment.index), stored_place(starts), stored_place(stops - 1) + 1)

    def expect_records(self, places: Int64Array) -> None:
        """Say that the records at these places will be read."""
        self._ahead.expect(stored(self.segment.log), places, np.minimum(places + 1, self.segment.log.size))

    def places_of(self, key: int) -> Iterator[tuple[int, Int64Array]]:
        """The first place of a key, and all of its places; nothing where the segment does not have it."""
        for _, first, stop in self._found(np.array([key])):
            yield first, self._read_places(first, stop)

    def next_hits(self, keys: Int64Array) -> tuple[Int64Array, Int64Array]:
        """See ``KeyHits``. ``ArchiveDamaged``, ``ArchiveFailed``."""
        if self._left is None:
            self._left = {key: self._read_places(first, stop) for key, first, stop in self._found(keys)}
        found: list[int] = []
        offsets: list[int] = []
        for key in keys.tolist():
            places = self._left.get(key)
            if places is not None and len(places):
                found.append(key)
                offsets.append(self.segment.start + int(places[-1]))
                self._left[key] = places[:-1]
        return np.array(found, np.int64), np.array(offsets, np.int64)

    def release(self) -> None:
        """Drop the places."""
        self._left = {}

    def _found(self, keys: Int64Array) -> list[tuple[int, int, int]]:
        """Of these keys those that the segment has, each with its places ``[first, stop)``."""
        if len(keys) <= _MANY_KEYS:
            return [(key, *places) for key in keys.tolist() if (places := self._look_for(int(self._mixed[key])))]
        mixed, firsts = self._read_rows(0, self._rows)
        rows = np.minimum(np.searchsorted(mixed, self._mixed[keys]), len(mixed) - 1)
        hits = np.flatnonzero(mixed[rows] == self._mixed[keys])
        rows = rows[hits]
        return list(zip(keys[hits].tolist(), firsts[rows].tolist(), firsts[rows + 1].tolist(), strict=True))

    def _look_for(self, mixed: int) -> tuple[int, int] | None:
        """The places of a key; None where the segment does not have it."""
        width = 1
        while True:
            low, high = window(mixed, self._rows, width)
            found, firsts = self._read_rows(low, high)
            row = int(np.searchsorted(found, mixed))
            if row < len(found) and found[row] == mixed:
                return int(firsts[row]), int(firsts[row + 1])
            if (row > 0 or low == 0) and (row < len(found) or high == self._rows):
                return None
            width *= 4

    def _read_rows(self, low: int, high: int) -> tuple[Int64Array, Int64Array]:
        """The mixed hashes of rows, and the first places of these and of the next row. ``ArchiveDamaged``."""
        start, stop = (INDEX_HEAD + row * INDEX_ROW_SIZE for row in (low, min(high + 1, self._rows)))
        rows = decode_rows(self._content(start, stop))
        mixed, firsts = rows["mixed"].astype(np.int64), rows["first"].astype(np.int64)
        if high == self._rows:
            firsts = np.append(firsts, self._places)
        whole = len(firsts) == high - low + 1 and int(firsts[-1]) <= self._places
        if not whole or (np.diff(mixed) <= 0).any() or (np.diff(firsts) <= 0).any():
            raise damaged(
                *(self._archive.url, self.segment.index.name),
                offset=start,
                expected=f"rows {low} to {high} that ascend",
                found="others",
            ).advised("Reads by offset, time and message id do not need it.")
        return mixed[: high - low], firsts

    def _read_places(self, first: int, stop: int) -> Int64Array:
        start = places_start(self._rows)
        return decode_places(self._content(start + first * PLACE_SIZE, start + stop * PLACE_SIZE))

    def _content(self, start: int, stop: int) -> memoryview:
        """Bytes of the content of the index object. ``ArchiveDamaged``, ``ArchiveFailed``."""
        index = self.segment.index
        if start >= stop:
            return memoryview(b"")
        return content_of(self._archive.read(index, stored_place(start), stored_place(stop - 1) + 1), start)
