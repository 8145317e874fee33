"""StoreStatsService: statistics of puts and reads: messages, bytes, rates, and how long each put and pull took.

Source: RocketMQ ``store/StoreStatsService.java``.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from commitlog_store.columnar.dispatch import DispatchRequests
from commitlog_store.columnar.dispatch_keys import IndexEntries
from commitlog_store.format.sys_flag import has_queue_unit

# Upper ends of the buckets; one more bucket counts puts that took longer than the last.
PUT_TIME_BUCKETS_MS = (0, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000)
# Upper ends of the finer buckets for monitoring, in seconds; one more bucket counts what took longer than the last.
LATENCY_BUCKETS_S = (
    *(0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01),
    *(0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
# Those of record sizes in bytes are RocketMQ's (BrokerMetricsManager.registerMetricsView).
SIZE_BUCKETS = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
# So many samples, one a second, are kept: RocketMQ shows rates over 10, 60 and 600 seconds.
_WINDOWS_SECONDS = (10, 60, 600)


# When it was taken; messages put, and messages read by then.
_Sample: TypeAlias = tuple[float, int, int]


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


class Histogram(NamedTuple):
    """Values counted in buckets: ``counts`` has one for each of ``upper_ends``, and one for what is larger.

    ``total`` is the sum of all values.
    """

    upper_ends: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class CountedValues:
    """A histogram that grows. One thread at a time adds; any thread takes a snapshot."""

    __slots__ = ("_counts", "_total", "_upper_ends")

    def __init__(self, upper_ends: tuple[float, ...]) -> None:
        self._upper_ends = upper_ends
        self._counts = [0] * (len(upper_ends) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._upper_ends, value)] += 1
        self._total += value

    def snapshot(self) -> Histogram:
        return Histogram(self._upper_ends, tuple(self._counts), self._total)


_NO_LATENCIES = Histogram(LATENCY_BUCKETS_S, (0,) * (len(LATENCY_BUCKETS_S) + 1), 0.0)
_NO_SIZES = Histogram(SIZE_BUCKETS, (0,) * (len(SIZE_BUCKETS) + 1), 0.0)


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

    A pull (``get_message``, ``Consumer.poll``, a pull of RocketMQ's clients) that gave messages counts as
    ``get_message_times_total_found``, any other one as ``get_message_times_total_miss``; ``get_seconds`` has how long
    pulls took. ``put_seconds`` has the put times of ``put_times`` in finer buckets, and ``put_sizes`` the bytes of
    records; messages that were put together count with their mean size.

    ``topic_stored_times`` and ``topic_stored_sizes`` count what was dispatched since the store was opened, however it
    came into the log: by puts, in batches, as a delivered delayed message, from a master.
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
    get_message_times_total_found: int = 0
    get_message_times_total_miss: int = 0
    get_message_entire_time_max_ms: float = 0.0
    get_seconds: Histogram = _NO_LATENCIES
    put_seconds: Histogram = _NO_LATENCIES
    put_sizes: Histogram = _NO_SIZES
    topic_stored_times: dict[str, int] = field(default_factory=dict)
    topic_stored_sizes: dict[str, int] = field(default_factory=dict)


class StoreStatsService:
    """Counts puts and reads; ``run_once`` takes a sample a second for the rates."""

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
        self._put_counts = [0] * len(_NO_LATENCIES.counts)
        self._put_seconds = 0.0
        self._size_counts = [0] * len(_NO_SIZES.counts)
        # By topic: messages and bytes that were dispatched.
        self._stored: dict[str, list[int]] = {}
        # By topic: messages and bytes that readers gave.
        self._gets: dict[str, list[int]] = {}
        self._found = self._missed = 0
        self._get_counts = [0] * len(_NO_LATENCIES.counts)
        self._get_seconds = self._longest_get = 0.0
        self._samples: deque[_Sample] = deque([(clock(), 0, 0)], maxlen=_WINDOWS_SECONDS[-1] + 1)

    def put(self, topic: str, count: int, size: int, seconds: float) -> None:
        """Count a put of ``count`` messages of ``size`` bytes together that took ``seconds``."""
        # Nearly every put takes less than a millisecond.
        bucket = 0 if seconds < 0.001 else bisect_left(PUT_TIME_BUCKETS_MS, int(seconds * 1000))
        fine = bisect_left(LATENCY_BUCKETS_S, seconds)
        mean = size // count
        size_bucket = 0 if mean <= SIZE_BUCKETS[0] else bisect_left(SIZE_BUCKETS, mean)
        with self._lock:
            totals = self._totals.get(topic)
            if totals is None:
                totals = self._totals[topic] = [0, 0]
            totals[0] += count
            totals[1] += size
            self._buckets[bucket] += count
            self._put_counts[fine] += count
            self._put_seconds += seconds * count
            self._size_counts[size_bucket] += count
            if seconds > self._longest:
                self._longest = seconds

    def get(self, topic: str, count: int, size: int) -> None:
        """Count ``count`` messages that a reader gave, with ``size`` bytes together."""
        with self._lock:
            totals = self._gets.setdefault(topic, [0, 0])
            totals[0] += count
            totals[1] += size

    def stored(self, found: Iterable[tuple[str, int, int]]) -> None:
        """Count messages that were dispatched: topic, messages, bytes."""
        with self._lock:
            for topic, count, size in found:
                totals = self._stored.setdefault(topic, [0, 0])
                totals[0] += count
                totals[1] += size

    def pull(self, topic: str, count: int, size: int, seconds: float) -> None:
        """Count a pull that took ``seconds`` and gave ``count`` messages, perhaps none, of ``size`` bytes together."""
        bucket = bisect_left(LATENCY_BUCKETS_S, seconds)
        with self._lock:
            self._get_counts[bucket] += 1
            self._get_seconds += seconds
            if seconds > self._longest_get:
                self._longest_get = seconds
            if not count:
                self._missed += 1
                return
            self._found += 1
            totals = self._gets.get(topic)
            if totals is None:
                totals = self._gets[topic] = [0, 0]
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
        with self._lock:  # puts wait for it: what is under it copies and nothing else
            puts = {topic: tuple(totals) for topic, totals in self._totals.items()}
            gets = {topic: tuple(totals) for topic, totals in self._gets.items()}
            stored = {topic: tuple(totals) for topic, totals in self._stored.items()}
            buckets, put_counts, put_seconds = tuple(self._buckets), tuple(self._put_counts), self._put_seconds
            sizes, get_counts, get_seconds = tuple(self._size_counts), tuple(self._get_counts), self._get_seconds
            failed, longest, longest_get = self._failed, self._longest, self._longest_get
            found, missed = self._found, self._missed
            delivered, skipped = self._delayed_delivered, self._delayed_skipped
            samples = tuple(self._samples)
        total, read = _messages(puts), _messages(gets)
        size = sum(size for _, size in puts.values())
        return StoreStats(
            put_message_times_total=total,
            put_message_size_total=size,
            put_message_failed_times=failed,
            put_message_entire_time_max_ms=longest * 1000,
            put_times=buckets,
            put_tps=self._rates(samples, total, 1),
            topic_put_times={topic: count for topic, (count, _) in puts.items()},
            topic_put_sizes={topic: size for topic, (_, size) in puts.items()},
            dispatch_behind_bytes=dispatch_behind,
            get_message_transferred_msg_count=read,
            get_message_size_total=sum(size for _, size in gets.values()),
            get_tps=self._rates(samples, read, 2),
            topic_get_times={topic: count for topic, (count, _) in gets.items()},
            topic_get_sizes={topic: size for topic, (_, size) in gets.items()},
            delayed_delivered=delivered,
            delayed_skipped=skipped,
            slaves=slaves,
            get_message_times_total_found=found,
            get_message_times_total_miss=missed,
            get_message_entire_time_max_ms=longest_get * 1000,
            get_seconds=Histogram(LATENCY_BUCKETS_S, get_counts, get_seconds),
            put_seconds=Histogram(LATENCY_BUCKETS_S, put_counts, put_seconds),
            put_sizes=Histogram(SIZE_BUCKETS, sizes, size),
            topic_stored_times={topic: count for topic, (count, _) in stored.items()},
            topic_stored_sizes={topic: size for topic, (_, size) in stored.items()},
        )

    def _rates(self, samples: Sequence[_Sample], total: int, which: Literal[1, 2]) -> dict[int, float]:
        """Messages a second by window; ``which`` is the total's place in a sample."""
        now = self._clock()
        rates = {}
        for window in _WINDOWS_SECONDS:
            since = next((sample for sample in samples if now - sample[0] <= window), samples[-1])
            elapsed = now - since[0]
            rates[window] = (total - since[which]) / elapsed if elapsed > 0 else 0.0
        return rates


class CountStored:
    """Counts dispatched messages by topic, on the thread of dispatch."""

    def __init__(self, stats: StoreStatsService) -> None:
        self._stats = stats

    def prepare(self, requests: DispatchRequests, entries: Callable[[], IndexEntries]) -> Callable[[], None]:
        del entries
        found = list(_by_topic(requests))
        return lambda: self._stats.stored(found)


def _by_topic(requests: DispatchRequests) -> Iterator[tuple[str, int, int]]:
    """Topic, messages and bytes of the records that are in a queue of their own topic."""
    if len(requests) == 1:  # as most that come one at a time
        if has_queue_unit(int(requests.sys_flags[0])):
            yield requests.topics[requests.topic_codes[0]], 1, int(requests.sizes[0])
        return
    codes, sizes, in_queue = requests.topic_codes, requests.sizes, requests.has_unit
    if not in_queue.all():
        codes, sizes = codes[in_queue], sizes[in_queue]
    if len(requests.topics) == 1:
        yield requests.topics[0], len(codes), int(sizes.sum())
        return
    counts = np.bincount(codes, minlength=len(requests.topics))
    totals = np.bincount(codes, sizes, minlength=len(requests.topics))
    for code in np.flatnonzero(counts).tolist():
        yield requests.topics[code], int(counts[code]), int(totals[code])


def _messages(totals: Mapping[str, Sequence[int]]) -> int:
    return sum(one[0] for one in totals.values())
