"""SettledAnswers: what a reader has found out about queues, kept for as long as the store stays settled.

A trigger asks for the bounds and fences of the same thousands of queues several times, and looks at the files of each.
While no queue changes (``StoreReader.settled_state``), one look at the store's state stands for all of them.
"""

from __future__ import annotations

from collections.abc import Callable

from commitlog_store.queue.fence import Fence
from commitlog_store.queue.views import QueueInfo

# The state of the store takes as long to ask for as the bounds of some queues.
_FEWEST = 16
# Queues and fences in memory, of some 300 bytes each.
_MOST = 16_384


class SettledAnswers:
    """The answers of one reader. Each dictionary has those of the state that ``now`` saw last."""

    __slots__ = ("_settled_state", "_state", "bounds", "fences")

    def __init__(self, settled_state: Callable[[], object | None]) -> None:
        self._settled_state = settled_state
        self._state: object | None = None
        self.bounds: dict[tuple[str, int], QueueInfo] = {}
        self.fences: dict[tuple[str, int, int], Fence] = {}

    def now(self, asked: int) -> SettledAnswers | None:
        """The answers that hold now, to look in and to add to; None while queues may change, and for few or very many.

        ``asked``: how many answers are wanted.
        """
        if not _FEWEST <= asked <= _MOST:
            return None
        state = self._settled_state()
        if state is None or state != self._state or len(self.bounds) + len(self.fences) + asked > 2 * _MOST:
            self.bounds.clear()
            self.fences.clear()
        self._state = state
        return None if state is None else self
