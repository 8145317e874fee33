"""The timer log of a store: units in the order of the timer's queue, chained by the second in which they are due.

``format/timer_log.py`` has the bytes. A position counts the bytes of all files, each of the same size; a unit never
crosses two of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from commitlog_store.columnar.timer_times import TimerTimes
from commitlog_store.files import disk
from commitlog_store.files.mapped_file_queue import MappedFileQueue
from commitlog_store.files.whole_file import new_file, replace_failed
from commitlog_store.format.arrays import BoolArray, Int64Array
from commitlog_store.format.timer_log import (
    BLANK_SIZE,
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    UNIT_DTYPE,
    UNIT_SIZE,
    encode_blank,
    units_in,
    whole_units,
)
from commitlog_store.format.timer_messages import PRECISION_MS
from commitlog_store.java_numbers import MAX_INT
from commitlog_store.paths import TIMER_LOG, file_name_for_offset

Units = npt.NDArray[Any]

# Units that are read at once: 3 MiB.
_AT_ONCE = 1 << 16
# And while a chain is followed, whose units are mostly close together.
_CHAIN_AT_ONCE = 256
NONE = -1


class Key(NamedTuple):
    """The order of delivery: by the time of delivery in ms, then by physical offset."""

    due: int
    physical_offset: int


class Delivered(NamedTuple):
    """Which messages are delivered: those before the physical offset ``judged`` whose key is up to ``key``."""

    key: Key
    judged: int

    def waiting(self, dues: Int64Array, physical: Int64Array) -> BoolArray:
        """Which messages of these still wait."""
        return np.asarray((physical >= self.judged) | self.after(dues, physical), np.bool_)

    def after(self, dues: Int64Array, physical: Int64Array) -> BoolArray:
        """Which keys come after the last one that was delivered."""
        due, offset = self.key
        return np.asarray((dues > due) | ((dues == due) & (physical > offset)), np.bool_)


NOTHING_DELIVERED = Delivered(Key(NONE, NONE), 0)


class SlotUnit(NamedTuple):
    """A unit of a slot: time of delivery in ms, physical offset and size of its message, and its magic number."""

    due: int
    physical_offset: int
    size: int
    magic: int


def dues_of(units: Units) -> Int64Array:
    """The time of delivery of each unit in ms; of one that a broker wrote, the end of its second."""
    slots = (units["write_time"].astype(np.int64) + units["delay"]) // PRECISION_MS
    return np.where(units["due"] > 0, units["due"].astype(np.int64), (slots + 1) * PRECISION_MS)


class TimerLog:
    """The files as they are; for reading. ``file_size`` is that of the first file, else the one given."""

    def __init__(self, store_path: str, file_size: int) -> None:
        self._queue = MappedFileQueue(os.path.join(store_path, TIMER_LOG))
        self._queue.refresh()
        bases = self._queue.bases
        self._set_file_size(self._queue.file(bases[0]).size if bases else file_size)

    def _set_file_size(self, file_size: int) -> None:
        self.file_size = max(file_size, 1)
        self._per_file = max(units_in(file_size), 1)

    @property
    def first(self) -> int:
        """The position of the first file."""
        return self._queue.bases[0] if self._queue.bases else 0

    def covers(self, end: int) -> bool:
        """Whether there is a file for each unit up to a position; false also for sizes that no timer log has."""
        last = self._position(self._index(end) - 1) if end else 0
        return self._per_file > 1 and (not end or self._queue.find(last) is not None)

    def _index(self, position: int) -> int:
        base, within = divmod(position, self.file_size)
        return base * self._per_file + min(within // UNIT_SIZE, self._per_file)

    def _position(self, index: int) -> int:
        file, within = divmod(index, self._per_file)
        return file * self.file_size + within * UNIT_SIZE

    def following(self, position: int) -> int:
        """The position of the unit after the one at ``position``."""
        return self._position(self._index(position) + 1)

    def blocks(self, start: int, stop: int | None = None) -> Iterator[tuple[Int64Array, Units]]:
        """The units from a position on with their positions, up to ``stop``, or to the first place without a unit."""
        at, last = self._index(max(start, self.first)), None if stop is None else self._index(stop)
        while last is None or at < last:
            count = min(_AT_ONCE, self._per_file - at % self._per_file, *(() if last is None else (last - at,)))
            position = self._position(at)
            file = self._queue.find(position)
            if file is None:
                return
            units = np.frombuffer(file.read(position - file.base, count * UNIT_SIZE), UNIT_DTYPE)
            whole = whole_units(units)
            if whole:
                yield position + np.arange(whole) * UNIT_SIZE, units[:whole]
            if whole < count:
                return
            at += count

    def slot(self, last: int, first: int) -> list[SlotUnit]:
        """The units of a slot whose last one is at ``last``, the last one first, none of them before ``first``."""
        found: list[SlotUnit] = []
        start, units, dues = last + 1, np.zeros(0, UNIT_DTYPE), np.zeros(0, np.int64)
        while last >= first and last != NONE:
            if not start <= last < start + len(units) * UNIT_SIZE:
                file = self._queue.find(last)
                if file is None:
                    break
                start = max(last - (_CHAIN_AT_ONCE - 1) * UNIT_SIZE, file.base)
                units = np.frombuffer(file.read(start - file.base, last + UNIT_SIZE - start), UNIT_DTYPE)
                dues = dues_of(units)
            row = (last - start) // UNIT_SIZE
            unit = units[row]
            found.append(
                SlotUnit(int(dues[row]), int(unit["physical_offset"]), int(unit["message_size"]), int(unit["magic"]))
            )
            before = int(unit["previous"])
            last = before if before < last else NONE  # a damaged one must not lead in a circle
        return found

    def close(self) -> None:
        self._queue.close()


class TimerLogWriter(TimerLog):
    """The owner's timer log. ``end`` is where the next unit goes. Errors: ``DiskFull``, ``StoreIOError``."""

    def __init__(self, store_path: str, file_size: int) -> None:
        super().__init__(store_path, file_size)
        self._new_file_size = file_size
        self._path = os.path.join(store_path, TIMER_LOG)
        self._descriptor, self._base = -1, NONE
        self.end = self.first

    def begin_at(self, end: int) -> None:
        """Cut off whatever follows ``end``, and continue there. Zeros follow then: a broker reads up to them."""
        for base in reversed(self._queue.bases.copy()):
            path = self._queue.files.path_of(base)
            if base >= end:
                self._done(path, lambda path=path: disk.unlink(path))
            elif base + self.file_size > end:
                self._done(path, lambda base=base: self._zero_from(base, end))
        self._queue.files.forget()
        self._queue.refresh()
        if not self._queue.bases:
            self._set_file_size(self._new_file_size)
        self.end = end

    def _zero_from(self, base: int, end: int) -> None:
        self._open(base)
        disk.truncate(self._descriptor, end - base)
        disk.truncate(self._descriptor, self.file_size)

    def begin_file(self) -> None:
        """Continue in a file of its own, after all that there are."""
        bases = self._queue.bases
        self.end = bases[-1] + self.file_size if bases else 0

    def append(self, times: TimerTimes, wheel: dict[int, int], now_ms: int, magic: int = MAGIC_DEFAULT) -> None:
        """Append a unit for each message. ``wheel`` has the position of the last unit of each slot."""
        files, within = np.divmod(self._index(self.end) + np.arange(times.messages), self._per_file)
        positions = files * self.file_size + within * UNIT_SIZE
        units = np.zeros(times.messages, UNIT_DTYPE)
        slot_times = times.dues - 1
        write_times = np.maximum(np.minimum(slot_times, now_ms), slot_times - MAX_INT)
        units["size"], units["magic"] = UNIT_SIZE, magic
        units["previous"] = _chained(slot_times // PRECISION_MS, positions, wheel)
        units["write_time"], units["delay"] = write_times, slot_times - write_times
        units["physical_offset"], units["message_size"] = times.physical_offsets, times.sizes
        units["topic_hash"], units["due"] = times.topic_hashes, times.dues
        self.append_units(units)
        slots = slot_times // PRECISION_MS
        wheel.update(zip(slots.tolist(), positions.tolist(), strict=True))

    def append_units(self, units: Units) -> None:
        """Append units as they are."""
        done = 0
        while done < len(units):
            index = self._index(self.end)
            position = self._position(index)
            base = position // self.file_size * self.file_size
            count = min(len(units) - done, self._per_file - index % self._per_file)
            is_full = index % self._per_file + count == self._per_file
            data = units[done : done + count].tobytes()
            path = os.path.join(self._path, file_name_for_offset(base))
            self._done(path, lambda: self._write(base, position - base, data, is_full=is_full))  # noqa: B023
            self.end = self._position(index + count)
            done += count

    def _write(self, base: int, at: int, data: bytes, *, is_full: bool) -> None:
        self._open(base)
        if is_full:
            rest = self.file_size - at - len(data)
            data += encode_blank(rest).ljust(rest, b"\0") if rest >= BLANK_SIZE else b"\0" * rest
        disk.write_at(self._descriptor, data, at)

    def _open(self, base: int) -> None:
        if self._base == base:
            return
        self._leave_file()
        path = os.path.join(self._path, file_name_for_offset(base))
        if not disk.exists(path):
            if not disk.exists(self._path):
                disk.make_directory(self._path)
                disk.sync_directory(os.path.dirname(self._path))
            disk.close(new_file(path, lambda descriptor: disk.truncate(descriptor, self.file_size)))
            self._queue.files.add(base)
        self._descriptor, self._base = disk.open_for_writing(path), base

    def sync(self) -> None:
        """Bring all units to the device."""
        if self._base != NONE:
            self._done(self._queue.files.path_of(self._base), lambda: disk.sync(self._descriptor))

    def delete_before(self, position: int) -> None:
        """Delete the files that end before a position, but the last one: it shows where the timer log ends."""
        for base in [base for base in self._queue.bases[:-1] if base + self.file_size <= position]:
            path = self._queue.files.path_of(base)
            self._done(path, lambda path=path: disk.unlink(path))
            self._queue.files.forget()
        self._queue.refresh()

    def _done(self, path: str, step: Any) -> None:
        try:
            step()
        except OSError as error:
            raise replace_failed(path, error) from error

    def _leave_file(self) -> None:
        if self._base != NONE:
            descriptor, self._descriptor, self._base = self._descriptor, -1, NONE
            try:
                disk.sync(descriptor)
            finally:
                disk.close(descriptor)

    def close(self) -> None:
        super().close()
        if self._base != NONE:
            descriptor, self._descriptor, self._base = self._descriptor, -1, NONE
            disk.close(descriptor)


def _chained(slots: Int64Array, positions: Int64Array, wheel: dict[int, int]) -> Int64Array:
    """The position of the unit before each one in its slot; ``wheel`` has the last one of earlier units."""
    order = np.argsort(slots, kind="stable")
    inner = slots[order]
    before = np.empty(len(slots), np.int64)
    same = np.concatenate([[False], inner[1:] == inner[:-1]]) if len(slots) else np.zeros(0, np.bool_)
    before[order] = np.where(same, np.roll(positions[order], 1), NONE)
    for row in order[~same].tolist():
        before[row] = wheel.get(int(slots[row]), NONE)
    return before


def is_cancelling(unit: SlotUnit) -> bool:
    """Whether a unit's message cancels another one."""
    return bool(unit.magic & MAGIC_DELETE)
