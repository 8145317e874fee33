"""A store in memory with the methods of ``StoreReader`` that planning uses; it can lose its head or its tail."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from commitlog import Fence, QueueInfo, StoreReader
from commitlog.errors import OffsetOutOfRange, TopicNotFound
from pyspark_commitlog.unit_sizes import Sizes

__all__ = ["FakeStore"]

_UNIT = np.dtype([("physical_offset", "i8"), ("size", "i4"), ("tags_code", "i8")])


@dataclass
class _Queue:
    first: int = 0
    minimum: int = 0
    # Physical offset, size, and a number that tells one message from another.
    messages: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def maximum(self) -> int:
        return self.first + len(self.messages)


@dataclass
class FakeStore:
    """``calls`` counts what planning asks for, by method."""

    path: str = "/fake/store"
    all_queues: dict[tuple[str, int], _Queue] = field(default_factory=dict)
    position: int = 0
    serial: int = 0
    file_units: int = 1000
    calls: dict[str, int] = field(default_factory=dict)

    # -- what happens to the store -------------------------------------------------------------------------------

    def append(self, topic: str, queue_id: int, sizes: Sequence[int]) -> None:
        queue = self.all_queues.setdefault((topic, queue_id), _Queue())
        for size in sizes:
            self.serial += 1
            queue.messages.append((self.position, size, self.serial))
            self.position += size if size != 0x7FFFFFFF else 0

    def add_queue(self, topic: str, queue_id: int, first: int = 0) -> None:
        self.all_queues[topic, queue_id] = _Queue(first=first, minimum=first)

    def expire(self, topic: str, queue_id: int, minimum: int) -> None:
        self.all_queues[topic, queue_id].minimum = minimum

    def truncate(self, topic: str, queue_id: int, maximum: int) -> None:
        queue = self.all_queues[topic, queue_id]
        lost = queue.messages[maximum - queue.first :]
        del queue.messages[maximum - queue.first :]
        if lost:
            self.position = min(self.position, lost[0][0])

    # -- what planning sees --------------------------------------------------------------------------------------

    @property
    def reader(self) -> StoreReader:
        return cast("StoreReader", self)

    def close(self) -> None:
        self._count("close")

    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.all_queues})

    def queue_ids(self, topic: str) -> list[int]:
        found = sorted(queue_id for name, queue_id in self.all_queues if name == topic)
        if not found:
            raise TopicNotFound(topic)
        return found

    def queue_info(self, topic: str, queue_id: int) -> QueueInfo:
        self._count("queue_info")
        queue = self.all_queues[topic, queue_id]
        return QueueInfo(topic, queue_id, queue.minimum, queue.maximum)

    def queue_infos(self, queues: Iterable[tuple[str, int]]) -> list[QueueInfo]:
        return [self.queue_info(*key) for key in queues]

    def fence(self, topic: str, queue_id: int, offset: int) -> Fence | None:
        self._count("fence")
        queue = self.all_queues[topic, queue_id]
        if not queue.minimum <= offset < queue.maximum:
            return None
        place, size, serial = queue.messages[offset - queue.first]
        return Fence(place, zlib.crc32(f"{size}/{serial}".encode()))

    def units(
        self, topic: str, queue_id: int, start: int, stop: int, *, chunk: int = 1_000_000
    ) -> Iterator[np.ndarray[tuple[int], np.dtype[np.void]]]:
        self._count("units")
        queue = self.all_queues[topic, queue_id]
        if start < queue.minimum or stop > queue.maximum:
            raise OffsetOutOfRange(
                topic=topic,
                queue_id=queue_id,
                start=start,
                stop=stop,
                min_offset=queue.minimum,
                max_offset=queue.maximum,
            )
        return self._units(queue, start, stop, chunk)

    def _units(
        self, queue: _Queue, at: int, stop: int, chunk: int
    ) -> Iterator[np.ndarray[tuple[int], np.dtype[np.void]]]:
        while at < stop:
            end = min(at + chunk, stop, at - at % self.file_units + self.file_units)
            rows = queue.messages[at - queue.first : end - queue.first]
            units = np.zeros(len(rows), _UNIT)
            units["physical_offset"] = [place for place, _, _ in rows]
            units["size"] = [size for _, size, _ in rows]
            yield units
            at = end

    def sizes(self, topic: str, queue_id: int, start: int, stop: int) -> Sizes:
        queue = self.all_queues[topic, queue_id]
        rows = queue.messages[start - queue.first : stop - queue.first]
        return np.array([0 if size == 0x7FFFFFFF else size for _, size, _ in rows], np.int64)

    def _count(self, method: str) -> None:
        self.calls[method] = self.calls.get(method, 0) + 1
