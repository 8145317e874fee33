"""``CheckedPositions``: what planning knows of the positions that it compared, kept while no queue changes.

A query that reads a backlog of thousands of queues plans many batches of the same state of the store. It would compare
the fences of all queues, and look for the age of each one's next message, for each of them again.
"""

from __future__ import annotations

from collections.abc import Mapping

from commitlog_store import Fence
from pyspark_commitlog.options.subscription import QueueKey


class CheckedPositions:
    """``begin`` says in which state the store is; what was found in another state, or in none, is dropped then."""

    def __init__(self) -> None:
        self.state: object | None = None
        # By queue, of the last position that was asked for: the fence that the store has before it, and the physical
        # offset of the message there.
        self._fences: dict[QueueKey, tuple[int, Fence]] = {}
        self._places: dict[QueueKey, tuple[int, int]] = {}

    def begin(self, state: object | None) -> None:
        """``state``: of ``StoreReader.settled_queue_infos``."""
        if state is None or state != self.state:
            self._fences.clear()
            self._places.clear()
        self.state = state

    def has_fence(self, key: QueueKey, position: int, fence: Fence | None) -> bool:
        """Whether the store has this fence before a position, without a question."""
        return fence is not None and self._fences.get(key) == (position, fence)

    def add_fences(self, positions: Mapping[QueueKey, int], fences: Mapping[QueueKey, Fence]) -> None:
        """The store has these fences before these positions, or nothing to compare them with."""
        if self.state is not None:
            self._fences.update({key: (positions[key], fence) for key, fence in fences.items()})

    def place(self, key: QueueKey, position: int) -> int | None:
        """The physical offset of the message at a position; None if it is not known."""
        at, place = self._places.get(key, (-1, 0))
        return place if at == position else None

    def add_place(self, key: QueueKey, position: int, place: int) -> None:
        if self.state is not None:
            self._places[key] = position, place
