"""SettledAnswers: what a reader has found out about queues, kept for as long as the store stays settled.

A trigger asks for the bounds and fences of the same thousands of queues several times, and looks at the files of each.
While no queue changes (``StoreReader.settled_state``), one look at the store's state stands for all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from commitlog_store.errors import CommitLogError
from commitlog_store.format.consume_queue_unit import FILLER_SIZE, Units
from commitlog_store.queue.consume_queue import are_possible
from commitlog_store.queue.fence import Fence
from commitlog_store.queue.log_blocks import QueueRange
from commitlog_store.queue.views import QueueInfo, QueueView

# The state of the store takes as long to ask for as the bounds of some queues.
_FEWEST = 16
# Fences that are asked for together and kept, of some 300 bytes each, and queues whose units are kept. Twice as many
# fences are in memory at most.
_MOST = 16_384
# The same of bounds, of some 200 bytes each.
MOST_BOUNDS = 131_072
# Units of a queue that are read at once where one is wanted: 640 bytes, for the next triggers too.
UNITS_AHEAD = 32


class SettledAnswers:
    """The answers of one reader. Each dictionary has those of the state that ``now`` saw last."""

    __slots__ = ("_settled_state", "_state", "_units", "bounds", "fences")

    def __init__(self, settled_state: Callable[[], object | None]) -> None:
        self._settled_state = settled_state
        self._state: object | None = None
        self.bounds: dict[tuple[str, int], QueueInfo] = {}
        self.fences: dict[tuple[str, int, int], Fence] = {}
        # Some good units of a queue, and the offset of the first one.
        self._units: dict[tuple[str, int], tuple[int, Units]] = {}

    def now(self, asked: int, most: int = _MOST) -> SettledAnswers | None:
        """The answers that hold now, to look in and to add to; None while queues may change, and for few or very many.

        ``asked``: how many answers are wanted. More than ``most`` are not kept.
        """
        if not _FEWEST <= asked <= most:
            return None
        state = self._settled_state()
        if state is None or state != self._state or self._would_be_full(asked):
            self.bounds.clear()
            self.fences.clear()
            self._units.clear()
        self._state = state
        return None if state is None else self

    def _would_be_full(self, asked: int) -> bool:
        return len(self.bounds) + asked > 2 * MOST_BOUNDS or len(self.fences) > _MOST

    def units(self, queue: QueueView, start: int, stop: int) -> Units | None:
        """A few good units of a queue whose bounds are known; None if they are to be read as others are."""
        if (known := self.known_units(queue, start, stop)) is not None:
            return known
        if not 0 < stop - start <= UNITS_AHEAD or (queue.topic, queue.queue_id) not in self.bounds:
            return None
        ahead = self.with_units_ahead(queue, start, stop)
        found = _good_units(*ahead)
        if found is None or len(found) < stop - start:
            return None
        self.keep_units(ahead, found)
        return found[: stop - start]

    def known_units(self, queue: QueueView, start: int, stop: int) -> Units | None:
        """``units`` that were read before."""
        first, units = self._units.get((queue.topic, queue.queue_id), (stop, None))
        if units is None or not first <= start < stop <= first + len(units):
            return None
        return units[start - first : stop - first]

    def with_units_ahead(self, queue: QueueView, start: int, stop: int) -> QueueRange:
        """A range with those units after it that are read together with a few."""
        info = self.bounds.get((queue.topic, queue.queue_id))
        if info is None or not 0 < stop - start <= UNITS_AHEAD:
            return queue, start, stop
        return queue, start, min(max(stop, start + UNITS_AHEAD), info.max_offset)

    def keep_units(self, read: QueueRange, units: Units) -> None:
        """Keep good units, of the beginning of a range at least. Many of one queue are not kept."""
        queue, start, _ = read
        if len(units) > UNITS_AHEAD:
            return
        if len(self._units) >= _MOST:
            self._units.clear()
        # A copy, if it is a part: of a view, all units that were read together would stay in memory.
        self._units[queue.topic, queue.queue_id] = start, units if units.base is None else units.copy()

    def place(self, topic: str, queue_id: int, offset: int) -> int | None:
        """The physical offset of a message; None if its unit was not read."""
        first, units = self._units.get((topic, queue_id), (0, None))
        if units is None or not first <= offset < first + len(units):
            return None
        return int(units["physical_offset"][offset - first])


def _good_units(queue: QueueView, start: int, stop: int) -> Units | None:
    """The units up to the end of a file; None where one is damaged, a filler, or missing."""
    with contextlib.suppress(CommitLogError):
        found = next(queue.units(start, stop, check=False), None)
        if found is not None and (are_possible(found) & (found["size"] != FILLER_SIZE)).all():
            found.flags.writeable = False
            return found
    return None
