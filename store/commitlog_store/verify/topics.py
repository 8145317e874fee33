"""Summary of a verification by topic: messages found and lost, offsets that are lost, and transactions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from commitlog_store.columnar.dispatch import DispatchRequests, units_by_queue
from commitlog_store.format import sys_flag
from commitlog_store.format.arrays import Int64Array
from commitlog_store.recovery.kept import LostMessages

# So many stretches of lost offsets are listed for a topic; the rest is only counted.
_MOST_STRETCHES = 1000
# A last message whose offset is this far from the one before it has a damaged offset.
_FARTHEST = 1_000_000


class LostOffsets(NamedTuple):
    """Queue offsets ``[start, stop)`` of a queue whose messages are not in the log, or would be cut off."""

    queue_id: int
    start: int
    stop: int


@dataclass(kw_only=True)
class TopicCount:
    """Records of a topic: ``found`` messages, ``prepared`` and ``rolled_back`` ones, which have no place in a queue.

    ``lost`` counts the offsets between the queue's first message and its last known one that no found message has;
    ``lost_offsets`` has the first stretches of them. ``unreadable`` are those of them whose record is there: its body
    does not match its CRC, or its file may not be read; ``unreadable_offsets`` has the first stretches.
    """

    topic: str
    found: int = 0
    prepared: int = 0
    rolled_back: int = 0
    lost: int = 0
    lost_offsets: list[LostOffsets] = field(default_factory=list)
    unreadable: int = 0
    unreadable_offsets: list[LostOffsets] = field(default_factory=list)

    def lose(self, queue_id: int, start: int, stop: int) -> None:
        """Count lost offsets."""
        self.lost += stop - start
        if len(self.lost_offsets) < _MOST_STRETCHES:
            self.lost_offsets.append(LostOffsets(queue_id, start, stop))

    def cannot_read(self, queue_id: int, start: int, stop: int) -> None:
        """Count offsets, lost ones, whose records are there."""
        self.unreadable += stop - start
        if len(self.unreadable_offsets) < _MOST_STRETCHES:
            self.unreadable_offsets.append(LostOffsets(queue_id, start, stop))


class _Queue:
    """The offsets of one queue: the first found message, the end of the last one, the stretches between without one.

    ``low`` and ``high`` are the bounds of all offsets that are known to have been given out.
    """

    def __init__(self) -> None:
        self.first = self.next = self.low = self.high = -1
        self.gaps: list[tuple[int, int]] = []
        # An offset that leaves a gap, which the message after it has to confirm: it may be damaged itself.
        self._unsure: int | None = None

    def follow(self, offsets: Int64Array) -> None:
        """Take the next messages of the queue."""
        if self.first < 0:
            self.first = self.next = int(offsets[0])
        start, count = int(offsets[0]), len(offsets)
        if self._unsure is None and start == self.next and (np.diff(offsets) == 1).all():
            self.next += count
        else:
            for offset in offsets.tolist():
                self._follow_one(offset)
        self.know(self.first, self.next)

    def _follow_one(self, offset: int) -> None:
        unsure, self._unsure = self._unsure, None
        if unsure is not None and offset not in (self.next, self.next + 1):
            self._skip_to(unsure)
            self.next += 1
        elif unsure is not None:
            self._skip_to(offset)
        if offset > self.next:
            self._unsure = offset
        elif offset == self.next:
            self.next += 1

    def _skip_to(self, offset: int) -> None:
        if offset > self.next:
            self.gaps.append((self.next, offset))
            self.next = offset

    def know(self, start: int, stop: int) -> None:
        """Offsets ``[start, stop)`` were given out."""
        self.low = start if self.low < 0 else min(self.low, start)
        self.high = max(self.high, stop)

    def lost(self) -> list[tuple[int, int]]:
        """The offsets without a found message."""
        if self.first < 0:
            return [(self.low, self.high)]
        if self._unsure is not None and self._unsure - self.next < _FARTHEST:
            self._skip_to(self._unsure)
            self.next += 1
            self.know(self.first, self.next)
        found = [(self.low, self.first), *self.gaps, (self.next, self.high)]
        return [(start, stop) for start, stop in found if start < stop]


class TopicSummary:
    """Counts the records of a log, from its scans in order."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicCount] = {}
        self._queues: dict[tuple[str, int], _Queue] = {}
        self._unreadable: set[tuple[str, int, int, int]] = set()
        self._cut: list[LostMessages] = []

    def add(self, requests: DispatchRequests) -> None:
        """Count the next records."""
        kinds = requests.sys_flags & sys_flag.TRANSACTION_MASK
        for code, topic in enumerate(requests.topics):
            own = kinds[requests.topic_codes == code]
            if len(own):
                count = self._of(topic)
                prepared = int(np.count_nonzero(own == sys_flag.TRANSACTION_PREPARED_TYPE))
                rolled_back = int(np.count_nonzero(own == sys_flag.TRANSACTION_ROLLBACK_TYPE))
                count.prepared += prepared
                count.rolled_back += rolled_back
                count.found += len(own) - prepared - rolled_back
        for group in units_by_queue(requests):
            if not group.light:
                self._queue(group.topic, group.queue_id).follow(group.queue_offsets)

    def expire(self) -> None:
        """Retention has removed the files before the records that come next: offsets up to theirs are not lost."""
        self._queues = {}

    def cut(self, lost: Iterable[LostMessages]) -> None:
        """Count whole messages that opening would cut off, or that lie after the place where it refuses to."""
        for one in lost:
            if one.start < one.stop:
                self.know(one.topic, one.queue_id, one.start, one.stop)
                self._cut.append(one)
            else:  # prepared or rolled back: without a place in a queue
                self._of(one.topic).lost += one.messages

    def misplaced(self, requests: DispatchRequests) -> None:
        """These whole records were counted as found, and the units of their queues show that they are damaged."""
        for code in requests.topic_codes.tolist():
            self._of(requests.topics[code]).found -= 1

    def know(self, topic: str, queue_id: int, start: int, stop: int) -> None:
        """The queue offsets ``[start, stop)`` were given out: those without a found message are lost."""
        self._queue(topic, queue_id).know(start, stop)

    def cannot_read(self, offsets: Iterable[tuple[str, int, int, int]]) -> None:
        """Topic, queue and offsets ``[start, stop)`` of messages whose records are there and cannot be read."""
        self._unreadable.update(offsets)

    def _queue(self, topic: str, queue_id: int) -> _Queue:
        return self._queues.setdefault((topic, queue_id), _Queue())

    def _of(self, topic: str) -> TopicCount:
        return self._topics.setdefault(topic, TopicCount(topic=topic))

    def by_topic(self) -> list[TopicCount]:
        """All topics, by name."""
        for unreadable in sorted(self._unreadable):
            self.know(*unreadable)
        for (topic, queue_id), queue in sorted(self._queues.items()):
            for start, stop in queue.lost():
                self._of(topic).lose(queue_id, start, stop)
                self._count_unreadable(topic, queue_id, start, stop)
        for cut in self._cut:
            self._lose_found(cut)
        self._queues, self._cut = {}, []
        return [count for _, count in sorted(self._topics.items())]

    def _lose_found(self, cut: LostMessages) -> None:
        """Count what would be cut off as lost, though it was found."""
        count, at = self._of(cut.topic), cut.start
        lost = [(start, stop) for queue_id, start, stop in count.lost_offsets if queue_id == cut.queue_id]
        for start, stop in [*sorted(lost), (cut.stop, cut.stop)]:
            if at < min(start, cut.stop):
                count.found -= min(start, cut.stop) - at
                count.lose(cut.queue_id, at, min(start, cut.stop))
            at = max(at, stop)

    def _count_unreadable(self, topic: str, queue_id: int, start: int, stop: int) -> None:
        """Of lost offsets, count those whose records are there."""
        for name, number, first, last in sorted(self._unreadable):
            low, high = max(start, first), min(stop, last)
            if (name, number) == (topic, queue_id) and low < high:
                self._of(topic).cannot_read(queue_id, low, high)
