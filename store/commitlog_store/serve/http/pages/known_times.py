"""KnownTimes: the store times of messages that open pages ask for again and again.

A time costs some 90 µs of the processor: its unit and its record are read. The message at a queue offset stays, so the
time is remembered. It is for at most a minute: a store that lost its end in a crash has other messages there since.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from commitlog_store.errors import CommitLogError
from commitlog_store.reader import StoreReader

_Place: TypeAlias = tuple[str, int, int]
_HALF_LIFE_S = 30.0
_MOST = 50_000


class _Times(NamedTuple):
    """What was read from ``since`` on, within one half life."""

    since: float
    known: dict[_Place, int]


class KnownTimes:
    """Of one store. Any number of threads: what two of them ask at once is asked twice."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._young = self._old = _Times(clock(), {})

    def of(self, reader: StoreReader, places: Sequence[_Place]) -> list[int | CommitLogError]:
        """``StoreReader.store_timestamps``. Errors are not remembered. The messages must be there, by the bounds."""
        young, old = (times.known for times in self._now())
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

    def _now(self) -> tuple[_Times, _Times]:
        """The young and the old ones: turned over when it is time or there are too many, and none too old."""
        now = self._clock()
        young, old = self._young, self._old
        if now - young.since >= _HALF_LIFE_S or len(young.known) > _MOST:
            young, old = _Times(now, {}), young
        if now - old.since >= 2 * _HALF_LIFE_S:
            old = _Times(now, {})
        self._young, self._old = young, old
        return young, old
