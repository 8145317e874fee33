"""Consumer groups as a reader sees them: positions beside the bounds of their queues, lag, and dead letters.

A crash may leave positions in the log that were committed with a batch and that ``consumerOffset.json`` lacks;
``restore_positions`` applies them.

Source: RocketMQ ``broker/processor/AdminBrokerProcessor.java`` (``getConsumeStats``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from commitlog_store.errors import (
    CommitLogError,
    FileChanged,
    InvalidValue,
    OffsetOutOfRange,
    QueueNotFound,
    TopicNotFound,
    raised,
)
from commitlog_store.format.positions_message import decode_positions
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.paths import DLQ_TOPIC_PREFIX, POSITIONS_GROUP, POSITIONS_TOPIC, RETRY_TOPIC_PREFIX
from commitlog_store.queue.views import QueueInfo, ReaderView

_LOG = logging.getLogger(__name__)

Queue = tuple[str, int]
"""Topic and queue id."""

# When messages were stored, by topic, queue id and queue offset; or why that cannot be read.
_Times = Mapping[tuple[str, int, int], int | CommitLogError]
AskTimes = Callable[[Sequence[tuple[str, int, int]]], list[int | CommitLogError]]


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
    """How many of them were not redriven (``MessageStore.redrive``): those from the group's position in it on."""
    oldest_timestamp: int | None = None
    """When the first of those that wait was stored."""
    newest_timestamp: int | None = None
    """When the last message of the topic was stored."""
    error: str = ""
    """Why a value is missing."""


class ReadableQueues(Protocol):
    """The queues of a store: ``StoreReader``, which is in a room above, or the owner's view of them."""

    def queue_ids(self, topic: str) -> list[int]: ...
    def queue_info(self, topic: str, queue_id: int) -> QueueInfo: ...
    def queue_infos(self, queues: Sequence[Queue], /) -> list[QueueInfo]: ...
    def read(
        self, topic: str, queue_id: int, start: int, stop: int, /, *, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]: ...


def committed_offsets(reader: ReaderView) -> ConsumerOffsets:
    """The positions of all groups: the file's, and those in the log that it lacks after a crash. For looking only.

    ``CorruptConfig``, ``ReadFailed``.
    """
    offsets = ConsumerOffsets(reader.config_home)
    try:
        restore_positions(offsets, reader)
    except CommitLogError:
        _LOG.exception("Positions of consumers in the log of %s cannot be read; the file's are given", reader.path)
    return offsets


def group_offsets(reader: ReaderView, group: str) -> dict[Queue, int]:
    """The group's positions: the next queue offset by topic and queue id. ``CorruptConfig``, ``ReadFailed``."""
    offsets = committed_offsets(reader)
    return {
        (topic, queue_id): offset
        for (name, topic), positions in offsets.all().items()
        if name == group
        for queue_id, offset in sorted(positions.items())
    }


def group_positions(
    reader: ReaderView, now_ms: int, group: str | None = None, *, times: AskTimes | None = None
) -> list[GroupPosition]:
    """A row for each queue of each topic that a group has a position in, of all groups or of one.

    ``times`` answers as ``store_timestamps`` of the reader, which is the default.

    None of a group's own dead-letter topic: no message there waits for the group.
    Positions are read before the queues' bounds, so that a group that consumes concurrently is not ahead of a queue.
    """
    offsets = committed_offsets(reader)
    committed = {key: positions for key, positions in offsets.all().items() if group in (None, key[0])}
    topics = {topic for _, topic in committed}
    for name in {name for name, _ in committed}:
        topics |= {RETRY_TOPIC_PREFIX + name, DLQ_TOPIC_PREFIX + name}
    queues, errors = queues_of(reader, topics)
    wanted = [(topic, queue_id) for topic in sorted(queues) for queue_id in queues[topic]]
    bounds = dict(zip(wanted, reader.queue_infos(wanted), strict=True))
    stored = _stored_times(times or reader.store_timestamps, committed, queues, bounds)
    rows = []
    for (name, topic), positions in committed.items():
        retry = RETRY_TOPIC_PREFIX + name
        retry_messages = sum(
            _lag(committed.get((name, retry), {}).get(queue_id), bounds[retry, queue_id])
            for queue_id in queues.get(retry, [])
        )
        dead = DLQ_TOPIC_PREFIX + name
        if topic == dead:
            continue  # the position says which were redriven (consumers/redrive.py): the group consumes none of it
        dead_letters = sum(
            bounds[dead, queue_id].max_offset - bounds[dead, queue_id].min_offset for queue_id in queues.get(dead, [])
        )
        of_group = (retry_messages, dead_letters)
        for queue_id in sorted({*positions, *queues.get(topic, [])}):
            found = bounds.get((topic, queue_id))
            error = errors.get(topic, "" if found else f"Topic {topic!r} has no queue {queue_id}.")
            place = (name, topic, queue_id)
            rows.append(_row(stored, place, positions.get(queue_id), found, now_ms, of_group, error))
    return rows


def queues_of(reader: ReaderView, topics: Iterable[str]) -> tuple[Mapping[str, list[int]], Mapping[str, str]]:
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


def _places(position: int | None, bounds: QueueInfo) -> tuple[int | None, int | None]:
    """The offsets of the first message that waits, and of the last one that was consumed; None for none."""
    low, high, lag = bounds.min_offset, bounds.max_offset, _lag(position, bounds)
    return high - lag if lag else None, position - 1 if position is not None and low < position <= high else None


def _stored_times(
    ask: AskTimes,
    committed: Mapping[tuple[str, str], Mapping[int, int]],
    queues: Mapping[str, list[int]],
    bounds: Mapping[Queue, QueueInfo],
) -> _Times:
    """When the messages of ``_places`` were stored, all asked for at once."""
    wanted = {
        (info.topic, info.queue_id, offset)
        for (name, topic), positions in committed.items()
        if topic != DLQ_TOPIC_PREFIX + name
        for queue_id in {*positions, *queues.get(topic, ())}
        if (info := bounds.get((topic, queue_id))) is not None
        for offset in _places(positions.get(queue_id), info)
        if offset is not None
    }
    places = sorted(wanted)
    return dict(zip(places, ask(places), strict=True))


def _row(
    stored: _Times,
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
    first, consumed = _places(position, bounds)
    try:
        waiting = None if first is None else _time(stored[topic, queue_id, first])
        last = None if consumed is None else _time(stored[topic, queue_id, consumed])
    except CommitLogError as fault:
        error = str(fault)
    lag_ms = (None if waiting is None else max(now_ms - waiting, 0)) if lag else 0
    return GroupPosition(*place, position, low, high, lag, lost, lag_ms, waiting, last, *of_group, error)


def _time(found: int | CommitLogError) -> int | None:
    """None for a message that was deleted since, and for a filler. Raises any other error."""
    return None if isinstance(found, (OffsetOutOfRange, FileChanged)) else raised(found)


def restore_positions(offsets: ConsumerOffsets, reader: ReadableQueues, *, log_may_be_short: bool = False) -> None:
    """Apply, in their order, the positions in the log that are not in ``offsets`` yet. Damage as ``read`` raises it.

    Those that were set while the store was not open are newer than all of them, and stay. ``log_may_be_short``: the log
    may have lost positions that are in ``offsets``. The batches of these are lost too, so that the messages that they
    were made of are to be consumed again: all positions in the log are applied, and replace later ones.
    """
    try:
        queue = reader.queue_info(POSITIONS_TOPIC, 0)
    except (TopicNotFound, QueueNotFound):
        offsets.note_log_applied()
        return
    applied = offsets.get(POSITIONS_GROUP, POSITIONS_TOPIC).get(0, 0)
    start = min(max(applied, queue.min_offset), queue.max_offset)
    if log_may_be_short and applied > queue.max_offset:
        _LOG.warning(
            "The log has lost %d positions that were committed with batches. Their groups continue at the last ones in "
            "the log.",
            applied - queue.max_offset,
        )
        start = queue.min_offset
    for batch in reader.read(POSITIONS_TOPIC, 0, start, queue.max_offset, columns=["body"]):
        for body in batch.column("body").to_pylist():
            found = decode_positions(body)
            if found is not None:
                _apply(offsets, *found)
    if applied != queue.max_offset:
        offsets.commit(POSITIONS_GROUP, {(POSITIONS_TOPIC, 0): queue.max_offset})
    offsets.note_log_applied()


def _apply(offsets: ConsumerOffsets, group: str, positions: dict[tuple[str, int], int]) -> None:
    try:
        offsets.commit(
            group, {queue: offset for queue, offset in positions.items() if not offsets.is_set_over_log(group, *queue)}
        )
    except InvalidValue:
        return  # names that this store never writes


def dead_letters(reader: ReaderView, offsets: ConsumerOffsets, group: str | None = None) -> list[DeadLetters]:
    """A row for each group with a dead-letter topic, or for one, by name. ``offsets`` are the groups' positions."""
    topics = [topic for topic in reader.topics() if topic.startswith(DLQ_TOPIC_PREFIX)]
    groups = ((topic.removeprefix(DLQ_TOPIC_PREFIX), topic) for topic in topics)
    return [_dead_letters_of(reader, offsets, name, topic) for name, topic in groups if group in (None, name)]


def _dead_letters_of(reader: ReaderView, offsets: ConsumerOffsets, group: str, topic: str) -> DeadLetters:
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
