"""PulledOffsets: how far the consumers of each group have pulled, in memory: the next queue offset of each queue.

Between a group's position and this are the messages in flight: consumers have them, and have not acknowledged them.

Source: RocketMQ ``broker/offset/ConsumerOffsetManager.java`` (``pullOffsetTable``).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from typing import TypeAlias

_LOG = logging.getLogger(__name__)

# Of all groups together, so that no client makes the table larger; queues beyond count as not pulled.
MOST_QUEUES = 200_000

# Group, topic and queue id.
PulledQueue: TypeAlias = tuple[str, str, int]


class PulledOffsets:
    """Any number of threads, and signal handlers. Without a lock: each method reads or changes one dict by calls that
    no other thread interrupts. Threads that add queues at once may pass the bound by one queue each."""

    def __init__(self, most: int = MOST_QUEUES) -> None:
        self._most = most
        self._offsets: dict[PulledQueue, int] = {}
        self._has_warned = False

    def note(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Note that the group's consumers have the messages before this offset."""
        queue = (group, topic, queue_id)
        if queue not in self._offsets:
            if len(self._offsets) >= self._most:
                self._warn()
                return
            # Each request has strings of its own; one of each name is kept.
            queue = (sys.intern(str(group)), sys.intern(str(topic)), queue_id)
        self._offsets[queue] = next_offset

    def _warn(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "Consumers have pulled %d queues of groups since the store was opened. Of further queues, the metrics "
                "show messages in flight as ready.",
                self._most,
            )

    def all(self) -> Mapping[PulledQueue, int]:
        """A copy."""
        return self._offsets.copy()

    def forget(self, group: str, queues: Iterable[tuple[str, int]]) -> None:
        """Forget these queues: none of their messages is in flight any more."""
        for topic, queue_id in queues:
            self._offsets.pop((group, topic, queue_id), None)

    def forget_all(self, *, group: str | None = None, topic: str | None = None) -> None:
        for queue in list(self._offsets):
            if queue[0] == group or queue[1] == topic:
                self._offsets.pop(queue, None)
