"""Which units of a queue lead to messages before a place in the log: to expired ones, say.

Units follow one another in the order of the log. A unit whose values cannot be, or that is not between its neighbours,
is damaged. It decides nothing here: it is neither taken for expired nor for the first one that is not, and hides no
message after it. Its reader reports it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from commitlog_store.format.arrays import BoolArray
from commitlog_store.format.consume_queue_unit import FILLER_SIZE, UNIT_DTYPE, Units

# Reads the units ``[first, stop)`` as far as files hold them without a gap.
ReadUnits = Callable[[int, int], Units]

# A unit is compared with so many on each side: of two alone, nothing says which one is wrong.
_AROUND = 2
_MOST_AT_ONCE = 1 << 16
_BEFORE_ALL = -(2**62)


class Judged(NamedTuple):
    """Units as they were judged, row by row.

    ``sound``: it is not damaged. ``before``: if so, whether it is a filler or leads to a message before the place.
    """

    sound: BoolArray
    before: BoolArray


def sound_units(units: Units) -> BoolArray:
    """Which units can be right: fillers before all others, and places that rise. Zeros are not."""
    is_filler = units["size"] == FILLER_SIZE
    rows = np.flatnonzero((units["physical_offset"] >= 0) & (units["size"] > 0))
    if len(rows) and rows[0] > 0 and not any(units[rows[0] - 1].item()):
        rows = rows[1:]  # it may have lost its place's first bytes with the zeros, and no unit before it shows
    places = units["physical_offset"].astype(np.int64)[rows]
    fillers = np.flatnonzero(is_filler[rows])
    places[fillers] = _BEFORE_ALL + fillers
    in_order = np.ones(len(rows), np.bool_)
    in_order[2:] &= places[2:] > np.minimum(places[:-2], places[1:-1])
    in_order[:-2] &= places[:-2] < np.maximum(places[1:-1], places[2:])
    rows, places = rows[in_order], places[in_order]
    found = np.zeros(len(units), np.bool_)
    found[rows] = True
    unclear = np.flatnonzero(places[1:] <= places[:-1])
    found[rows[unclear]] = found[rows[unclear + 1]] = False
    return found


def _judge(units: Units, physical_offset: int) -> Judged:
    """Judge units by their neighbours and by a place in the log."""
    before = (units["size"] == FILLER_SIZE) | (units["physical_offset"] < physical_offset)
    return Judged(sound_units(units), before)


def judge_range(read: ReadUnits, start: int, stop: int, low: int, high: int, physical_offset: int) -> Judged:
    """Judge the units ``[start, stop)`` of a queue that has units ``[low, high)``."""
    first, last = max(start - _AROUND, low), min(stop + _AROUND, high)
    units = read(first, last)
    if len(units) < last - first:
        units = np.concatenate([units, np.zeros(last - first - len(units), UNIT_DTYPE)])
    sound, before = _judge(units, physical_offset)
    return Judged(sound[start - first : stop - first], before[start - first : stop - first])


def count_before(units: Units, physical_offset: int) -> int:
    """How many units at the head of an array are those of messages before a place, and damaged ones among these."""
    sound, before = _judge(units, physical_offset)
    rows = np.flatnonzero(sound & before)
    return int(rows[-1]) + 1 if len(rows) else 0


def end_before(read: ReadUnits, low: int, high: int, physical_offset: int) -> int:
    """The offset after the last unit of ``[low, high)`` whose message lies before a place, or ``low``; bisection.

    ``high`` is the end of the written units. Damaged units are searched around, so that the result is no other because
    of them; those directly after the last unit before the place are not counted to it.
    """
    first, stop, at = low, high, low
    while low < high:
        found = _next_sound(read, at, high, (first, stop), physical_offset)
        if found is not None and found[1]:
            low = found[0] + 1
        else:
            high = at
        at = (low + high) // 2
    return low


def _next_sound(
    read: ReadUnits, at: int, high: int, whole: tuple[int, int], physical_offset: int
) -> tuple[int, bool] | None:
    """The first unit of ``[at, high)`` that is not damaged, and whether its message lies before a place."""
    count = 1
    while at < high:
        stop = min(at + count, high)
        sound, before = judge_range(read, at, stop, *whole, physical_offset)
        if sound.any():
            row = int(np.argmax(sound))
            return at + row, bool(before[row])
        at, count = stop, min(count * 8, _MOST_AT_ONCE)
    return None


def sound_at_or_before(read: ReadUnits, offset: int, low: int, high: int) -> tuple[int, int] | None:
    """Offset and place of the last message of ``[low, offset]`` whose unit is not damaged; None without one."""
    stop, count = offset + 1, 1
    while stop > low:
        start = max(stop - count, low)
        first = max(start - _AROUND, low)
        units = read(first, min(stop + _AROUND, high))[: stop + _AROUND - first]
        rows = np.flatnonzero(sound_units(units) & (units["size"] != FILLER_SIZE))
        rows = rows[(rows >= start - first) & (rows < stop - first)]
        if len(rows):
            return first + int(rows[-1]), int(units["physical_offset"][rows[-1]])
        stop, count = start, min(count * 8, _MOST_AT_ONCE)
    return None
