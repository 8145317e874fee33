"""Numbers of topics that pages show: about how many bytes, and when the first and the last message were stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from commitlog_store.reader import QueueInfo, StoreReader
from commitlog_store.serve.http.pages.views import SharedAnswers

# Of so many queues, a look that remembers nothing takes a tenth of a second of the processor.
_MOST_QUEUES = 2_000
# Of so many queues, the times of their last messages alone take as long.
_MOST_LAST_TIMES = 4_000


class TopicNumbers(NamedTuple):
    """Times in milliseconds since the epoch. None: not known, or a topic without messages has none."""

    size: int | None = None
    first: int | None = None
    last: int | None = None


def topic_numbers(
    reader: StoreReader, topics: Mapping[str, Sequence[QueueInfo]], shared: SharedAnswers
) -> dict[str, TopicNumbers]:
    """Those of each topic, by its queues' bounds: a page's topics, in their order.

    Size and first time are asked for of 2,000 queues at most, the last time of 4,000; a topic that does not fit has
    none. A queue that cannot be read has no time, and its topic no size.
    """
    filled = {topic: [one for one in infos if one.min_offset < one.max_offset] for topic, infos in topics.items()}
    measured = _fitting(filled, _MOST_QUEUES)
    sizes: dict[str, int | None] = dict.fromkeys(measured, 0)
    infos = [one for queues in measured.values() for one in queues]
    for info, size in zip(infos, shared.sizes.of(reader, infos), strict=True):
        known = sizes[info.topic]
        sizes[info.topic] = None if known is None or size is None else known + size
    timed = _fitting(filled, _MOST_LAST_TIMES)
    places = [(one.topic, one.queue_id, one.max_offset - 1) for queues in timed.values() for one in queues]
    places += [(one.topic, one.queue_id, one.min_offset) for one in infos]
    times: dict[str, list[int]] = {}
    for (topic, _, _), when in zip(places, shared.times.of(reader, places), strict=True):
        if isinstance(when, int):
            times.setdefault(topic, []).append(when)
    return {
        topic: TopicNumbers(
            size=sizes.get(topic),
            first=min(times.get(topic, ()), default=None) if topic in sizes else None,
            last=max(times.get(topic, ()), default=None) if topic in timed else None,
        )
        for topic in topics
    }


def _fitting(topics: Mapping[str, Sequence[QueueInfo]], room: int) -> dict[str, Sequence[QueueInfo]]:
    """The first topics whose queues are so many together; one with too many of them leaves room for others."""
    found: dict[str, Sequence[QueueInfo]] = {}
    for topic, queues in topics.items():
        if len(queues) <= room:
            room -= len(queues)
            found[topic] = queues
    return found
