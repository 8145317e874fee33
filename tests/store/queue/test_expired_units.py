"""Units before a place in the log: damaged ones are neither expired nor alive, and hide nothing after them."""

from __future__ import annotations

import numpy as np
import pytest

from commitlog_store.format.consume_queue_unit import FILLER_SIZE, UNIT_DTYPE, Units
from commitlog_store.queue.expired_units import count_before, end_before, judge_range, sound_at_or_before, sound_units

COUNT = 60
# Message n lies at 1000 + 100 n. The log begins with message 20.
LOG_START = 3000
WRONG = {
    "zeros": (0, 0),
    "a sign bit": (-(2**63) + 4000, 100),
    "too early": (5, 100),
    "the place of a far earlier one": (1000, 100),
    "after the log": (2**40, 100),
    "no size": (3000, 0),
    "a negative size": (3000, -5),
    "a filler": (0, FILLER_SIZE),
}


def queue_units(count: int = COUNT, fillers: int = 0) -> Units:
    units = np.zeros(count, UNIT_DTYPE)
    units["physical_offset"] = 1000 + 100 * np.arange(count)
    units["size"] = 100
    units["physical_offset"][:fillers] = 0
    units["size"][:fillers] = FILLER_SIZE
    return units


def end_in(units: Units, place: int = LOG_START) -> int:
    return end_before(lambda start, stop: units[start:stop], 0, len(units), place)


@pytest.mark.parametrize("fillers", [0, 1, 2, 20, 25, COUNT])
def test_the_end_before_a_place_is_after_fillers_and_earlier_messages(fillers: int) -> None:
    units = queue_units(fillers=fillers)
    assert sound_units(units).all()
    for place in (0, 1000, 1001, LOG_START, 6900, 6901, 2**62):
        expected = max(fillers, int((units["physical_offset"] < place).sum()))
        assert end_in(units, place) == expected
        assert count_before(units, place) == expected


@pytest.mark.parametrize(("place", "size"), WRONG.values(), ids=WRONG)
def test_one_damaged_unit_changes_no_other_ones_judgement(place: int, size: int) -> None:
    for at in range(2, COUNT - 2):
        units = queue_units()
        units[at] = (place, size, 0)
        expected = 19 if at == 19 else 20  # the last expired one, when it is damaged, is left for its reader to report
        if place != 1000 + 100 * at:
            assert end_in(units) == count_before(units, LOG_START) == expected, at
            assert not sound_units(units)[at] or size > 0
            assert sound_units(units).sum() >= COUNT - 2, "nor does it make more than a neighbour doubtful"


@pytest.mark.parametrize("width", [1, 3, 25, 59])
def test_zeroed_units_are_searched_around(width: int) -> None:
    """The unit directly after them may have lost bytes too: with no unit near before it, it shows nothing."""
    for at in range(COUNT - width):
        units = queue_units()
        units[at : at + width] = (0, 0, 0)
        expired = [offset for offset in range(20) if not at <= offset < at + width]
        if at + width == 19 and (width > 1 or at == 0):
            expired.remove(19)
        assert end_in(units) == max(expired, default=-1) + 1, at


@pytest.mark.parametrize("width", [25, 51])
@pytest.mark.parametrize("left", [0, 0xFFFFFFFF])
def test_a_unit_whose_place_begins_in_zeros_hides_none_of_them(left: int, width: int) -> None:
    """Every fifth sector ends 8 bytes into a unit, every other fifth 4 bytes: the place is 0, or less 4 GiB."""
    for at in range(COUNT - width):
        units = queue_units()
        units["physical_offset"] += 1 << 33
        units[at : at + width] = (0, 0, 0)
        units["physical_offset"][at + width] &= left
        assert end_in(units, (1 << 33) + LOG_START) == min(at, 20) if at + width >= 19 else 20, at


def test_a_unit_at_the_edge_that_may_be_wrong_is_not_taken_for_expired() -> None:
    """Of two units in the wrong order, nothing says which one is wrong."""
    units = queue_units()[:2]
    units["physical_offset"][1] = 500
    assert not sound_units(units).any()
    assert end_in(units) == 0
    units = queue_units()
    units["physical_offset"][-1] = 1500
    assert end_in(units) == 20
    sound, before = judge_range(lambda start, stop: units[start:stop], 59, 60, 0, 60, LOG_START)
    assert (sound[0], before[0]) == (False, True)


def test_the_last_sound_unit_before_damage_is_found() -> None:
    units = queue_units(fillers=3)
    units[30:50] = (0, 0, 0)

    def found(offset: int) -> tuple[int, int] | None:
        return sound_at_or_before(lambda start, stop: units[start:stop], offset, 0, COUNT)

    assert found(55) == (55, 6500)
    assert found(45) == found(30) == found(29) == (29, 3900)
    assert found(2) is None
