"""KnownTimes: the store times of messages that open pages ask for again and again.

A time costs some 90 µs of the processor: its unit and its record are read. The message at a queue offset stays, so the
time is remembered. It is for at most a minute: a store that lost its end in a crash has other messages there since.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from commitlog_store.errors import CommitLogError
from commitlog_store.reader import StoreReader

_Place: TypeAlias = tuple[str, int, int]
_HALF_LIFE_S = 30.0
_MOST = 50_000


class KnownTimes:
    """Of one store. Any number of threads: what two of them ask at once is asked twice."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turned_at = clock()
        # What was asked for within the last half life, and within the one before it.
        self._young: dict[_Place, int] = {}
        self._old: dict[_Place, int] = {}

    def of(self, reader: StoreReader, places: Sequence[_Place]) -> list[int | CommitLogError]:
        """``StoreReader.store_timestamps``. Errors are not remembered. The messages must be there, by the bounds."""
        young, old = self._now()
        found: dict[_Place, int | CommitLogError] = {}
        missing: list[_Place] = []
        for place in places:
            known = young.get(place) or old.get(place)
            if known is None:
                missing.append(place)
            else:
                found[place] = known
        if missing:
            for place, asked in zip(missing, reader.store_timestamps(missing), strict=True):
                found[place] = asked
                if isinstance(asked, int):
                    young[place] = asked
        return [found[place] for place in places]

    def _now(self) -> tuple[dict[_Place, int], dict[_Place, int]]:
        """Both, turned over when it is time, or when there are too many."""
        now = self._clock()
        young, old = self._young, self._old
        if now - self._turned_at >= _HALF_LIFE_S or len(young) > _MOST:
            # After a pause of two half lives, both are too old.
            old = {} if now - self._turned_at >= 2 * _HALF_LIFE_S else young
            young = {}
            self._young, self._old, self._turned_at = young, old, now
        return young, old
