"""QueueTurns: the queue of a message that is put by itself and names none, chosen as for the rows of a table.

The number of a topic's queues is kept for a second: a put takes microseconds, and asking for it takes some of them.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from commitlog_store.format.java_hash import string_hash_code

_READ_AGAIN_S = 1.0


class QueueTurns:
    """Chooses queues: by sharding key, or in turn. Any number of threads may ask.

    ``queue_count`` gives the number of queues that a topic's messages are spread over; its errors are raised here.
    """

    def __init__(
        self,
        queue_count: Callable[[str], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue_count = queue_count
        self._clock = clock
        self._read_again_at = 0.0
        # A turn is one step of C, so that two threads never get the same one.
        self._turns: dict[str, Callable[[], int]] = {}
        # Each topic's turns and number of queues.
        self._known: dict[str, tuple[Callable[[], int], int]] = {}

    def in_turn(self, topic: str) -> int:
        """The topic's next queue; the first one is queue 0."""
        known = self._known.get(topic)
        if known is None or self._clock() >= self._read_again_at:
            known = self._of(topic)
        return known[0]() % known[1]

    def in_turn_at_once(self, topic: str) -> int | None:
        """``in_turn``, or None where it would ask for the number of queues."""
        known = self._known.get(topic)
        return None if known is None or self._clock() >= self._read_again_at else known[0]() % known[1]

    def of_sharding_key(self, topic: str, key: str) -> int:
        """The queue of all messages with this key: its Java hash code, without sign, modulo the number of queues."""
        return abs(string_hash_code(key)) % self._of(topic)[1]

    def _of(self, topic: str) -> tuple[Callable[[], int], int]:
        now = self._clock()
        if now >= self._read_again_at:
            self._known.clear()
            self._read_again_at = now + _READ_AGAIN_S
        known = self._known.get(topic)
        if known is None:
            turn = self._turns.setdefault(topic, itertools.count().__next__)
            known = self._known[topic] = (turn, self._queue_count(topic))
        return known
