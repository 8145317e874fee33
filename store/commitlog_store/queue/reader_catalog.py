"""Catalog of the queues of a reader without queue files of its own: a server's, or a store and its archive as one."""

from __future__ import annotations

from collections.abc import Iterator

from commitlog_store.format.consume_queue_unit import FILLER_SIZE, Units
from commitlog_store.queue.get_message import checked_int
from commitlog_store.queue.views import CatalogView, ReaderView


class ReaderQueue:
    """One queue: see ``QueueView``. The reader was opened with the way to treat damage."""

    fillers_are_lost = False

    def __init__(self, reader: ReaderView, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._reader = reader

    def bounds(self) -> tuple[int, int]:
        info = self._reader.queue_info(self.topic, self.queue_id)
        return info.min_offset, info.max_offset

    def last_unit(self) -> tuple[int, int]:
        low, high = self.bounds()
        unit = self.unit(high - 1) if low < high else None
        return (-1, 0) if unit is None else (high - 1, unit[0])

    def first_offset_from(self, physical_offset: int, start: int, stop: int) -> int:
        return self._reader.first_offset_from(self.topic, self.queue_id, physical_offset, start, stop)

    def place_of(self, offset: int) -> tuple[str, int]:
        return self._reader.path, offset

    def unit(self, offset: int) -> tuple[int, int] | None:
        found = next(self.units(offset, offset + 1))[0]
        return None if found["size"] == FILLER_SIZE else (int(found["physical_offset"]), int(found["size"]))

    def units(self, start: int, stop: int, *, chunk: int = 1_000_000, check: bool = True) -> Iterator[Units]:
        del check
        return self._reader.units(self.topic, self.queue_id, start, stop, chunk=chunk)


class ReaderCatalog(CatalogView):
    """All queues: see ``CatalogView``."""

    def __init__(self, reader: ReaderView) -> None:
        self._reader = reader

    def topics(self) -> list[str]:
        return self._reader.topics()

    def queue_ids(self, topic: str) -> list[int]:
        return self._reader.queue_ids(topic)

    def queue(self, topic: str, queue_id: int) -> ReaderQueue:
        return ReaderQueue(self._reader, topic, checked_int("queue_id", queue_id))
