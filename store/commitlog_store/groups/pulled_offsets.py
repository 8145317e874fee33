"""PulledOffsets: how far the consumers of each group have pulled, in memory: the next queue offset of each queue.

Between a group's position and this are the messages in flight: consumers have them, and have not acknowledged them.

Source: RocketMQ ``broker/offset/ConsumerOffsetManager.java`` (``pullOffsetTable``).
"""

from __future__ import annotations

from collections.abc import Iterable

# No client makes the table larger; queues beyond are taken to be pulled up to the group's position.
MOST_QUEUES = 200_000

_Name = tuple[str, str]


class PulledOffsets:
    """Any number of threads. Without a lock, since a signal handler may pull, too: each step is one of a dict."""

    def __init__(self, most: int = MOST_QUEUES) -> None:
        self._most = most
        # By group and topic, then by queue id.
        self._offsets: dict[_Name, dict[int, int]] = {}
        # How many queues there are, about: two threads that add one at once may count it once.
        self._count = 0

    def note(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Note that the group's consumers have what lies before this offset."""
        queues = self._offsets.get((group, topic))
        if queues is None or queue_id not in queues:
            if self._count >= self._most:
                return
            self._count += 1
            queues = self._offsets.setdefault((group, topic), {})
        queues[queue_id] = next_offset

    def all(self) -> dict[_Name, dict[int, int]]:
        """``{(group, topic): {queue id: next queue offset}}``."""
        return {name: queues.copy() for name, queues in self._offsets.copy().items()}

    def forget(self, group: str, queues: Iterable[tuple[str, int]]) -> None:
        """Forget these queues: nothing of them is in flight any more."""
        for topic, queue_id in queues:
            if self._offsets.get((group, topic), {}).pop(queue_id, None) is not None:
                self._count -= 1

    def forget_all(self, *, group: str | None = None, topic: str | None = None) -> None:
        """Forget a group, or a topic."""
        for name in self._offsets.copy():
            if name[0] == group or name[1] == topic:
                self._count -= len(self._offsets.pop(name, {}))
