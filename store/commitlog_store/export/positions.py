"""Positions of an export: the next offset of each queue, and the message before it, by which a lost tail is noticed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from commitlog_store.errors import TailLost
from commitlog_store.export.state import ExportState
from commitlog_store.export.targets import ExportTarget
from commitlog_store.queue.fence import Fence
from commitlog_store.reader import QueueInfo, StoreReader


class ExportPositions:
    """The positions of one run, which begins where ``state`` says."""

    def __init__(self, reader: StoreReader, state: ExportState) -> None:
        self._reader = reader
        self._queues = {topic: dict(offsets) for topic, offsets in state.queues.items()}
        self._fences = {topic: dict(fences) for topic, fences in state.fences.items()}
        # Queues whose fence is not that of their position.
        self._moved: set[tuple[str, int]] = set()

    def get(self, topic: str, queue_id: int) -> int | None:
        """The next offset of a queue; None for one that the export has not come to yet."""
        return self._queues.get(topic, {}).get(str(queue_id))

    def has_topic(self, topic: str) -> bool:
        """Whether the export has come to the topic."""
        return topic in self._queues

    def move(self, topic: str, queue_id: int, position: int) -> None:
        """Continue a queue at an offset from now on."""
        self._queues.setdefault(topic, {})[str(queue_id)] = position
        self._moved.add((topic, queue_id))

    def begin(self, topic: str, queue_id: int, position: int) -> None:
        """Note where a queue begins. One that is known stays, and gets a fence if it has none."""
        known = self.get(topic, queue_id)
        if known is None or str(queue_id) not in self._fences.get(topic, {}):
            self.move(topic, queue_id, position if known is None else known)

    def noted_in(self, state: ExportState) -> ExportState:
        """The state with these positions and their fences."""
        moved = sorted(self._moved)
        for (topic, queue_id), fence in zip(moved, self._fences_before(moved), strict=True):
            fences = self._fences.setdefault(topic, {})
            if fence is None:  # nothing was before it, or retention has removed that
                fences.pop(str(queue_id), None)
            else:
                fences[str(queue_id)] = fence.physical_offset, fence.crc
        self._moved.clear()
        return replace(
            state,
            queues={topic: dict(offsets) for topic, offsets in self._queues.items()},
            fences={topic: dict(fences) for topic, fences in self._fences.items() if fences},
        )

    def _fences_before(self, queues: Sequence[tuple[str, int]]) -> list[Fence | None]:
        """The fence of the message before the position of each queue; None without one."""
        after = [(*key, at - 1) for key in queues if (at := self.get(*key))]
        found = dict(zip(after, self._reader.fences(after), strict=True))
        return [found.get((*key, (self.get(*key) or 0) - 1)) for key in queues]

    def refuse_lost_tails(self, infos: Sequence[QueueInfo], target: ExportTarget) -> None:
        """``TailLost`` for a queue that ends before its position, or has another message before it now."""
        compared = [
            (info.topic, info.queue_id)
            for info in infos
            if str(info.queue_id) in self._fences.get(info.topic, {})
            and info.min_offset < (self.get(info.topic, info.queue_id) or 0) <= info.max_offset
        ]
        found = dict(zip(compared, self._fences_before(compared), strict=True))
        for info in infos:
            self._refuse_lost_tail(info, target, found.get((info.topic, info.queue_id)))

    def _refuse_lost_tail(self, info: QueueInfo, target: ExportTarget, found: Fence | None) -> None:
        topic, queue_id, low, high = info.topic, info.queue_id, info.min_offset, info.max_offset
        position, fence = self.get(topic, queue_id), self._fences.get(topic, {}).get(str(queue_id))
        if position is None or (position <= high and fence is None):
            return
        if position > high:
            what = f"the queue now ends at {high}"
        else:
            # None: retention has removed that message, so nothing can be compared, and nothing is wrong.
            if found is None or found == fence:
                return
            what = f"the message at offset {position - 1} is another one now, and perhaps others before it"
        raise TailLost(
            f"Topic {topic!r}, queue {queue_id}: the export into {target} has come up to offset {position}, and {what} "
            f"(available are [{low}, {high})). The store has lost the end of this queue: it was restored from an older "
            "copy, recovery cut off what a crash had left unwritten, or the topic was deleted and begun again. The "
            "target has rows of messages that are lost, and none of those in their places; nothing was written. "
            "Restore the store that the export was made of, or export into another target.",
            topic=topic,
            queue_id=queue_id,
            position=position,
            available=(low, high),
        )
