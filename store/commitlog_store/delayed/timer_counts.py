"""TimerCounts: timer messages since the opening, by the topic that they go to: those taken in and those delivered.

Source: RocketMQ ``store/metrics/DefaultStoreMetricsManager.java``.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from commitlog_store.columnar.timer_times import TimerTimes
from commitlog_store.engine.stats import Histogram

# RocketMQ's (DefaultStoreMetricsManager.getMetricsView): a minute, ten, an hour, twelve, a day, three days.
DELAY_BUCKETS_S: tuple[float, ...] = (60, 600, 3_600, 43_200, 86_400, 259_200)
_MS = 1000


class TopicTimers(NamedTuple):
    """``delays`` has a value in seconds for each message that was taken in: from its birth to its delivery."""

    taken_in: int
    delivered: int
    delays: Histogram


class TimerCounts:
    """The service's thread counts; any thread reads the counts.

    ``topics`` has the topic of each hash code of the timer log. Topics whose names have one hash code count as one.
    """

    def __init__(self) -> None:
        self.topics: dict[int, str] = {}
        self._lock = threading.Lock()
        # By topic: the counts of the buckets, the sum of the delays in seconds, and the messages delivered.
        self._taken_in: dict[str, list[int]] = {}
        self._delays_s: dict[str, float] = {}
        self._delivered: dict[str, int] = {}

    def taken_in(self, times: TimerTimes) -> None:
        """Count messages that got a unit in the timer log, or came too late for one and were delivered at once."""
        if not times.messages:
            return
        delays_s = np.maximum(times.dues - times.born, 0) / _MS
        codes, rows = np.unique(times.topic_hashes, return_inverse=True)
        buckets = np.searchsorted(DELAY_BUCKETS_S, delays_s)
        width = len(DELAY_BUCKETS_S) + 1
        counts = np.bincount(rows.reshape(-1) * width + buckets, minlength=len(codes) * width).reshape(-1, width)
        sums = np.bincount(rows.reshape(-1), delays_s)
        with self._lock:
            for code, counted, seconds in zip(codes.tolist(), counts.tolist(), sums.tolist(), strict=True):
                topic = self.topics.get(code, "")
                before = self._taken_in.get(topic, [0] * width)
                self._taken_in[topic] = [sum(both) for both in zip(before, counted, strict=True)]
                self._delays_s[topic] = self._delays_s.get(topic, 0.0) + seconds

    def delivered(self, found: Mapping[str, int]) -> None:
        """Count messages by the topic that they were delivered to."""
        with self._lock:
            for topic, count in found.items():
                self._delivered[topic] = self._delivered.get(topic, 0) + count

    def by_topic(self) -> dict[str, TopicTimers]:
        """The counts; a message without a topic has an empty one."""
        none = [0] * (len(DELAY_BUCKETS_S) + 1)
        with self._lock:
            taken_in, delays_s, delivered = dict(self._taken_in), dict(self._delays_s), dict(self._delivered)
        return {
            topic: TopicTimers(
                sum(taken_in.get(topic, none)),
                delivered.get(topic, 0),
                Histogram(DELAY_BUCKETS_S, tuple(taken_in.get(topic, none)), delays_s.get(topic, 0.0)),
            )
            for topic in {**taken_in, **delivered}
        }
