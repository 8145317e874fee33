"""The lag of consumer groups by topic: how many messages wait, how many were not pulled, and the first of both.

``positions.py`` has a row for each queue, with the times of its messages; this reads no messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.groups.positions import queues_of
from commitlog_store.groups.pulled_offsets import PulledQueue
from commitlog_store.paths import DLQ_TOPIC_PREFIX
from commitlog_store.queue.views import QueueInfo, ReaderView

# Topic, queue id and queue offset.
Place: TypeAlias = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class GroupLag:
    """``messages`` wait, of which ``ready`` were not pulled by any consumer: in each queue the last ones.

    The rest is what both were counted from: the group's positions by queue id, what was pulled, and the queues.
    """

    group: str
    topic: str
    messages: int
    ready: int
    positions: Mapping[int, int] = field(repr=False)
    pulled: Mapping[PulledQueue, int] = field(repr=False)
    queues: Sequence[QueueInfo] = field(repr=False)

    def first_waiting(self) -> list[Place]:
        """The place of the first message that waits, of each queue with one."""
        starts = ((queue, _first_waiting(queue, self.positions)) for queue in self.queues)
        return [(queue.topic, queue.queue_id, start) for queue, start in starts if start < queue.max_offset]

    def first_ready(self) -> list[Place]:
        """The place of the first message that was not pulled, of each queue with one."""
        if self.ready == self.messages:
            return self.first_waiting()
        ends = {queue.queue_id: queue.max_offset for queue in self.queues}
        starts = (
            (topic, queue_id, max(start, self.pulled.get((self.group, topic, queue_id), 0)))
            for topic, queue_id, start in self.first_waiting()
        )
        return [place for place in starts if place[2] < ends[place[1]]]


def group_lags(
    reader: ReaderView, offsets: ConsumerOffsets, pulled: Mapping[PulledQueue, int] | None = None
) -> list[GroupLag]:
    """The lag of each group in each topic that it has a position in, by group and topic. A topic that does not exist
    is left out, and so are dead-letter topics: no message there waits for a group.

    ``pulled`` is ``PulledOffsets.all``; a queue without an offset there was pulled up to the group's position.
    """
    committed = {key: found for key, found in offsets.all().items() if not key[1].startswith(DLQ_TOPIC_PREFIX)}
    bounds = _bounds(reader, {topic for _, topic in committed})
    return [
        _lag(group, topic, positions, pulled or {}, bounds[topic])
        for (group, topic), positions in committed.items()
        if topic in bounds
    ]


def _bounds(reader: ReaderView, topics: Iterable[str]) -> dict[str, list[QueueInfo]]:
    queues, _ = queues_of(reader, topics)  # a topic without queues is deleted, or was never filled
    found: dict[str, list[QueueInfo]] = {}
    for info in reader.queue_infos([(topic, queue_id) for topic, ids in queues.items() for queue_id in ids]):
        found.setdefault(info.topic, []).append(info)
    return found


def _lag(
    group: str,
    topic: str,
    positions: Mapping[int, int],
    pulled: Mapping[PulledQueue, int],
    queues: Sequence[QueueInfo],
) -> GroupLag:
    messages = in_flight = 0
    for queue in queues:
        start = _first_waiting(queue, positions)
        if start < queue.max_offset:
            messages += queue.max_offset - start
            if pulled:
                next_offset = min(pulled.get((group, topic, queue.queue_id), 0), queue.max_offset)
                in_flight += max(next_offset - start, 0)
    return GroupLag(group, topic, messages, messages - in_flight, positions, pulled, queues)


def _first_waiting(queue: QueueInfo, positions: Mapping[int, int]) -> int:
    return max(positions.get(queue.queue_id, 0), queue.min_offset)
