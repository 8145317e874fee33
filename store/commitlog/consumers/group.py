"""ConsumerGroup: the consumers of one group in this process, and which queues each of them reads.

Source: RocketMQ ``client/consumer/rebalance/AllocateMessageQueueAveragely.java``.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["ConsumerGroup", "average_share"]

_T = TypeVar("_T")


def average_share(items: Sequence[_T], members: int, index: int) -> Sequence[_T]:
    """The items of member ``index``: adjacent ones, and one more for the first members where they do not divide."""
    each, more = divmod(len(items), members)
    start = index * each + min(index, more)
    return items[start : start + each + (index < more)]


class ConsumerGroup:
    """Members join with their topics, and share each topic's queues. Any number of threads.

    ``generation`` changes whenever shares may have changed; members then ask for theirs again.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.generation = 0
        self._lock = threading.Lock()
        self._last_member = 0
        self._members: dict[int, tuple[str, ...]] = {}
        self._queue_ids: dict[str, tuple[int, ...]] = {}

    def join(self, topics: Sequence[str]) -> int:
        """Add a member. Returns its number."""
        with self._lock:
            self._last_member += 1
            self._members[self._last_member] = tuple(topics)
            self.generation += 1
            return self._last_member

    def leave(self, member: int) -> None:
        """Remove a member; the others take its queues over."""
        with self._lock:
            if self._members.pop(member, None) is not None:
                self.generation += 1

    def note_queues(self, topic: str, queue_ids: Sequence[int]) -> None:
        """Note the queues that a topic has: all members share the same ones."""
        if self._queue_ids.get(topic) == tuple(queue_ids):
            return
        with self._lock:
            self._queue_ids[topic] = tuple(queue_ids)
            self.generation += 1

    def share_of(self, member: int) -> tuple[int, list[tuple[str, int]]]:
        """The generation, and the queues that the member reads in it."""
        with self._lock:
            queues = [
                (topic, queue_id)
                for topic in self._members.get(member, ())
                for queue_id in self._share_of_topic(member, topic)
            ]
            return self.generation, queues

    def _share_of_topic(self, member: int, topic: str) -> Sequence[int]:
        readers = sorted(one for one, topics in self._members.items() if topic in topics)
        return average_share(self._queue_ids.get(topic, ()), len(readers), readers.index(member))
