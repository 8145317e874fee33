"""StoreStatsService: statistics of puts and reads: messages, bytes, rates, and how long each put took.

Source: RocketMQ ``store/StoreStatsService.java``.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

# Upper ends of the buckets; one more bucket counts puts that took longer than the last.
PUT_TIME_BUCKETS_MS = (0, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000)
# So many samples, one a second, are kept: RocketMQ shows rates over 10, 60 and 600 seconds.
_WINDOWS_SECONDS = (10, 60, 600)


class SlaveState(NamedTuple):
    """A connected slave: its address, the offset it asked for, what it has acknowledged, and what was sent.

    Offsets are physical; ``behind`` is how many bytes of the log it has not acknowledged. Before it has asked for
    anything, all of them are -1.

    ::

        with MessageStore.open("/data/store", MessageStoreConfig(ha_listen_address="127.0.0.1:0")) as store:
            print([(slave.address, slave.behind) for slave in store.slaves()])
    """

    address: str
    request_offset: int
    ack_offset: int
    sent_offset: int
    behind: int


@dataclass(frozen=True, kw_only=True)
class StoreStats:
    """Statistics of a store at one moment. Sizes are bytes of records, rates are messages a second.

    Messages count for the topic that they are stored in: delayed ones for the schedule's.

    ``delayed_delivered`` counts delayed messages that were delivered to their topics, ``delayed_skipped`` those that
    could not be delivered and were skipped; the log has a warning for the latter.

    ``put_times`` has one count for each of ``PUT_TIME_BUCKETS_MS`` and one for longer puts. ``get_...`` counts what
    readers of ``MessageStore.reader`` gave in batches (``read``, ``scan``, ``read_together``), with the bytes of the
    columns asked for, and what ``get_message`` and ``Consumer.poll`` read, with the bytes of the records. Other
    readers, of this process or another, are not seen. ``slaves`` are those that are connected.
    """

    put_message_times_total: int
    put_message_size_total: int
    put_message_failed_times: int
    put_message_entire_time_max_ms: float
    put_times: tuple[int, ...]
    put_tps: dict[int, float]
    topic_put_times: dict[str, int]
    topic_put_sizes: dict[str, int]
    dispatch_behind_bytes: int = 0
    get_message_transferred_msg_count: int = 0
    get_message_size_total: int = 0
    get_tps: dict[int, float] = field(default_factory=dict)
    topic_get_times: dict[str, int] = field(default_factory=dict)
    topic_get_sizes: dict[str, int] = field(default_factory=dict)
    delayed_delivered: int = 0
    delayed_skipped: int = 0
    slaves: tuple[SlaveState, ...] = ()


class StoreStatsService:
    """Counts puts; ``run_once`` takes a sample a second for the rates."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # A signal handler may put, or ask for statistics, while its own thread holds the lock.
        self._lock = threading.RLock()
        # By topic: messages and bytes.
        self._totals: dict[str, list[int]] = {}
        self._buckets = [0] * (len(PUT_TIME_BUCKETS_MS) + 1)
        self._failed = 0
        self._delayed_delivered = self._delayed_skipped = 0
        self._longest = 0.0  # seconds
        # By topic: messages and bytes that readers gave.
        self._gets: dict[str, list[int]] = {}
        # When each was taken; messages put, and messages read by then.
        self._samples: deque[tuple[float, int, int]] = deque([(clock(), 0, 0)], maxlen=_WINDOWS_SECONDS[-1] + 1)

    def put(self, topic: str, count: int, size: int, seconds: float) -> None:
        """Count a put of ``count`` messages of ``size`` bytes together that took ``seconds``."""
        # Nearly every put takes less than a millisecond.
        bucket = 0 if seconds < 0.001 else bisect_left(PUT_TIME_BUCKETS_MS, int(seconds * 1000))
        with self._lock:
            totals = self._totals.get(topic)
            if totals is None:
                totals = self._totals[topic] = [0, 0]
            totals[0] += count
            totals[1] += size
            self._buckets[bucket] += count
            if seconds > self._longest:
                self._longest = seconds

    def get(self, topic: str, count: int, size: int) -> None:
        """Count ``count`` messages that a reader gave, with ``size`` bytes together."""
        with self._lock:
            totals = self._gets.setdefault(topic, [0, 0])
            totals[0] += count
            totals[1] += size

    def failed(self) -> None:
        """Count a put that was not PUT_OK."""
        with self._lock:
            self._failed += 1

    def delivered(self, count: int, skipped: int) -> None:
        """Count delayed messages that were delivered, and such that were skipped."""
        with self._lock:
            self._delayed_delivered += count
            self._delayed_skipped += skipped

    def run_once(self) -> float:
        with self._lock:
            self._samples.append((self._clock(), _messages(self._totals), _messages(self._gets)))
        return 1.0

    def snapshot(self, dispatch_behind: int = 0, slaves: tuple[SlaveState, ...] = ()) -> StoreStats:
        with self._lock:
            total, read = _messages(self._totals), _messages(self._gets)
            return StoreStats(
                put_message_times_total=total,
                put_message_size_total=sum(size for _, size in self._totals.values()),
                put_message_failed_times=self._failed,
                put_message_entire_time_max_ms=self._longest * 1000,
                put_times=tuple(self._buckets),
                put_tps={window: self._rate(window, total, 1) for window in _WINDOWS_SECONDS},
                topic_put_times={topic: count for topic, (count, _) in self._totals.items()},
                topic_put_sizes={topic: size for topic, (_, size) in self._totals.items()},
                dispatch_behind_bytes=dispatch_behind,
                get_message_transferred_msg_count=read,
                get_message_size_total=sum(size for _, size in self._gets.values()),
                get_tps={window: self._rate(window, read, 2) for window in _WINDOWS_SECONDS},
                topic_get_times={topic: count for topic, (count, _) in self._gets.items()},
                topic_get_sizes={topic: size for topic, (_, size) in self._gets.items()},
                delayed_delivered=self._delayed_delivered,
                delayed_skipped=self._delayed_skipped,
                slaves=slaves,
            )

    def _rate(self, window: int, total: int, which: Literal[1, 2]) -> float:
        """Messages a second; ``which`` is the total's place in a sample."""
        now = self._clock()
        since = next((sample for sample in self._samples if now - sample[0] <= window), self._samples[-1])
        elapsed = now - since[0]
        return (total - since[which]) / elapsed if elapsed > 0 else 0.0


def _messages(totals: dict[str, list[int]]) -> int:
    return sum(count for count, _ in totals.values())
