"""After a crash the index keeps what is before the end of the log and right, and the rest is indexed again."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.errors import CorruptIndex, StoreClosed
from commitlog_store.format.index_file import HEADER_SIZE, INDEX_ENTRY_DTYPE, decode_header, entry_offset
from commitlog_store.index.writer import IndexWriter
from tests.store.index.put_key import (
    CAPACITY,
    OFFSETS,
    ROWS,
    SLOTS,
    T0,
    Rows,
    contents,
    files,
    new_writer,
    put,
    put_keys,
)


def truncate_as_surveyed(writer: IndexWriter, physical_offset: int) -> bool:
    """``truncate``, whose outcome a look at the files has to say before."""
    surveyed = writer.survey(physical_offset)
    whole = writer.truncate(physical_offset)
    assert surveyed == (whole, writer.file_count)
    return whole


@pytest.mark.parametrize("physical_offset", [*range(0, 3050, 50), 1 << 40])
def test_truncate_keeps_the_messages_before_and_indexing_continues(tmp_path: Path, physical_offset: int) -> None:
    writer = new_writer(tmp_path)
    put(writer, ROWS)
    assert writer.truncate(physical_offset)
    last = writer.end_physical_offset
    kept = [row for row in ROWS if row[1] <= last]
    before = [offset for offset in OFFSETS if offset < physical_offset]
    assert last == (before[-1] if before else -1)
    assert writer.end_physical_offset == last
    assert [data[16:] for data in contents(tmp_path)] == [data[16:] for data in put_keys(kept)]
    put(writer, ROWS)
    assert contents(tmp_path) == put_keys(ROWS)
    writer.close()


def test_the_last_message_of_a_full_file_stays_when_indexing_continues_after_it(tmp_path: Path) -> None:
    rows: Rows = [(7, 100 * number, T0) for number in range(2 * (CAPACITY - 1))]
    for more in (rows, rows[: CAPACITY - 1]):
        directory = tmp_path / str(len(more))
        directory.mkdir()
        writer = new_writer(directory)
        put(writer, more)
        # With a file after it or without: it is before the offset, and is not indexed again.
        assert writer.truncate(100 * (CAPACITY - 1))
        assert writer.end_physical_offset == 100 * (CAPACITY - 2)
        put(writer, rows[CAPACITY - 1 :])
        assert contents(directory) == put_keys(rows)
        writer.close()


def test_a_crash_between_two_files_loses_no_key_of_the_message_between_them(tmp_path: Path) -> None:
    for lost in range(1, len(put_keys(ROWS)) + 1):
        directory = tmp_path / str(lost)
        directory.mkdir()
        writer = new_writer(directory)
        put(writer, ROWS)
        writer.close()
        begins = [decode_header(path.read_bytes()[:HEADER_SIZE]).begin_physical_offset for path in files(directory)]
        for path in files(directory)[-lost:]:
            path.unlink()
        writer.truncate(begins[-lost])
        put(writer, ROWS)
        assert contents(directory) == put_keys(ROWS)
        writer.close()


def test_keys_of_one_message_in_many_files_are_taken_out_together(tmp_path: Path) -> None:
    rows: Rows = [(1, 0, T0), *((number, 100, T0) for number in range(2, 30))]
    writer = new_writer(tmp_path)
    put(writer, rows)
    assert len(files(tmp_path)) == 5
    files(tmp_path)[-1].unlink()
    writer.truncate(100)
    assert writer.end_physical_offset == 0
    put(writer, rows)
    assert contents(tmp_path) == put_keys(rows)
    writer.close()


@given(st.integers(0, 2**32))
def test_whatever_sectors_a_crash_loses_the_index_comes_back_whole(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    chance = random.Random(seed)
    directory = tmp_path_factory.mktemp("store")
    # With 117 slots entry 1 lies in the second sector, and in no other.
    rows: Rows = [(chance.randrange(2**31), 100 * (number // 2), T0 + 99 * number) for number in range(300)]
    writer = new_writer(directory, 117, 200)
    put(writer, rows)
    writer.close()
    newest = files(directory)[-1]
    data = bytearray(newest.read_bytes())
    for sector in chance.sample(range(len(data) // 512 + 1), chance.randrange(1, 5)):
        end = min(len(data), (sector + 1) * 512)
        data[sector * 512 : end] = bytes(end - sector * 512)
    newest.write_bytes(data)
    truncate_as_surveyed(writer, chance.choice([1 << 40, 100 * chance.randrange(1, 150)]))
    truncate_as_surveyed(writer, writer.end_physical_offset)  # the other key of that message may be lost
    last = writer.end_physical_offset
    put(writer, [row for row in rows if row[1] > last])
    assert contents(directory) == put_keys(rows, 117, 200)
    writer.close()


@given(st.integers(0, 10), st.integers(0, 10**6), st.binary(min_size=1, max_size=60))
def test_damage_anywhere_never_stops_a_recovery(
    tmp_path_factory: pytest.TempPathFactory, which: int, at: int, junk: bytes
) -> None:
    directory = tmp_path_factory.mktemp("store")
    writer = new_writer(directory)
    put(writer, ROWS)
    writer.close()
    path = files(directory)[which % len(files(directory))]
    data = bytearray(path.read_bytes())
    at %= len(data)
    data[at : at + len(junk)] = junk
    path.write_bytes(data)
    truncate_as_surveyed(writer, 1 << 40)
    put(writer, ROWS)
    writer.flush()
    assert writer.end_physical_offset == OFFSETS[-1]
    writer.close()


def test_a_file_in_the_wrong_place_goes_with_all_after_it(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    put(writer, ROWS)
    writer.close()
    files(tmp_path)[2].rename(tmp_path / "index" / ("9" * 17))
    before = files(tmp_path)[-2]
    truncate_as_surveyed(writer, 1 << 40)
    assert files(tmp_path)[-1] == before
    writer.close()


@pytest.mark.parametrize("size", [0, 39, 100, 243, 100_000])
def test_a_file_of_another_size_goes_with_all_after_it(tmp_path: Path, size: int) -> None:
    writer = new_writer(tmp_path)
    put(writer, ROWS)
    writer.close()
    with files(tmp_path)[4].open("r+b") as file:
        file.truncate(size)
    assert not truncate_as_surveyed(writer, 1 << 40)
    kept = writer.end_physical_offset
    assert kept == ROWS[4 * (CAPACITY - 1) - 1][1]
    assert len(files(tmp_path)) == 4
    assert writer.truncate(kept)
    assert writer.end_physical_offset < kept
    put(writer, ROWS)
    assert contents(tmp_path) == put_keys(ROWS)
    writer.close()


@pytest.mark.parametrize(
    "mend", [lambda writer: writer.truncate(1 << 40), IndexWriter.reset], ids=["truncate", "reset"]
)
def test_open_refuses_a_damaged_file_and_truncate_or_reset_repairs_it(
    tmp_path: Path, mend: Callable[[IndexWriter], object]
) -> None:
    writer = new_writer(tmp_path)
    put(writer, ROWS)
    writer.close()
    with files(tmp_path)[-1].open("r+b") as file:
        file.seek(36)
        file.write(b"\xff" * 4)
    with pytest.raises(CorruptIndex, match="index_count"):
        writer.open()
    with pytest.raises(StoreClosed):
        put(writer, ROWS)
    mend(writer)
    put(writer, ROWS)
    assert contents(tmp_path) == put_keys(ROWS)
    writer.close()


def test_a_damaged_entry_below_the_cut_is_found_in_the_newest_file(tmp_path: Path) -> None:
    writer = new_writer(tmp_path, capacity=100)
    put(writer, ROWS)
    writer.close()
    [path] = files(tmp_path)
    data = bytearray(path.read_bytes())
    np.frombuffer(data, INDEX_ENTRY_DTYPE, 70, entry_offset(1, SLOTS))["previous"][40] += 1
    path.write_bytes(data)
    assert not truncate_as_surveyed(writer, 1 << 40)
    assert writer.end_physical_offset == -1
    assert files(tmp_path) == []
    writer.close()
