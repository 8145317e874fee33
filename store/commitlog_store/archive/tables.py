"""QueueTables: where the units of each queue are, while an archive grows by segments; makes catalogs and groups of it.

The catalog of the last generation says it all; ``catalog`` has the terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from commitlog_store.archive.catalog import SPAN_DTYPE, Catalog
from commitlog_store.archive.queue_names import QueueName, Structured
from commitlog_store.archive.unit_objects import QueuePart
from commitlog_store.format.arrays import Int64Array
from commitlog_store.format.record import MIN_RECORD_SIZE
from commitlog_store.paths import LIGHT_QUEUE_PREFIX
from commitlog_store.queue.derived_queues import MISSING_BEFORE_ONE, MISSING_BEFORE_SEVERAL


class QueueTables:
    """The queues of an archive by number, their bounds, and their spans in the segments that are in no group yet."""

    def __init__(self, catalog: Catalog | None = None, *, order: Mapping[QueueName, int] | None = None) -> None:
        """Those of a catalog; or none, and ``order`` may say in which order queues that come together get numbers."""
        self._order = order or {}
        self.queues: list[QueueName] = [] if catalog is None else list(catalog.queues)
        self._numbers = {name: number for number, name in enumerate(self.queues)}
        nothing: Int64Array = np.zeros(0, np.int64)
        self._min = nothing if catalog is None else catalog.min_offsets
        self._max = nothing if catalog is None else catalog.max_offsets
        self._shown = nothing if catalog is None else catalog.shown_offsets
        # One array a group, and one a segment; queues that came later have no row in earlier ones.
        self._groups: list[Int64Array] = []
        self._spans: list[Structured] = []
        if catalog is not None:
            self._groups = list(catalog.group_offsets.T)
            self._spans = list(catalog.spans.T)

    @property
    def open_segments(self) -> int:
        """How many segments are in no group."""
        return len(self._spans)

    def add(self, queues: Iterable[QueuePart], gap: int = 0) -> int:
        """Add a segment, before which ``gap`` bytes of the log are missing. Returns the units that got no place.

        Where two records claim one offset, the first one counts. A queue whose offsets are far from those before is
        damaged: its units get no place.
        """
        found = list(queues)
        self._number(found)
        spans = np.zeros(len(self.queues), SPAN_DTYPE)
        spans["first_offset"] = self._max
        strays, row = 0, 0
        for queue in found:
            number = self._numbers[queue.name]
            count, first, end = queue.length, queue.first_offset, int(self._max[number])
            if queue.name[0].startswith(LIGHT_QUEUE_PREFIX):
                first = end  # its units follow each other, whatever the messages' offsets
            taken = min(max(end - first, 0), count)
            slack = MISSING_BEFORE_SEVERAL if count > 1 else MISSING_BEFORE_ONE
            if first - end > slack + gap // MIN_RECORD_SIZE:
                taken = count
            strays += taken
            if taken < count:
                spans[number] = (first + taken, row + taken, count - taken)
                self._max[number] = first + count
            row += count
        self._spans.append(spans)
        return strays

    def _number(self, queues: list[QueuePart]) -> None:
        """Give numbers to queues that have none, with the first offset as both bounds."""
        new = [queue for queue in queues if queue.name not in self._numbers]
        new.sort(key=lambda queue: self._order.get(queue.name, 0))
        for queue in new:
            self._numbers[queue.name] = len(self.queues)
            self.queues.append(queue.name)
        firsts = np.array([queue.first_offset for queue in new], np.int64)
        self._min = np.concatenate((self._min, firsts))
        self._max = np.concatenate((self._max, firsts))
        self._shown = np.concatenate((self._shown, firsts))

    def show_all(self, *, but: Mapping[QueueName, int] | None = None) -> None:
        """Every message is shown; or ``but`` so many of a queue's last ones, which are in the last segment.

        Without a call, what a segment adds is not shown.
        """
        self._shown = self._max.copy()
        for name, hidden in (but or {}).items():
            number = self._numbers[name]
            self._shown[number] -= min(hidden, int(self._spans[-1]["count"][number]))

    def drop_last(self) -> None:
        """Take back the last segment, in whose place another one comes."""
        spans = self._spans.pop()
        had_units = self._padded(spans)["count"] > 0
        self._max = np.where(had_units, self._padded(spans)["first_offset"], self._max)

    def close_group(self) -> Structured:
        """Make a group of all segments that are in none: (queues, segments) spans."""
        spans = self._matrix()
        self._groups.append(spans["first_offset"][:, 0].astype(np.int64))
        self._spans = []
        return spans

    def catalog(self) -> Catalog:
        """The catalog of all this."""
        count = len(self.queues)
        groups = np.zeros((count, len(self._groups)), np.int64)
        for index, offsets in enumerate(self._groups):
            groups[: len(offsets), index] = offsets
            groups[len(offsets) :, index] = self._min[len(offsets) :]
        return Catalog(list(self.queues), self._min, self._max, self._shown, groups, self._matrix())

    def _matrix(self) -> Structured:
        # Not np.stack, which gives native byte order.
        spans = np.zeros((len(self.queues), len(self._spans)), SPAN_DTYPE)
        for index, one in enumerate(self._spans):
            spans[:, index] = self._padded(one)
        return spans

    def _padded(self, spans: Structured) -> Structured:
        """The spans of one segment for all queues."""
        padded = np.zeros(len(self.queues), SPAN_DTYPE)
        padded["first_offset"] = self._min
        padded[: len(spans)] = spans
        return padded
