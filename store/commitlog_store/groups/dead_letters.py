"""Dead letters of consumer groups: how many messages each group has given up, and which were given to it again."""

from __future__ import annotations

from dataclasses import dataclass

from commitlog_store.config_files.consumer_offset import ConsumerOffsets
from commitlog_store.errors import CommitLogError
from commitlog_store.paths import DLQ_TOPIC_PREFIX
from commitlog_store.queue.views import ReaderView

__all__ = ["DeadLetters", "dead_letters"]


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The dead letters of a consumer group. Times are store times in milliseconds; None where the topic is empty.

    ::

        with StoreReader.open("/data/store") as reader:
            for row in reader.dead_letters():
                print(row.group, row.waiting, "of", row.messages, "were not redriven")
    """

    group: str
    topic: str
    """The dead-letter topic, ``%DLQ%`` and the group's name."""
    messages: int | None
    """How many messages the topic has; None where it cannot be read."""
    waiting: int | None
    """How many of them were not put back (``MessageStore.redrive``): those from the group's position in it on."""
    oldest_timestamp: int | None = None
    """When the first of those that wait was stored."""
    newest_timestamp: int | None = None
    """When the last message of the topic was stored."""
    error: str = ""
    """Why a value is missing."""


def dead_letters(reader: ReaderView, offsets: ConsumerOffsets, group: str | None = None) -> list[DeadLetters]:
    """A row for each group with a dead-letter topic, or for one, by name. ``offsets`` are the groups' positions."""
    topics = [topic for topic in reader.topics() if topic.startswith(DLQ_TOPIC_PREFIX)]
    groups = ((topic.removeprefix(DLQ_TOPIC_PREFIX), topic) for topic in topics)
    return [_row(reader, offsets, name, topic) for name, topic in groups if group in (None, name)]


def _row(reader: ReaderView, offsets: ConsumerOffsets, group: str, topic: str) -> DeadLetters:
    positions = offsets.get(group, topic)
    try:
        infos = reader.queues(topic)
        starts = [min(max(positions.get(one.queue_id, 0), one.min_offset), one.max_offset) for one in infos]
        waiting = sum(one.max_offset - start for one, start in zip(infos, starts, strict=True))
        first = (
            reader.store_timestamp(topic, one.queue_id, start)
            for one, start in zip(infos, starts, strict=True)
            if start < one.max_offset
        )
        last = (
            reader.store_timestamp(topic, one.queue_id, one.max_offset - 1)
            for one in infos
            if one.min_offset < one.max_offset
        )
        messages = sum(one.max_offset - one.min_offset for one in infos)
        return DeadLetters(group, topic, messages, waiting, min(first, default=None), max(last, default=None))
    except CommitLogError as error:
        return DeadLetters(group, topic, None, None, error=str(error))
