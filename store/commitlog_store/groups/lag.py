"""The lag of consumer groups by topic: how many messages wait, and which of them are the first ones.

``positions.py`` has a row for each queue, with the times of its messages; this reads no messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from commitlog_store.errors import CommitLogError
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.paths import DLQ_TOPIC_PREFIX
from commitlog_store.queue.views import QueueInfo, ReaderView


@dataclass(frozen=True, slots=True)
class GroupLag:
    """``first_waiting`` has topic, queue id and offset of the first message that waits, for each queue with one."""

    group: str
    topic: str
    messages: int
    first_waiting: tuple[tuple[str, int, int], ...]


def group_lags(reader: ReaderView, offsets: ConsumerOffsets) -> list[GroupLag]:
    """The lag of each group in each topic that it has a position in, by group and topic. A topic that does not exist
    is left out, and so are dead-letter topics: no message there waits for a group."""
    committed = {key: found for key, found in offsets.all().items() if not key[1].startswith(DLQ_TOPIC_PREFIX)}
    bounds = _bounds(reader, {topic for _, topic in committed})
    return [
        _lag(group, topic, positions, bounds[topic])
        for (group, topic), positions in committed.items()
        if topic in bounds
    ]


def _bounds(reader: ReaderView, topics: Iterable[str]) -> dict[str, list[QueueInfo]]:
    queues: list[tuple[str, int]] = []
    for topic in sorted(topics):
        try:
            queues += [(topic, queue_id) for queue_id in reader.queue_ids(topic)]
        except CommitLogError:
            continue  # it is deleted, or was never filled
    found: dict[str, list[QueueInfo]] = {}
    for info in reader.queue_infos(queues):
        found.setdefault(info.topic, []).append(info)
    return found


def _lag(group: str, topic: str, positions: dict[int, int], queues: Sequence[QueueInfo]) -> GroupLag:
    messages = 0
    first = []
    for queue in queues:
        start = max(positions.get(queue.queue_id, 0), queue.min_offset)
        if start < queue.max_offset:
            messages += queue.max_offset - start
            first.append((topic, queue.queue_id, start))
    return GroupLag(group, topic, messages, tuple(first))
