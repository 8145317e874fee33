"""A queue that is as it was saved, to be read once: its entry alone says where its units are.

A read of fifty thousand queues makes one of these for each, in a fraction of the time and memory of a ``ConsumeQueue``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from commitlog_store.errors import CommitLogError
from commitlog_store.format.consume_queue_unit import FILLER_SIZE, UNIT_SIZE, Units, decode_units, unit_place
from commitlog_store.paths import file_name_for_offset
from commitlog_store.queue.consume_queue import ConsumeQueue, are_possible, read_file
from commitlog_store.queue.saved_ends import LastUnit
from commitlog_store.queue.views import QueueView

# Ranges of so many units are read together with others.
_SHORT = 256


class UnchangedQueue(QueueView):
    """Its last unit is the saved one, and the others of its last file are read as they are. For all else, and where
    they are not as expected, it makes the ``ConsumeQueue``, which finds out what is wrong.
    """

    __slots__ = ("_directory", "_find", "_last", "queue_id", "topic")

    fillers_are_lost = False

    def __init__(
        self, directory: str, topic: str, queue_id: int, last: LastUnit, find: Callable[[str, int], ConsumeQueue]
    ) -> None:
        """``last`` is what is saved of the queue, which was compared when it was asked for last. ``find`` makes the
        ``ConsumeQueue``.
        """
        self._directory = directory
        self.topic = topic
        self.queue_id = queue_id
        self._last = last
        self._find = find

    def units(self, start: int, stop: int, *, chunk: int = 1_000_000, check: bool = True) -> Iterator[Units]:
        data = self.packed(start, stop, chunk)
        found = None if data is None else decode_units(data)
        if found is None or (check and not are_possible(found).all()):
            return self._whole.units(start, stop, chunk=chunk, check=check)
        return iter((found,))

    def packed(self, start: int, stop: int, most: int = 1_000_000) -> bytes | None:
        """The units as they are in the last file, ``most`` of them at most; None where it does not hold all of them."""
        base, end, *_ = self._last
        size = (stop - start) * UNIT_SIZE
        if not start < stop <= min(end, start + most) or start * UNIT_SIZE < base:
            return None
        try:
            data = read_file(f"{self._directory}/{file_name_for_offset(base)}", size, start * UNIT_SIZE - base)
        except FileNotFoundError:
            return None
        return data if len(data) == size else None

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
        if offset == self._last.end - 1:
            return self._last.place, self._last.size
        data = self.packed(offset, offset + 1)
        found = None if data is None else unit_place(data)
        if found is None or found[0] < 0 or found[1] <= 0 or found[1] == FILLER_SIZE:
            return self._whole.unit(offset)
        return found


def good_units(ranges: Sequence[tuple[QueueView, int, int]], chunk: int) -> list[Units | None]:
    """The units of short ranges, of ``chunk`` units at most, decoded and checked in one step; read-only.

    None for a range that has to be read by itself: of another queue, or with a damaged unit or a filler.
    """
    most = min(chunk, _SHORT)
    found: list[Units | None] = [None] * len(ranges)
    read: list[tuple[int, int]] = []  # the number of a range, and that of its units
    data: list[bytes] = []
    for number, (queue, start, stop) in enumerate(ranges):
        if isinstance(queue, UnchangedQueue) and stop - start <= most:
            with contextlib.suppress(CommitLogError):
                packed = queue.packed(start, stop)
                if packed is not None:
                    read.append((number, stop - start))
                    data.append(packed)
    units = decode_units(b"".join(data))
    units.flags.writeable = False
    good = are_possible(units) & (units["size"] != FILLER_SIZE)
    all_good, at = bool(good.all()), 0
    for number, count in read:
        if all_good or good[at : at + count].all():
            found[number] = units[at : at + count]
        at += count
    return found
