"""LatestAnswer: the answer to a long question, asked once for all who want it.

What needs every queue of a store takes half a second at 8,000 of them. It is asked when a visitor wants it, and the
answer serves all visitors for a while that grows with what it took.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from commitlog_store.reader import StoreReader

_T = TypeVar("_T")
_LEAST_AGE_S = 2.0
# An answer is kept for so many times as long as it took.
_TIMES = 20.0
# So old an answer is given to those who would wait for another one's question.
_MOST_AGE_S = 60.0


@dataclass(frozen=True)
class _Kept(Generic[_T]):
    value: _T
    at: float
    took: float
    state: object | None

    def is_fresh(self, least_age_s: float) -> bool:
        return time.monotonic() - self.at < max(least_age_s, _TIMES * self.took)


class LatestAnswer(Generic[_T]):
    """Any number of threads; one of them asks."""

    def __init__(
        self,
        ask: Callable[[StoreReader], _T],
        *,
        changes_with_queues_only: bool = False,
        least_age_s: float = _LEAST_AGE_S,
    ) -> None:
        """``changes_with_queues_only``: the answer stays while ``StoreReader.settled_state`` does.

        It is asked again after ``least_age_s`` at the earliest.
        """
        self._ask = ask
        self._looks_at_state = changes_with_queues_only
        self._least_age_s = least_age_s
        self._asking = threading.Lock()
        self._kept: _Kept[_T] | None = None

    def of(self, reader: StoreReader) -> _T:
        """The errors of the question."""
        kept = self._kept
        if kept is not None:
            is_usable = time.monotonic() - kept.at < _MOST_AGE_S
            if kept.is_fresh(self._least_age_s) or (is_usable and self._asking.locked()):
                return kept.value
        with self._asking:
            kept = self._kept
            if kept is None or not kept.is_fresh(self._least_age_s):
                kept = self._kept = self._again(reader, kept)
            return kept.value

    def peek(self) -> _T | None:
        """The last answer, if there is one: nothing is asked."""
        return None if self._kept is None else self._kept.value

    def _again(self, reader: StoreReader, kept: _Kept[_T] | None) -> _Kept[_T]:
        begun = time.monotonic()
        state = reader.settled_state() if self._looks_at_state else None
        if state is not None and kept is not None and kept.state == state:
            return replace(kept, at=begun)
        value = self._ask(reader)
        now = time.monotonic()
        return _Kept(value, now, now - begun, state)
