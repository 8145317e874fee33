"""Offsets by store time in stores of which a part is gone or damaged: an answer where messages exist, else the file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlog_store import StoreReader
from commitlog_store.errors import CorruptConsumeQueue, CorruptRecord, FileMissing
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from tests.support.store_builder import FIRST_STORE_TIME, StoreBuilder

FILE_SIZE = 16 << 10
QUEUE_FILE = 20
COUNT = 100

# Damages the store, and returns the file that the error names.
Damage = Callable[[Path, list[int]], Path]


def poke(path: Path, position: int, data: bytes) -> Path:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
    return path


def log_file(store: Path, index: int) -> Path:
    return sorted((store / "commitlog").iterdir())[index]


def queue_file(store: Path, index: int) -> Path:
    return sorted((store / "consumequeue" / "t" / "0").iterdir())[index]


def removed(path: Path) -> Path:
    path.unlink()
    return path


def middle_log_file_gone(store: Path, _: list[int]) -> Path:
    return removed(log_file(store, 3))


def two_neighbours_gone(store: Path, _: list[int]) -> Path:
    removed(log_file(store, 4))
    return removed(log_file(store, 3))


def newest_log_file_gone(store: Path, _: list[int]) -> Path:
    return removed(log_file(store, -1))


def two_newest_log_files_gone(store: Path, _: list[int]) -> Path:
    removed(log_file(store, -1))
    return removed(log_file(store, -1))


def middle_log_file_cut(store: Path, _: list[int]) -> Path:
    path = log_file(store, 3)
    os.truncate(path, 5000)
    return path


def first_records_zeroed(store: Path, places: list[int]) -> Path:
    return poke(log_file(store, 0), 0, bytes(places[3]))


def first_records_of_a_middle_file_zeroed(store: Path, _: list[int]) -> Path:
    return poke(log_file(store, 3), 0, bytes(3000))


def middle_log_file_zeroed(store: Path, _: list[int]) -> Path:
    return poke(log_file(store, 3), 0, bytes(FILE_SIZE))


def newest_log_file_zeroed(store: Path, _: list[int]) -> Path:
    return poke(log_file(store, -1), 0, bytes(FILE_SIZE))


def sizes_are_junk(store: Path, places: list[int]) -> Path:
    for place in places[50:54]:
        poke(log_file(store, place // FILE_SIZE), place % FILE_SIZE, b"junk")
    return log_file(store, places[50] // FILE_SIZE)


def files_swapped(store: Path, _: list[int]) -> Path:
    one, other = log_file(store, 2), log_file(store, 4)
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    return one


def middle_queue_file_gone(store: Path, _: list[int]) -> Path:
    return removed(queue_file(store, 2))


def units_zeroed(store: Path, _: list[int]) -> Path:
    return poke(queue_file(store, 2), 5 * UNIT_SIZE, bytes(4 * UNIT_SIZE))


def a_unit_leads_ahead(store: Path, places: list[int]) -> Path:
    poke(queue_file(store, 2), 9 * UNIT_SIZE, (places[90] + 7).to_bytes(8, "big"))
    return log_file(store, places[90] // FILE_SIZE)


def a_unit_leads_beyond_the_log(store: Path, _: list[int]) -> Path:
    return poke(queue_file(store, 2), 9 * UNIT_SIZE, (1 << 40).to_bytes(8, "big"))


def the_last_unit_leads_beyond_the_log(store: Path, _: list[int]) -> Path:
    return poke(queue_file(store, -1), (QUEUE_FILE - 1) * UNIT_SIZE, (1 << 40).to_bytes(8, "big"))


DAMAGES: list[Damage] = [
    middle_log_file_gone,
    two_neighbours_gone,
    newest_log_file_gone,
    two_newest_log_files_gone,
    middle_log_file_cut,
    first_records_zeroed,
    first_records_of_a_middle_file_zeroed,
    middle_log_file_zeroed,
    newest_log_file_zeroed,
    sizes_are_junk,
    files_swapped,
    middle_queue_file_gone,
    units_zeroed,
    a_unit_leads_ahead,
    a_unit_leads_beyond_the_log,
    the_last_unit_leads_beyond_the_log,
]


@pytest.fixture
def built(tmp_path: Path) -> tuple[Path, list[int]]:
    """100 messages of one queue, one a millisecond, 14 to a file of the log and 20 to one of the queue."""
    builder = StoreBuilder(tmp_path / "store", log_file_size=FILE_SIZE, queue_file_units=QUEUE_FILE)
    return builder.path, builder.append("t", 0, [b"x" * 1000] * COUNT).tolist()


def readable(store: Path) -> list[int]:
    with StoreReader.open(store, on_damage="skip") as reader:
        batches = reader.read("t", 0, 0, COUNT, columns=["queueOffset"])
        return [offset for batch in batches for offset in batch.column(0).to_pylist()]


def times_beside(left: list[int]) -> list[int]:
    """Times around each end of a hole, and every seventh of the others."""
    there = set(left)
    ends = [at for at in range(-1, COUNT + 1) if (at in there) != (at + 1 in there)]
    return sorted(
        {*range(-1, COUNT + 2, 7), *(at + by for at in ends for by in (-1, 0, 1, 2))} & {*range(-1, COUNT + 2)}
    )


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("boundary", ["lower", "upper"])
def test_times_are_answered_where_messages_exist_and_name_the_file_elsewhere(
    built: tuple[Path, list[int]], damage: Damage, boundary: str
) -> None:
    store, places = built
    path = damage(store, places)
    left = readable(store)
    assert 0 < len(left) < COUNT
    unknown = 0
    with StoreReader.open(store) as strict, StoreReader.open(store, on_damage="skip") as skipping:
        for time in times_beside(left):
            wanted = FIRST_STORE_TIME + time
            limit = time if boundary == "lower" else time + 1
            before = max((one for one in left if one < limit), default=-1)
            after = min((one for one in left if one >= limit), default=COUNT)
            expected = after if boundary == "lower" else max(before, 0)
            assert skipping.offset_by_time("t", 0, wanted, boundary=boundary) == expected  # type: ignore[arg-type]
            if before + 1 == after:
                assert strict.offset_by_time("t", 0, wanted, boundary=boundary) == expected  # type: ignore[arg-type]
                continue
            unknown += 1
            with pytest.raises((FileMissing, CorruptRecord, CorruptConsumeQueue)) as caught:
                strict.offset_by_time("t", 0, wanted, boundary=boundary)  # type: ignore[arg-type]
            text = str(caught.value)
            assert "the log holds" not in text
            assert f"may be among the offsets [{before + 1}, {after}), which cannot be read" in text
            assert f"commitlog doctor {store}" in text
            assert "--on-damage skip" in text
            if damage is not files_swapped and damage is not two_newest_log_files_gone:
                assert str(path) in text
    assert unknown
    assert {one for gap in skipping.skipped for one in range(gap.start, gap.stop)} == {*range(COUNT)} - {*left}


def test_a_store_time_in_a_hole_names_the_missing_file(built: tuple[Path, list[int]]) -> None:
    store, places = built
    path = middle_log_file_gone(store, places)
    with StoreReader.open(store) as reader, pytest.raises(FileMissing, match=path.name):
        reader.store_timestamp("t", 0, 45)


def test_a_store_time_in_a_lost_newest_file_names_it(built: tuple[Path, list[int]]) -> None:
    store, places = built
    path = newest_log_file_gone(store, places)
    with StoreReader.open(store) as reader, pytest.raises(FileMissing, match="the log ends before it") as caught:
        reader.store_timestamp("t", 0, COUNT - 1)
    assert caught.value.path == str(path)


def test_a_read_in_a_lost_newest_file_names_it(built: tuple[Path, list[int]]) -> None:
    store, places = built
    path = newest_log_file_gone(store, places)
    first = next(offset for offset, place in enumerate(places) if place >= int(path.name))
    for start in (0, first, COUNT - 1):
        with StoreReader.open(store) as reader, pytest.raises(FileMissing, match="the log ends before it") as caught:
            list(reader.read("t", 0, start, COUNT))
        assert caught.value.path == str(path)
        assert (caught.value.start, caught.value.stop) == (max(start, first), COUNT)
        assert "is missing although the queue leads to messages there: the log ends before it." in str(caught.value)
    assert readable(store) == list(range(first))


def test_a_damaged_unit_that_leads_to_a_lost_newest_file_hides_no_message(built: tuple[Path, list[int]]) -> None:
    store, places = built
    path = newest_log_file_gone(store, places)
    first = next(offset for offset, place in enumerate(places) if place >= int(path.name))
    unit = queue_file(store, 0)
    poke(unit, 5 * UNIT_SIZE, (int(path.name) + 100).to_bytes(8, "big"))
    assert readable(store) == [offset for offset in range(first) if offset != 5]
