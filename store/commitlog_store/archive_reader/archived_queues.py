"""ArchivedQueues: the queues of an archive, whose units lie in its unit objects, segment by segment."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import index

import numpy as np

from commitlog_store.archive.manifest import ObjectRef
from commitlog_store.archive_reader.opened_archive import OpenedArchive, stored
from commitlog_store.errors import FileMissing, InvalidValue, QueueNotFound, TopicNotFound
from commitlog_store.format.consume_queue_unit import FILLER_SIZE, UNIT_DTYPE, Units
from commitlog_store.object_storage.pages import ReadAhead
from commitlog_store.paths import validate_topic
from commitlog_store.queue.views import CatalogView, QueueView, out_of_range


class ArchivedQueue:
    """One queue, as one generation has it. A ``QueueView``."""

    # Units are made of the log's records, so a filler stands for messages that no record has any more: damaged ones.
    # Those of log files that were never archived are a ``FileMissing``, as those of a missing file are in a directory.
    fillers_are_lost = True

    def __init__(self, archive: OpenedArchive, topic: str, queue_id: int, number: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._archive = archive
        self._number = number

    def bounds(self) -> tuple[int, int]:
        return self._archive.bounds(self._number)

    def last_unit(self) -> tuple[int, int]:
        low, high = self.bounds()
        unit = self.unit(high - 1) if low < high else None
        return (-1, 0) if unit is None else (high - 1, unit[0])

    def first_offset_from(self, physical_offset: int, start: int, stop: int) -> int:
        if physical_offset == self._archive.hidden_from:
            return min(max(self._archive.shown_offset(self._number), start), stop)
        segment = bisect_right(self._archive.bases, physical_offset) - 1
        runs = self._archive.runs(self._number)
        low = max(runs.offset_at(max(segment, 0)), start)
        high = min(runs.offset_at(segment + 1), stop)
        for units in self._pieces(low, high, 1 << 16):
            later = np.flatnonzero((units["physical_offset"] >= physical_offset) & (units["size"] != FILLER_SIZE))
            if len(later):
                return low + int(later[0])
            low += len(units)
        return min(max(high, start), stop)

    def place_of(self, offset: int) -> tuple[str, int]:
        """The unit object that holds a unit, and the unit's first byte in it."""
        runs = self._archive.runs(self._number).between(offset, offset + 1)
        if not runs:
            return self._archive.url, 0
        units = self._archive.manifest.segments[runs[0].segment].units
        return f"{self._archive.url}/{units.name}", self._archive.unit_bytes(runs[0])[0]

    def unit(self, offset: int) -> tuple[int, int] | None:
        low, high = self.bounds()
        if not low <= offset < high:
            return None
        found = next(self._pieces(offset, offset + 1, 1))[0]
        return None if found["size"] == FILLER_SIZE else (int(found["physical_offset"]), int(found["size"]))

    def units(self, start: int, stop: int, *, chunk: int = 1_000_000, check: bool = True) -> Iterator[Units]:
        del check  # units of records are possible
        low, high = self.bounds()
        if start < stop and not low <= start < stop <= high:
            raise out_of_range(self, start, stop, (low, high))
        return self._up_to_gap(start, stop, chunk)

    def _up_to_gap(self, start: int, stop: int, chunk: int) -> Iterator[Units]:
        """The units up to those of log files that were never archived: then ``FileMissing``."""
        for low, high, path in self._archive.runs(self._number).gaps():
            if low < stop and start < high:
                if start < low:
                    yield from self._pieces(start, low, chunk)
                raise FileMissing(
                    path=path,
                    topic=self.topic,
                    queue_id=self.queue_id,
                    start=max(start, low),
                    stop=high,
                    why="the archive continues after it: retention deleted it before it was archived",
                    advice="Let retention wait for the archive from now on (retention_archive)",
                )
        yield from self._pieces(start, stop, chunk)

    def _pieces(self, start: int, stop: int, chunk: int) -> Iterator[Units]:
        for at in range(start, stop, chunk):
            end = min(at + chunk, stop)
            runs = self._archive.runs(self._number).between(at, end)
            if len(runs) == 1 and runs[0].count == end - at:
                yield self._archive.units(runs[0])
                continue
            units = np.zeros(end - at, UNIT_DTYPE)
            units["size"] = FILLER_SIZE
            for run in runs:
                units[run.start - at : run.stop - at] = self._archive.units(run)
            yield units

    def unit_places(self, start: int, stop: int) -> Iterator[tuple[ObjectRef, int, int]]:
        """Where the units ``[start, stop)`` are: the object of each segment, and the first and last byte in it."""
        for run in self._archive.runs(self._number).between(start, stop):
            yield (self._archive.manifest.segments[run.segment].units, *self._archive.unit_bytes(run))

    def offset_at(self, segment: int) -> int:
        """The queue offset of the first message in a segment, by its index, or after it."""
        return self._archive.runs(self._number).offset_at(segment)


def expect_units(ahead: ReadAhead, ranges: Sequence[tuple[QueueView, int, int]]) -> None:
    """The units of ranges ``(queue, start, stop)`` will be read: a segment has those of all queues back to back."""
    wanted: dict[ObjectRef, list[tuple[int, int]]] = {}
    for queue, start, stop in ranges:
        if isinstance(queue, ArchivedQueue) and start < stop:
            for units, low, high in queue.unit_places(start, stop):
                wanted.setdefault(units, []).append((low, high))
    for units, places in wanted.items():
        starts, stops = np.array(places, np.int64).T
        ahead.expect(stored(units), starts, stops)


class ArchivedCatalog(CatalogView):
    """The queues of an archive."""

    def __init__(self, archive: OpenedArchive) -> None:
        self.use(archive)

    def use(self, archive: OpenedArchive) -> None:
        """Show another generation from now on."""
        self._archive = archive
        self._ids: dict[str, list[int]] = {}
        for topic, queue_id in archive.numbers:
            self._ids.setdefault(topic, []).append(queue_id)

    def topics(self) -> list[str]:
        return sorted(self._ids)

    def queue_ids(self, topic: str) -> list[int]:
        validate_topic(topic)
        if topic not in self._ids:
            raise TopicNotFound(f"Topic {topic!r} has no message in the archive {self._archive.url}.")
        return sorted(self._ids[topic])

    def queue(self, topic: str, queue_id: int) -> ArchivedQueue:
        try:
            queue_id = index(queue_id)
        except TypeError:
            raise InvalidValue(f"queue_id is an int, not {queue_id!r}.") from None
        number = self._archive.numbers.get((topic, queue_id))
        if number is None:
            self.queue_ids(topic)
            raise QueueNotFound(
                f"Topic {topic!r} has no message in queue {queue_id} in the archive {self._archive.url}."
            )
        return ArchivedQueue(self._archive, topic, queue_id, number)
