"""Reset of a consumer group as it would be done: the new position in each queue, and what that skips, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timezone, tzinfo

from commitlog_store.errors import CommitLogError, InvalidValue
from commitlog_store.paths import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from commitlog_store.queries.texts import counted
from commitlog_store.queries.unread import Unread, unread_words
from commitlog_store.reader import QueueInfo, StoreReader
from commitlog_store.timestamps import parse_time

_LARGEST_OFFSET_DIGITS = 18


@dataclass(frozen=True)
class Target:
    """Where a group is moved: to the first message or the end, to a time, or to a queue offset."""

    end: str = ""
    timestamp_ms: int | None = None
    offset: int = 0

    @classmethod
    def parse(cls, text: str, topic: str | None, zone: tzinfo = timezone.utc, *, option: str = "a topic") -> Target:
        """``earliest``, ``latest``, a queue offset (for one topic), or a time. ``InvalidValue``.

        ``option`` is what names the topic where the text was given.
        """
        if text in ("earliest", "latest"):
            return cls(end=text)
        if text.isascii() and text.isdigit():
            if topic is None:
                raise InvalidValue(f"A queue offset is one of a topic; give {option}.")
            if len(text) > _LARGEST_OFFSET_DIGITS:
                raise InvalidValue(f"{text} is beyond all queue offsets.")
            return cls(offset=int(text))
        return cls(timestamp_ms=parse_time(text, zone))

    def in_queue(self, reader: StoreReader, topic: str, queue_id: int) -> tuple[int, int, int]:
        """The queue offset, and the queue's bounds."""

        def look() -> tuple[int, QueueInfo]:
            info = reader.queue_info(topic, queue_id)
            if self.end:
                return info.min_offset if self.end == "earliest" else info.max_offset, info
            if self.timestamp_ms is None:
                return self.offset, info
            return reader.offset_by_time(topic, queue_id, self.timestamp_ms, bounds=info), info

        found, info = reader.consistently(look, one_moment=False)
        return min(max(found, info.min_offset), info.max_offset), info.min_offset, info.max_offset


@dataclass(frozen=True)
class Move:
    """One queue of a reset. ``before`` is None without a position."""

    group: str
    topic: str
    queue_id: int
    before: int | None
    after: int
    min_offset: int
    max_offset: int

    @property
    def positions(self) -> tuple[str, int, int | None, int]:
        """The queue, and its old and new position."""
        return self.topic, self.queue_id, self.before, self.after


def group_moves(
    reader: StoreReader,
    group: str,
    topic: str | None,
    queue_id: int | None,
    target: Target,
    *,
    option: str = "",
) -> list[Move]:
    """The new positions of a group: in all topics but its own two, or in one. ``InvalidValue`` if there are none.

    ``option`` is what names a topic, in the middle of a sentence.
    """
    offsets = reader.group_offsets(group)
    topics = sorted({name for name, _ in offsets})
    own = (RETRY_TOPIC_PREFIX + group, DLQ_TOPIC_PREFIX + group)
    known = [name for name in topics if name not in own]
    moves = []
    for name in known if topic is None else [topic]:
        moves += [
            Move(group, name, one, offsets.get((name, one)), *target.in_queue(reader, name, one))
            for one in _queue_ids(reader, name, required=topic is not None)
            if queue_id in (None, one)
        ]
    if not moves:
        raise InvalidValue(
            f"Group {group!r} has no position in a queue of {reader.path} that exists; to set the first ones, name a "
            f"topic{option}. It has positions in: {', '.join(map(repr, topics)) or 'no topic'}."
        )
    return moves


def _queue_ids(reader: StoreReader, topic: str, *, required: bool) -> list[int]:
    try:
        return reader.queue_ids(topic)
    except CommitLogError:
        if required:
            raise
        return []  # a deleted topic, in which the group still has a position


def move_words(moves: Sequence[Move]) -> list[str]:
    """What the group has not read and would never read, and what it would read again."""
    counts: Counter[str] = Counter()
    again: Counter[str] = Counter()
    for one in moves:
        before = max(one.before or 0, one.min_offset)
        counts[one.topic] += max(one.after - before, 0)
        again[one.topic] += max(min(before, one.max_offset) - one.after, 0)
    words = []
    if total := again.total():
        words.append(f"Group {moves[0].group} gets {counted(total, 'message')} again: {_by_topic(again)}.")
    unread = [Unread(moves[0].group, topic, count) for topic, count in sorted(counts.items()) if count]
    return words + unread_words(unread)


def _by_topic(counts: Counter[str]) -> str:
    return ", ".join(f"{topic} {count}" for topic, count in sorted(counts.items()) if count)
