"""KnownSizes and KnownTimes: bytes of queues and store times of messages, which open pages ask for again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple, TypeAlias

from commitlog_store.errors import CommitLogError
from commitlog_store.queries.queue_sizes import SAMPLE, queue_sizes
from commitlog_store.reader import QueueInfo, StoreReader

_AGE_S = 60.0
# Sizes that were measured in one look expire in so many steps within the second half of that time: one look that
# measures all of them again would be a long one.
_STEPS = 16
_MOST = 50_000

_Place: TypeAlias = tuple[str, int, int]


class _Known(NamedTuple):
    """The size of the messages from ``low`` to ``high``, which holds until then."""

    low: int
    high: int
    size: float
    until: float


class KnownSizes:
    """About how many bytes queues have. Of one store. Any number of threads: what two ask at once is asked twice.

    A size costs some 20 µs of the processor: units at both ends of the queue are read. It is remembered for a minute at
    most, and grows with the queue until a tenth of the messages are new or deleted: others may have another size. A
    short queue, whose size is exact, is measured whenever its bounds have changed.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # By topic and queue id.
        self._known: dict[tuple[str, int], _Known] = {}

    def of(self, reader: StoreReader, infos: Sequence[QueueInfo]) -> list[int | None]:
        """The bytes of each queue's messages; None where a queue of its topic cannot be read.

        The queues of a topic come one after the other.
        """
        now = self._clock()
        if len(self._known) > _MOST:
            self._known = {}
        known = self._known
        sizes = [_size_now(known.get((one.topic, one.queue_id)), one, now) for one in infos]
        missing = [place for place, size in enumerate(sizes) if size is None]
        measured = _measured(reader, [infos[place] for place in missing])
        for number, (place, size) in enumerate(zip(missing, measured, strict=True)):
            sizes[place] = size
            if size is not None:
                info, until = infos[place], now + _AGE_S * (1 - number % _STEPS / _STEPS / 2)
                known[info.topic, info.queue_id] = _Known(info.min_offset, info.max_offset, size, until)
        return [None if size is None else round(size) for size in sizes]


def _size_now(known: _Known | None, info: QueueInfo, now: float) -> float | None:
    """The size by what is remembered; None where it has to be measured."""
    if known is None or now >= known.until:
        return None
    new, gone = info.max_offset - known.high, info.min_offset - known.low
    if new == gone == 0:
        return known.size
    count, before = info.max_offset - info.min_offset, known.high - known.low
    is_alike = new >= 0 and gone >= 0 and 10 * max(new, gone) <= before
    return known.size * count / before if is_alike and count > 2 * SAMPLE else None


def _measured(reader: StoreReader, infos: Sequence[QueueInfo]) -> list[float | None]:
    """The size of each queue, all asked for at once; of single topics if one cannot be read, None for that one's."""
    try:
        return list(queue_sizes(reader, infos))
    except CommitLogError:
        found: list[float | None] = []
        for _, group in groupby(infos, key=lambda info: info.topic):
            found += _of_topic(reader, list(group))
        return found


def _of_topic(reader: StoreReader, infos: Sequence[QueueInfo]) -> Sequence[float | None]:
    try:
        return queue_sizes(reader, infos)
    except CommitLogError:
        return [None] * len(infos)


class KnownTimes:
    """The store times of messages. Of one store. Any number of threads: what two of them ask at once is asked twice.

    A time costs some 90 µs of the processor: its unit and its record are read. The message at a queue offset stays, so
    the time is remembered. It is for at most a minute: a store that lost its end in a crash has other messages there
    since.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[_Place, int] = {}
        self._until = clock() + _AGE_S
        self._most = _MOST

    def of(self, reader: StoreReader, places: Sequence[_Place]) -> list[int | CommitLogError]:
        """``StoreReader.store_timestamps``. Errors are not remembered. The messages must be there, by the bounds."""
        now = self._clock()
        self._most = max(self._most, 2 * len(places))  # else a long page would forget its own each time
        if now >= self._until or len(self._known) > self._most:
            self._known, self._until = {}, now + _AGE_S
        known, errors = self._known, dict[_Place, CommitLogError]()
        missing = [place for place in places if place not in known]
        if missing:
            for place, found in zip(missing, reader.store_timestamps(missing), strict=True):
                if isinstance(found, int):
                    known[place] = found
                else:
                    errors[place] = found
        return [errors[place] if place in errors else known[place] for place in places]
