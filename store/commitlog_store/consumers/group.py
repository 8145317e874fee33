"""ConsumerGroup: the consumers of one group in this process, and which queues each of them reads.

Source: RocketMQ ``client/consumer/rebalance/AllocateMessageQueueAveragely.java``.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeVar

_T = TypeVar("_T")
# Topic and queue id.
Queue: TypeAlias = tuple[str, int]


def average_share(items: Sequence[_T], members: int, index: int) -> Sequence[_T]:
    """The items of member ``index``: adjacent ones, and one more for the first members where they do not divide."""
    each, more = divmod(len(items), members)
    start = index * each + min(index, more)
    return items[start : start + each + (index < more)]


class ConsumerGroup:
    """Members join with their topics, and share each topic's queues. Any number of threads.

    ``generation`` changes whenever shares may have changed; members then ask for theirs again. A queue's turn changes
    whenever it passes to another member: what a member knows of a queue counts for one turn.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.generation = 0
        # A consumer without references leaves wherever the interpreter notices it, also within a call of its thread.
        self._lock = threading.RLock()
        self._last_member = 0
        self._members: dict[int, tuple[str, ...]] = {}
        self._queue_ids: dict[str, tuple[int, ...]] = {}
        # The member that has each queue, and the number of the queue's turn.
        self._turns: dict[Queue, tuple[int, int]] = {}

    def join(self, topics: Sequence[str]) -> int:
        """Add a member. Returns its number."""
        with self._lock:
            self._last_member += 1
            member = self._last_member
            self._members[member] = tuple(topics)
            self._share()
            return member

    @property
    def member_count(self) -> int:
        with self._lock:
            return len(self._members)

    def leave(self, member: int) -> None:
        """Remove a member; the others take its queues over."""
        with self._lock:
            if self._members.pop(member, None) is not None:
                self._share()

    def note_queues(self, topic: str, queue_ids: Sequence[int]) -> None:
        """Note the queues that a topic has: all members share the same ones."""
        if self._queue_ids.get(topic) == tuple(queue_ids):
            return
        with self._lock:
            self._queue_ids[topic] = tuple(queue_ids)
            self._share()

    def share_of(self, member: int) -> tuple[int, dict[Queue, int]]:
        """The generation, and the queues that the member reads in it, with the number of the turn of each."""
        with self._lock:
            return self.generation, {queue: turn for queue, (owner, turn) in self._turns.items() if owner == member}

    def has(self, member: int, turns: Mapping[Queue, int]) -> bool:
        """Whether the member has these queues, in the same turns."""
        with self._lock:
            return all(self._turns.get(queue) == (member, turn) for queue, turn in turns.items())

    def _share(self) -> None:
        """Give each queue to a member, and queues that do not exist any more to none. Called with the lock."""
        self.generation += 1
        owners: dict[Queue, int] = {}
        for topic, queue_ids in self._queue_ids.items():
            readers = [member for member, topics in sorted(self._members.items()) if topic in topics]
            for index, member in enumerate(readers):
                share = average_share(queue_ids, len(readers), index)
                owners.update({(topic, queue_id): member for queue_id in share})
        for queue in dict.fromkeys([*self._turns, *owners]):
            owner, turn = self._turns.get(queue, (0, 0))
            now = owners.get(queue, 0)
            if now != owner:
                self._turns[queue] = now, turn + 1
