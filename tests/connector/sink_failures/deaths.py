"""Commits of a query that die at chosen file operations, and an account of which of them did.

A commit has another number of operations each time: more when the log continues in its next file, and fewer after a
crash that came when the batch was stored. So how many there are is learnt from commits that are let through, and a
commit that comes to its end though it was to die has to have had fewer than that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from tests.connector.sink_failures.query import Query
from tests.support.long_runs import Progress

# How often a point is tried at which a commit does not die because it has fewer operations.
_TRIES = 2


def points(sizes: Sequence[int], step: int) -> list[int]:
    """All operations of commits that have so many; or one in ``step`` of those that all of them have, and the last."""
    if step == 1:
        return list(range(1, max(sizes) + 1))
    return sorted({*range(1, min(sizes), step), min(sizes)})


class Deaths:
    """``kind`` is that of ``Failure``."""

    def __init__(self, query: Query, kind: str, progress: Progress) -> None:
        self._query = query
        self._kind = kind
        self._progress = progress

    def sizes_on_a_clean_store(self, count: int) -> list[int]:
        """How many operations each of so many commits has; the store's first one comes before them."""
        self._query.source.add(1 + count)
        self._query.run_well()
        return self._query.sizes(self._kind)[-count:]

    def sizes_after_a_crash(self, turn: int, count: int) -> list[int]:
        """How many operations each of so many commits has, when the one before was cut off at its ``turn``-th."""
        sizes = []
        for _ in range(count):
            self._query.source.add()
            assert self.die(turn)
            self._query.run_well()
            sizes.append(self._query.sizes(self._kind)[-1])
        return sizes

    def die(self, turn: int) -> bool:
        """Whether the commit of the last batch died at its ``turn``-th operation; if not, it had no such one."""
        query = self._query
        before = query.exits
        query.fail(self._kind, batch=query.source.count - 1, turn=turn)
        error = query.run()
        assert not query.plan.exists(), "no commit came"
        if query.exits == before:
            assert not error, error
            assert query.sizes(self._kind)[-1] < turn, "it had such an operation and did not die at it"
            return False
        assert error
        assert query.exits == [*before, turn]
        return True

    def go_through(self, clean: Sequence[int], after: Sequence[int], turn: int) -> int:
        """Each batch dies at a point of ``clean``, and again, after that crash, at one of ``after``.

        When there are no more of ``clean``, it is at ``turn`` that the crash comes. How many of the points were one of
        a commit and so deadly: the others lie after the end of several.
        """
        left, left_after = _Points(clean), _Points(after)
        while left or left_after:
            self._query.source.add()
            if left:
                crashed = left.try_next(self.die)
            else:
                crashed = self.die(turn)
                assert crashed
            if crashed and left_after:
                # After a late crash there is little to do, so that says nothing of the point.
                left_after.try_next(self.die, for_good=not left)
            self._progress.count("deaths", left.deaths + left_after.deaths)
        return left.deaths + left_after.deaths


class _Points:
    """Those that are yet to be tried. One at which no commit died is tried again, after the others, a few times."""

    def __init__(self, points: Sequence[int]) -> None:
        self.deaths = 0
        self._left = deque((point, _TRIES) for point in points)

    def __bool__(self) -> bool:
        return bool(self._left)

    def try_next(self, die: Callable[[int], bool], *, for_good: bool = True) -> bool:
        """Whether there was a death; a try that is not ``for_good`` does not count as one."""
        point, tries = self._left.popleft()
        died = die(point)
        self.deaths += died
        if not died and tries > for_good:
            self._left.append((point, tries - for_good))
        return died
