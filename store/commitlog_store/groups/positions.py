"""Positions of consumer groups beside the bounds of their queues: how far behind each group is, in messages and time.

Source: RocketMQ ``broker/processor/AdminBrokerProcessor.java`` (``getConsumeStats``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from commitlog_store.config_files.consumer_offset import ConsumerOffsets
from commitlog_store.errors import CommitLogError, FileChanged, OffsetOutOfRange
from commitlog_store.groups.restored_positions import restore_positions
from commitlog_store.paths import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from commitlog_store.queue.views import QueueInfo, ReaderView

__all__ = ["GroupPosition", "committed_offsets", "group_offsets", "group_positions"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """A consumer group in one queue. Times are milliseconds since 1970; what is not known is None.

    ::

        with StoreReader.open("/data/store") as reader:
            for row in reader.groups():
                print(row.group, row.topic, row.queue_id, row.lag, "messages wait, for", row.lag_ms, "ms")
    """

    group: str
    topic: str
    """Also the group's retry topic, ``%RETRY%`` and the group's name."""
    queue_id: int
    committed_offset: int | None
    """The queue offset of the next message that the group consumes; None without a position in this queue."""
    min_offset: int | None
    """The first offset of the queue; None for a queue that does not exist (any more)."""
    max_offset: int | None
    """The offset of the next message that will be stored in the queue."""
    lag: int | None
    """How many messages of the queue wait for the group. Without a position, all of them. None: not known."""
    lost: int | None
    """How many messages were deleted before the group consumed them. RocketMQ counts them as lag too."""
    lag_ms: int | None
    """For how long the oldest waiting message has been in the store; 0 when none waits."""
    oldest_waiting_timestamp: int | None
    """When the oldest waiting message was stored; None when none waits."""
    last_consumed_timestamp: int | None
    """When the message before the position was stored; None when it is deleted. mqadmin calls it LastTime."""
    retry_messages: int
    """How many messages wait in the group's retry topic; the same in all rows of the group."""
    dead_letters: int
    """How many messages are in the group's dead-letter topic, ``%DLQ%`` and its name; the same in all its rows."""
    error: str = ""
    """Why a value is missing, if that is not said above; or what is wrong with the position."""


_Queue = tuple[str, int]


def committed_offsets(reader: ReaderView) -> ConsumerOffsets:
    """The positions of all groups: the file's, and those in the log that it lacks after a crash. For looking only.

    ``CorruptConfig``, ``ReadFailed``.
    """
    offsets = ConsumerOffsets(reader.path)
    try:
        restore_positions(offsets, reader)
    except CommitLogError:
        _LOG.exception("Positions of consumers in the log of %s cannot be read; the file's are given", reader.path)
    return offsets


def group_offsets(reader: ReaderView, group: str) -> dict[_Queue, int]:
    """The group's positions: the next queue offset by topic and queue id. ``CorruptConfig``, ``ReadFailed``."""
    offsets = committed_offsets(reader)
    return {
        (topic, queue_id): offset
        for (name, topic), positions in offsets.all().items()
        if name == group
        for queue_id, offset in sorted(positions.items())
    }


def group_positions(reader: ReaderView, now_ms: int, group: str | None = None) -> list[GroupPosition]:
    """A row for each queue of each topic that a group has a position in, of all groups or of one.

    None of a group's own dead-letter topic: no message there waits for the group.
    Positions are read before the queues' bounds, so that a group that goes on concurrently is not ahead of a queue.
    """
    offsets = committed_offsets(reader)
    committed = {key: positions for key, positions in offsets.all().items() if group in (None, key[0])}
    topics = {topic for _, topic in committed}
    for name in {name for name, _ in committed}:
        topics |= {RETRY_TOPIC_PREFIX + name, DLQ_TOPIC_PREFIX + name}
    queues, errors = _queues(reader, topics)
    wanted = [(topic, queue_id) for topic in sorted(queues) for queue_id in queues[topic]]
    bounds = dict(zip(wanted, reader.queue_infos(wanted), strict=True))
    rows = []
    for (name, topic), positions in committed.items():
        retry = RETRY_TOPIC_PREFIX + name
        retry_messages = sum(
            _lag(committed.get((name, retry), {}).get(queue_id), bounds[retry, queue_id])
            for queue_id in queues.get(retry, [])
        )
        dead = DLQ_TOPIC_PREFIX + name
        if topic == dead:
            continue  # the position says which were put back (consumers/redrive.py): the group consumes none of it
        dead_letters = sum(
            bounds[dead, queue_id].max_offset - bounds[dead, queue_id].min_offset for queue_id in queues.get(dead, [])
        )
        of_group = (retry_messages, dead_letters)
        for queue_id in sorted({*positions, *queues.get(topic, [])}):
            found = bounds.get((topic, queue_id))
            error = errors.get(topic, "" if found else f"Topic {topic!r} has no queue {queue_id}.")
            place = (name, topic, queue_id)
            rows.append(_row(reader, place, positions.get(queue_id), found, now_ms, of_group, error))
    return rows


def _queues(reader: ReaderView, topics: set[str]) -> tuple[Mapping[str, list[int]], Mapping[str, str]]:
    """The queues of the topics that exist, and for the others the reason."""
    queues, errors = {}, {}
    for topic in sorted(topics):
        try:
            queues[topic] = reader.queue_ids(topic)
        except CommitLogError as error:
            errors[topic] = str(error)
    return queues, errors


def _lag(position: int | None, bounds: QueueInfo) -> int:
    return max(bounds.max_offset - max(bounds.min_offset, position or 0), 0)


def _row(
    reader: ReaderView,
    place: tuple[str, str, int],
    position: int | None,
    bounds: QueueInfo | None,
    now_ms: int,
    of_group: tuple[int, int],
    error: str,
) -> GroupPosition:
    if bounds is None:
        # A group has a position in its retry topic before the first message comes into it.
        lag = 0 if place[1] == RETRY_TOPIC_PREFIX + place[0] and not position else None
        return GroupPosition(*place, position, None, None, lag, None, None, None, None, *of_group, error)
    low, high = bounds.min_offset, bounds.max_offset
    _, topic, queue_id = place
    lag, lost = _lag(position, bounds), 0 if position is None else max(low - position, 0)
    if position is not None and position > high:
        error = (
            f"The position is {position - high} after the queue's end: the store has lost messages, or it was set too "
            "high. Consumers continue at the end."
        )
    waiting = last = None
    try:
        if lag:
            waiting = _stored(reader, topic, queue_id, high - lag)
        if position is not None and low < position <= high:
            last = _stored(reader, topic, queue_id, position - 1)
    except CommitLogError as fault:
        error = str(fault)
    lag_ms = (None if waiting is None else max(now_ms - waiting, 0)) if lag else 0
    return GroupPosition(*place, position, low, high, lag, lost, lag_ms, waiting, last, *of_group, error)


def _stored(reader: ReaderView, topic: str, queue_id: int, offset: int) -> int | None:
    try:
        return reader.store_timestamp(topic, queue_id, offset)
    except (OffsetOutOfRange, FileChanged):
        return None  # deleted since, or a filler
