"""The lag of consumer groups by topic: how many messages wait, how many were not pulled, and the first of both.

``positions.py`` has a row for each queue, with the times of its messages; this reads no messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from commitlog_store.errors import CommitLogError
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.paths import DLQ_TOPIC_PREFIX
from commitlog_store.queue.views import QueueInfo, ReaderView

# Topic, queue id and queue offset.
_Place: TypeAlias = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class GroupLag:
    """``messages`` wait, of which no consumer has pulled the last ``ready`` ones.

    ``first_waiting`` has topic, queue id and offset of the first message that waits, for each queue with one;
    ``first_ready`` the same of those that were not pulled.
    """

    group: str
    topic: str
    messages: int
    first_waiting: tuple[_Place, ...]
    ready: int
    first_ready: tuple[_Place, ...]


def group_lags(
    reader: ReaderView, offsets: ConsumerOffsets, pulled: Mapping[tuple[str, str], Mapping[int, int]] | None = None
) -> list[GroupLag]:
    """The lag of each group in each topic that it has a position in, by group and topic. A topic that does not exist
    is left out, and so are dead-letter topics: no message there waits for a group.

    ``pulled`` is ``PulledOffsets.all``, for ``ready``; a queue without an offset there was pulled up to its position.
    """
    pulled = pulled or {}
    committed = {key: found for key, found in offsets.all().items() if not key[1].startswith(DLQ_TOPIC_PREFIX)}
    bounds = _bounds(reader, {topic for _, topic in committed})
    return [
        _lag(group, topic, positions, pulled.get((group, topic), {}), bounds[topic])
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


def _lag(
    group: str, topic: str, positions: Mapping[int, int], pulled: Mapping[int, int], queues: Sequence[QueueInfo]
) -> GroupLag:
    waiting = [(queue, max(positions.get(queue.queue_id, 0), queue.min_offset)) for queue in queues]
    ready = [(queue, max(start, pulled.get(queue.queue_id, 0))) for queue, start in waiting] if pulled else waiting
    return GroupLag(group, topic, *_from(waiting), *_from(ready))


def _from(starts: Iterable[tuple[QueueInfo, int]]) -> tuple[int, tuple[_Place, ...]]:
    """How many messages queues have from these offsets on, and the places of the first ones."""
    filled = [(queue, start) for queue, start in starts if start < queue.max_offset]
    count = sum(queue.max_offset - start for queue, start in filled)
    return count, tuple((queue.topic, queue.queue_id, start) for queue, start in filled)
