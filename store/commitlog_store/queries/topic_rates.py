"""Rates of topics: how many messages were stored within the last seconds, and in each part of a longer time.

Counted by store times, from outside, so it works beside a running broker and on a copy. What only the owner knows (how
long puts took, which were refused) is in ``MessageStore.stats``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from commitlog_store.errors import CommitLogError, raised
from commitlog_store.reader import QueueInfo, StoreReader

# RocketMQ's windows, in seconds.
WINDOWS_S = (10, 60, 600)


@dataclass(frozen=True, kw_only=True)
class TopicRates:
    """A topic: its messages, and those stored a second within each window up to now, by the window's seconds."""

    topic: str
    queues: int
    messages: int
    rates: dict[int, float]
    last_store_timestamp: int | None
    idle_ms: int | None


def topic_rates(
    reader: StoreReader, topics: Sequence[str], now_ms: int | None = None, windows: Sequence[int] = WINDOWS_S
) -> list[TopicRates]:
    """Those of each topic, in the order given. The errors of ``queue_ids``, ``store_timestamp``, ``offset_by_time``."""
    now = int(time.time() * 1000) if now_ms is None else now_ms

    def look() -> list[TopicRates]:
        infos = reader.queue_infos(lambda: [(topic, one) for topic in topics for one in reader.queue_ids(topic)])
        lasts = [(one.topic, one.queue_id, one.max_offset - 1) for one in infos if one.min_offset < one.max_offset]
        newest = dict(zip([last[:2] for last in lasts], reader.store_timestamps(lasts), strict=True))
        by_topic = groupby(infos, key=lambda info: info.topic)
        return [_of_topic(reader, topic, list(queues), newest, now, windows) for topic, queues in by_topic]

    return reader.consistently(look, one_moment=False)


def _of_topic(
    reader: StoreReader,
    topic: str,
    queues: Sequence[QueueInfo],
    times: Mapping[tuple[str, int], int | CommitLogError],
    now: int,
    windows: Sequence[int],
) -> TopicRates:
    """``times`` are those of the last message of each queue that has one."""
    counts = [0] * len(windows)
    newest = None
    for info in queues:
        if info.min_offset == info.max_offset:
            continue
        stored = raised(times[topic, info.queue_id])
        newest = stored if newest is None else max(newest, stored)
        for place, window in enumerate(windows):
            if stored > now - window * 1000:
                since = now - window * 1000 + 1
                counts[place] += info.max_offset - reader.offset_by_time(topic, info.queue_id, since, bounds=info)
    return TopicRates(
        topic=topic,
        queues=len(queues),
        messages=sum(info.max_offset - info.min_offset for info in queues),
        rates={window: round(count / window, 3) for window, count in zip(windows, counts, strict=True)},
        last_store_timestamp=newest,
        idle_ms=None if newest is None else max(now - newest, 0),
    )


def stored_over_time(
    reader: StoreReader, topic: str, times_ms: Sequence[int], go_on: Callable[[], None] = lambda: None
) -> list[int]:
    """How many messages of a topic were stored between each of the times, which ascend, and the next one.

    Messages whose files retention has deleted are not counted. The errors of ``offset_by_time``.
    """

    def look() -> list[int]:
        counts = [0] * (len(times_ms) - 1)
        for info in reader.queues(topic):
            low = info.min_offset
            offsets = []
            for one in times_ms:
                go_on()
                if low < info.max_offset:
                    rest = QueueInfo(topic, info.queue_id, low, info.max_offset)
                    low = reader.offset_by_time(topic, info.queue_id, one, bounds=rest)
                offsets.append(low)
            for place in range(len(counts)):
                counts[place] += offsets[place + 1] - offsets[place]
        return counts

    return reader.consistently(look, one_moment=False)
