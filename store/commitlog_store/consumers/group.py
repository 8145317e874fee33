"""ConsumerGroup: the consumers of one group in this process, and which queues each of them reads.

Source: RocketMQ ``client/consumer/rebalance/AllocateMessageQueueAveragely.java``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, TypeAlias, TypeVar

from commitlog_store.errors import InvalidValue
from commitlog_store.groups.pulled_offsets import PulledOffsets
from commitlog_store.threads.wakeup import Waiters

_T = TypeVar("_T")
# Topic and queue id.
Queue: TypeAlias = tuple[str, int]


def average_share(items: Sequence[_T], members: int, index: int) -> Sequence[_T]:
    """The items of member ``index``: adjacent ones, and one more for the first members where they do not divide."""
    each, more = divmod(len(items), members)
    start = index * each + min(index, more)
    return items[start : start + each + (index < more)]


@dataclass
class MemberClient:
    """The client of a server, for which a member reads, by its last call. ``token`` is the name of its token, if any.

    ``called_ms`` is when that call began, in milliseconds since 1970.
    """

    token: str = ""
    address: str = ""
    called_ms: int = 0


class GroupMember(NamedTuple):
    """A member as pages show it, since ``since_ms`` (since 1970). ``client`` is None for a program of this process."""

    number: int
    since_ms: int
    client: MemberClient | None


class Share(NamedTuple):
    """The queues of a member in one generation, each with the number of its turn, and those of other members."""

    generation: int
    turns: dict[Queue, int]
    of_others: dict[str, frozenset[int]]
    """Queue ids by topic."""


class _Member(NamedTuple):
    topics: tuple[str, ...]
    since_ms: int
    client: MemberClient | None = None


class ConsumerGroup:
    """Members join with their topics, and share each topic's queues. Any number of threads.

    ``generation`` changes whenever shares may have changed; members then ask for theirs again. A queue's turn changes
    whenever it passes to another member: what a member knows of a queue, and has pulled of it, counts for one turn.
    ``changes`` wakes the members then.
    """

    def __init__(self, name: str, pulled: PulledOffsets) -> None:
        self.name = name
        self._pulled = pulled
        self.generation = 0
        self.changes = Waiters()
        # A consumer without references leaves wherever the interpreter notices it, also within a call of its thread.
        self._lock = threading.RLock()
        self._last_member = 0
        self._members: dict[int, _Member] = {}
        self._queue_ids: dict[str, tuple[int, ...]] = {}
        # The member that has each queue, and the number of the queue's turn.
        self._turns: dict[Queue, tuple[int, int]] = {}

    def join(self, topics: Sequence[str]) -> int:
        """Add a member. Returns its number."""
        with self._lock:
            self._last_member += 1
            member = self._last_member
            self._members[member] = _Member(tuple(topics), time.time_ns() // 1_000_000)
            self._share()
            return member

    @property
    def member_count(self) -> int:
        with self._lock:
            return len(self._members)

    def note_client(self, member: int, client: MemberClient) -> None:
        with self._lock:
            if member in self._members:
                self._members[member] = self._members[member]._replace(client=client)

    def members(self, most: int) -> list[GroupMember]:
        with self._lock:
            return [self._shown(number) for number in islice(self._members, most)]

    def holders(self, queues: Iterable[Queue]) -> dict[Queue, GroupMember]:
        """The member that reads each of these queues; without those that no member reads."""
        with self._lock:
            owners = {queue: self._turns.get(queue, (0, 0))[0] for queue in queues}
            return {queue: self._shown(owner) for queue, owner in owners.items() if owner in self._members}

    def _shown(self, number: int) -> GroupMember:
        """Called with the lock."""
        found = self._members[number]
        return GroupMember(number, found.since_ms, found.client)

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

    def share_of(self, member: int) -> Share:
        """What the member reads now."""
        own: dict[Queue, int] = {}
        others: dict[str, set[int]] = {}
        with self._lock:
            for queue, (owner, turn) in self._turns.items():
                if owner == member:
                    own[queue] = turn
                elif owner in self._members:
                    others.setdefault(queue[0], set()).add(queue[1])
            return Share(self.generation, own, {topic: frozenset(ids) for topic, ids in others.items()})

    def has(self, member: int, turns: Mapping[Queue, int]) -> bool:
        """Whether the member has these queues, in the same turns."""
        with self._lock:
            return all(self._turns.get(queue) == (member, turn) for queue, turn in turns.items())

    def note_pulled(self, member: int, queue: Queue, turn: int, next_offset: int) -> None:
        """Note how far a member has pulled; nothing, if the turn has ended while it pulled."""
        with self._lock:
            if self._turns.get(queue) == (member, turn):
                self._pulled.note(self.name, *queue, next_offset)

    def forget_pulled(self, member: int, turns: Mapping[Queue, int]) -> None:
        """Note that a member gives back what it has pulled of these queues; nothing of queues whose turn has ended."""
        with self._lock:
            self._pulled.forget(
                self.name, [queue for queue, turn in turns.items() if self._turns.get(queue) == (member, turn)]
            )

    def _share(self) -> None:
        """Give each queue to a member, and queues that do not exist any more to none. Called with the lock."""
        self.generation += 1
        owners: dict[Queue, int] = {}
        for topic, queue_ids in self._queue_ids.items():
            readers = [number for number, member in sorted(self._members.items()) if topic in member.topics]
            for index, member in enumerate(readers):
                share = average_share(queue_ids, len(readers), index)
                owners.update({(topic, queue_id): member for queue_id in share})
        passed: list[Queue] = []
        for queue in dict.fromkeys([*self._turns, *owners]):
            owner, turn = self._turns.get(queue, (0, 0))
            now = owners.get(queue, 0)
            if now != owner:
                self._turns[queue] = now, turn + 1
                passed.append(queue)
        self._pulled.forget(self.name, passed)
        self.changes.wake_all()


def refuse_open_members(group: ConsumerGroup | None, store_path: str) -> None:
    """``InvalidValue`` for a group that has consumers in this process: they keep positions of their own."""
    if group is not None and (count := group.member_count):
        raise InvalidValue(
            f"Group {group.name!r} has {count} consumers that are open in {store_path}, which keep its positions. "
            "Close them first; Consumer.seek moves one that is open."
        )
