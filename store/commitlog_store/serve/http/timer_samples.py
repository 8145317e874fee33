"""TimerSamples: what a scrape shows of one store's timer messages: in all, by topic, and by the time until delivery."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from commitlog_store.delayed.timer_counts import TimerCounts, TopicTimers
from commitlog_store.delayed.timer_listing import WaitingTimers
from commitlog_store.delayed.timer_message import TimerMessageService
from commitlog_store.errors import CommitLogError
from commitlog_store.format.properties import REAL_TOPIC
from commitlog_store.format.timer_messages import TIMER_QUEUE_ID, TIMER_TOPIC
from commitlog_store.reader import StoreReader
from commitlog_store.serve.http.samples import LOCAL_DISK, REST, BoundedNames, Samples, summed

# RocketMQ's TimerMetrics.timerDist: messages that are due later are in none.
_BOUNDS_S = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)
_MS = 1000


class TimerSamples:
    """One thread at a time. A topic that had a series keeps it, 0 without a message that waits."""

    def __init__(self, most_topics: int) -> None:
        # By hash code of the timer log, which has no names, and the names of those that have a series.
        self._waiting: BoundedNames[int] = BoundedNames(most_topics)
        self._topics: dict[int, str] = {}
        self._counted: BoundedNames[str] = BoundedNames(most_topics)

    def waiting(self, samples: Samples, reader: StoreReader, timers: WaitingTimers, now_ms: int) -> None:
        """Messages that wait. Of each topic with a series, the record of one message is read once, for its name."""
        hashes, first, counts = np.unique(timers.topic_hashes, return_index=True, return_counts=True)
        found = dict.fromkeys(self._topics, 0) | dict(zip(hashes.tolist(), counts.tolist(), strict=True))
        places = dict(zip(hashes.tolist(), timers.physical_offsets[first].tolist(), strict=True))
        self._waiting.admit(found)
        own, rest = self._waiting.split(found)
        by_topic: Counter[str] = Counter() if rest is None else Counter({REST: round(rest)})
        for code, count in own.items():
            by_topic[self._topic(reader, code, places.get(code, -1))] += round(count)
        for topic, count in by_topic.items():
            samples.values.append(("rocketmq_timing_messages", (topic, *LOCAL_DISK), count))
        ahead_ms = np.maximum(timers.dues - now_ms, 0)
        within = np.bincount(np.searchsorted(np.array(_BOUNDS_S) * _MS, ahead_ms), minlength=len(_BOUNDS_S) + 1)
        for bound_s, count in zip(_BOUNDS_S, within.tolist(), strict=False):
            samples.values.append(("rocketmq_timer_message_snapshot", (str(bound_s), *LOCAL_DISK), count))

    def _topic(self, reader: StoreReader, code: int, physical_offset: int) -> str:
        """The topic of a hash code, by a message that has it; the rest's name where that cannot be read."""
        if code not in self._topics:
            try:
                message = reader.message_at(physical_offset, verify_crc=False)
            except CommitLogError:
                return REST
            self._topics[code] = message.properties.get(REAL_TOPIC, "")
        return self._topics[code]

    def counted(self, samples: Samples, counts: TimerCounts) -> None:
        """What the owner's service has counted."""
        found = counts.by_topic()
        self._counted.admit({topic: one.taken_in for topic, one in found.items()})
        own = {topic: one for topic, one in found.items() if topic in self._counted}
        if len(own) < len(found):
            own[REST] = _summed({topic: one for topic, one in found.items() if topic not in own})
        for topic, one in own.items():
            labels = (topic, *LOCAL_DISK)
            samples.values.append(("rocketmq_timer_enqueue_total", labels, one.taken_in))
            samples.values.append(("rocketmq_timer_dequeue_total", labels, one.delivered))
            samples.histograms.append(("rocketmq_delay_message_latency_seconds", labels, one.delays))


def enqueue_latency(samples: Samples, reader: StoreReader, service: TimerMessageService, now_ms: int) -> None:
    """For how long the first message that is not in the timer log has been in the store."""
    offsets = service.to_take_in()
    if offsets is None:
        return
    stored = [now_ms]
    if offsets:
        times = reader.store_timestamps([(TIMER_TOPIC, TIMER_QUEUE_ID, offsets[0])])
        stored = [time for time in times if isinstance(time, int)]
    for time in stored:
        latency = max(now_ms - time, 0)
        samples.values.append(("rocketmq_timer_enqueue_latency_milliseconds", LOCAL_DISK, latency))


def _summed(counts: Mapping[str, TopicTimers]) -> TopicTimers:
    ones = list(counts.values())
    taken_in, delivered = sum(one.taken_in for one in ones), sum(one.delivered for one in ones)
    return TopicTimers(taken_in, delivered, summed(one.delays for one in ones))
