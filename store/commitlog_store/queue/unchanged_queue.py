"""A queue that is as it was saved, to be read once: its entry alone says where its units are.

A read of fifty thousand queues makes one of these for each, in a fraction of the time and memory of a ``ConsumeQueue``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from commitlog_store.format.consume_queue_unit import UNIT_SIZE, Units, decode_units
from commitlog_store.paths import file_name_for_offset
from commitlog_store.queue.consume_queue import ConsumeQueue, are_possible, read_file
from commitlog_store.queue.saved_ends import SavedEnd
from commitlog_store.queue.views import QueueView


class UnchangedQueue(QueueView):
    """The units of its last file are read as they are. For all else, and where they are not as expected, it makes the
    ``ConsumeQueue``, which finds out what is wrong.
    """

    __slots__ = ("_directory", "_find", "_saved", "queue_id", "topic")

    fillers_are_lost = False

    def __init__(
        self, directory: str, topic: str, queue_id: int, saved: SavedEnd, find: Callable[[str, int], ConsumeQueue]
    ) -> None:
        """``saved`` was compared with the queue when it was asked for last. ``find`` makes the ``ConsumeQueue``."""
        self._directory = directory
        self.topic = topic
        self.queue_id = queue_id
        self._saved = saved
        self._find = find

    def units(self, start: int, stop: int, *, chunk: int = 1_000_000, check: bool = True) -> Iterator[Units]:
        found = self._of_last_file(start, stop) if start < stop <= min(self._saved.end, start + chunk) else None
        if found is None or (check and not are_possible(found).all()):
            return self._whole.units(start, stop, chunk=chunk, check=check)
        return iter((found,))

    def _of_last_file(self, start: int, stop: int) -> Units | None:
        """The units; None where the last file does not hold all of them."""
        base = self._saved.last_base
        if start * UNIT_SIZE < base:
            return None
        path = f"{self._directory}/{file_name_for_offset(base)}"
        try:
            data = read_file(path, (stop - start) * UNIT_SIZE, start * UNIT_SIZE - base)
        except FileNotFoundError:
            return None
        return decode_units(data) if len(data) == (stop - start) * UNIT_SIZE else None

    @property
    def _whole(self) -> ConsumeQueue:
        return self._find(self.topic, self.queue_id)

    def bounds(self) -> tuple[int, int]:
        return self._whole.bounds()

    def last_unit(self) -> tuple[int, int]:
        return self._whole.last_unit()

    def first_offset_from(self, physical_offset: int, start: int, stop: int) -> int:
        return self._whole.first_offset_from(physical_offset, start, stop)

    def place_of(self, offset: int) -> tuple[str, int]:
        return self._whole.place_of(offset)

    def unit(self, offset: int) -> tuple[int, int] | None:
        return self._whole.unit(offset)
