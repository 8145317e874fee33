"""Summary of a verification by topic: messages found and lost, offsets that are lost, and transactions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from commitlog.columnar.dispatch import DispatchRequests, units_by_queue
from commitlog.format import sys_flag
from commitlog.format.arrays import Int64Array
from commitlog.recovery.kept import LostMessages

__all__ = ["LostOffsets", "TopicCount", "TopicSummary"]

# So many stretches of lost offsets are listed for a topic; the rest is only counted.
_MOST_STRETCHES = 1000


class LostOffsets(NamedTuple):
    """Queue offsets ``[start, stop)`` of a queue whose messages are not in the log, or would be cut off."""

    queue_id: int
    start: int
    stop: int


@dataclass(kw_only=True)
class TopicCount:
    """Records of a topic: ``found`` messages, ``prepared`` and ``rolled_back`` ones, which have no place in a queue.

    ``lost`` counts the offsets between the queue's first message and its last known one that no found message has;
    ``lost_offsets`` has the first stretches of them.
    """

    topic: str
    found: int = 0
    prepared: int = 0
    rolled_back: int = 0
    lost: int = 0
    lost_offsets: list[LostOffsets] = field(default_factory=list)

    def lose(self, queue_id: int, start: int, stop: int) -> None:
        """Count lost offsets."""
        self.lost += stop - start
        if len(self.lost_offsets) < _MOST_STRETCHES:
            self.lost_offsets.append(LostOffsets(queue_id, start, stop))


class TopicSummary:
    """Counts the records of a log, from its scans in order."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicCount] = {}
        # The offset after the last message that was found, by queue; offsets before the first are expired, or unknown.
        self._next: dict[tuple[str, int], int] = {}

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
                self._follow(group.topic, group.queue_id, group.queue_offsets)

    def _follow(self, topic: str, queue_id: int, offsets: Int64Array) -> None:
        before = self._next.get((topic, queue_id), int(offsets[0])) - 1
        for row in np.flatnonzero(np.diff(offsets, prepend=np.int64(before)) > 1).tolist():
            self._of(topic).lose(queue_id, int(offsets[row - 1]) + 1 if row else before + 1, int(offsets[row]))
        self._next[topic, queue_id] = max(before, int(offsets.max())) + 1

    def cut(self, lost: Iterable[LostMessages]) -> None:
        """Count messages that opening would cut off as lost, and those between them and the last found ones."""
        for one in lost:
            if one.start == one.stop:  # prepared or rolled back: without a place in a queue
                self._of(one.topic).lost += one.messages
                continue
            start = min(self._next.get((one.topic, one.queue_id), one.start), one.start)
            self._of(one.topic).lose(one.queue_id, start, one.stop)

    def _of(self, topic: str) -> TopicCount:
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = TopicCount(topic=topic)
        return found

    def by_topic(self) -> list[TopicCount]:
        """All topics, by name."""
        return [count for _, count in sorted(self._topics.items())]
