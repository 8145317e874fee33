"""All index files of a store, written: file after file, in any batches, dispatched again, reopened, on a full disk."""

from __future__ import annotations

import errno
import threading
import time
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.errors import InvalidValue, StoreClosed
from commitlog_store.files import disk
from commitlog_store.format.java_hash import index_key_hash
from commitlog_store.index.service import IndexService
from commitlog_store.index.writer import IndexWriter
from tests.store.index.put_key import OFFSETS, ROWS, T0, Rows, contents, decoded_rows, files, new_writer, put, put_keys
from tests.store.index.test_file_writer import GOLDEN_FILES

EVER = 2**62


def found(directory: Path, key: str, begin: int = 0, end: int = EVER) -> list[int]:
    service = IndexService(str(directory / "index"))
    try:
        return [hit.physical_offset for hit in service.candidates("t", key, begin, end, strict=True)]
    finally:
        service.close()


def assert_complete(directory: Path, rows: Rows = ROWS) -> None:
    """Every key leads to its messages and, since the hashes differ, to no others; a message may be listed twice."""
    for number in range(30):
        for key in (f"only{number}", f"some{number % 4}", f"often{number % 2}"):
            expected = {row[1] for row in rows if row[0] == index_key_hash(f"t#{key}")}
            assert set(found(directory, key)) == expected


@given(st.lists(st.integers(0, len(OFFSETS)), max_size=6), st.integers(1, 13), st.integers(2, 80))
def test_any_batches_of_whole_messages_give_rocketmqs_files(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], slots: int, capacity: int
) -> None:
    directory = tmp_path_factory.mktemp("store")
    writer = new_writer(directory, slots, capacity)
    for start, stop in pairwise([0, *(100 * at for at in sorted(cuts)), 1 << 40]):
        put(writer, [row for row in ROWS if start <= row[1] < stop])
    assert contents(directory) == put_keys(ROWS, slots, capacity)
    assert writer.end_physical_offset == OFFSETS[-1]
    writer.close()


@pytest.mark.parametrize("golden", GOLDEN_FILES, ids=lambda path: path.parts[-4])
def test_the_messages_of_rocketmqs_own_files_one_by_one_give_its_bytes(tmp_path: Path, golden: Path) -> None:
    writer = new_writer(tmp_path, 1000, 4000)
    for _, message in groupby(decoded_rows(golden, 1000), key=lambda row: row[1]):
        put(writer, list(message))
    writer.close()
    [path], expected = files(tmp_path), golden.read_bytes()
    data = path.read_bytes()
    assert data[:8] + data[16:] == expected[:8] + expected[16:]
    assert 0 <= int.from_bytes(expected[8:16], "big") - int.from_bytes(data[8:16], "big") < 1000


def test_rocketmqs_own_directory_is_continued_whatever_the_settings_are(tmp_path: Path, golden_533: Path) -> None:
    (tmp_path / "index").mkdir()
    [golden] = (golden_533 / "index").iterdir()
    (tmp_path / "index" / golden.name).write_bytes(golden.read_bytes())
    writer = IndexWriter(str(tmp_path / "index"))
    writer.open()
    end = decoded_rows(golden, 1000)[-1][1]
    assert writer.end_physical_offset == end
    put(writer, [(index_key_hash("t#mine"), end + 1, EVER)])
    writer.close()
    assert len(files(tmp_path)) == 1
    assert found(tmp_path, "mine") == [end + 1]


def test_the_reader_finds_every_key_over_all_files(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    put(writer, ROWS)
    assert_complete(tmp_path)
    assert found(tmp_path, "often1") == [offset for offset in reversed(OFFSETS) if offset // 100 % 2]
    writer.close()


def test_the_first_message_of_a_file_is_dated_by_itself(tmp_path: Path) -> None:
    """RocketMQ counts its seconds from the end of the file before, and so finds it an hour too late."""
    writer = new_writer(tmp_path, capacity=2)
    put(writer, [(index_key_hash("t#a"), 0, T0), (index_key_hash("t#b"), 100, T0 + 3_600_000)])
    assert len(files(tmp_path)) == 2
    assert found(tmp_path, "b", end=T0 + 3_600_500) == [100]
    writer.close()


def test_names_are_the_local_time_and_ascend_though_the_clock_stands_or_goes_back(tmp_path: Path) -> None:
    clock = iter([1_700_000_000_998, 1_700_000_000_998, 1_600_000_000_000, 1_700_000_005_007])
    writer = IndexWriter(str(tmp_path / "index"), max_hash_slot_num=3, max_index_num=2, now_ms=lambda: next(clock))
    writer.open()
    put(writer, [(number, number, T0) for number in range(4)])
    writer.close()
    second, later = (time.strftime("%Y%m%d%H%M%S", time.localtime(at)) for at in (1_700_000_000, 1_700_000_005))
    following = str(int(f"{second}999") + 1)
    assert [path.name for path in files(tmp_path)] == [f"{second}998", f"{second}999", following, f"{later}007"]


def test_a_message_that_is_indexed_already_is_skipped(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    assert writer.end_physical_offset == -1
    for stop in range(0, 3100, 300):
        put(writer, [row for row in ROWS if row[1] < stop])
    put(writer, ROWS)
    put(writer, [])
    assert contents(tmp_path) == put_keys(ROWS)
    writer.close()


def test_reopening_continues_where_it_was(tmp_path: Path) -> None:
    for offset in OFFSETS:
        writer = new_writer(tmp_path)
        put(writer, [row for row in ROWS if row[1] <= offset])
        assert writer.end_physical_offset == offset
        writer.close()
    assert contents(tmp_path) == put_keys(ROWS)


def test_files_that_a_crash_left_half_made_are_removed_and_no_others(tmp_path: Path) -> None:
    directory = tmp_path / "index"
    directory.mkdir()
    for name in ("20261121083655495.tmp", "notes.tmp", "notes", "20261121083655496"):
        (directory / name).write_bytes(b"")
    new_writer(tmp_path).close()
    assert [path.name for path in files(tmp_path)] == ["notes", "notes.tmp"]


def test_rows_that_no_log_gives_are_refused(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    for rows in ([(1, 100, T0), (1, 0, T0)], [(1, -1, T0)]):
        with pytest.raises(InvalidValue, match="log order"):
            put(writer, rows)
    with pytest.raises(InvalidValue, match="Each index entry"):
        writer.put(np.zeros(2, np.int32), np.zeros(1, np.int64), np.zeros(2, np.int64))
    with pytest.raises(InvalidValue, match="at least 2"):
        IndexWriter(str(tmp_path), max_index_num=1)
    assert files(tmp_path) == []
    writer.close()
    with pytest.raises(StoreClosed):
        put(writer, ROWS)
    with pytest.raises(StoreClosed):
        writer.flush()
    writer.close()


def test_an_index_file_is_on_the_device_before_the_next_one_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    sync, create = disk.sync, disk.create_unnamed_file

    def recorded_sync(descriptor: int) -> None:
        steps.append("sync")
        sync(descriptor)

    def recorded_create(directory: str) -> int:
        steps.append("create")
        return create(directory)

    monkeypatch.setattr(disk, "sync", recorded_sync)
    monkeypatch.setattr(disk, "create_unnamed_file", recorded_create)
    writer = new_writer(tmp_path)
    put(writer, ROWS[:7])
    assert (steps, writer.index_msg_timestamp) == (["create", "sync"], 0)
    put(writer, ROWS[7:10])
    assert (steps, writer.index_msg_timestamp) == (["create", "sync", "sync", "create", "sync"], ROWS[6][2])
    writer.flush()
    assert (steps[5:], writer.index_msg_timestamp) == (["sync"], ROWS[9][2])
    writer.close()


def test_a_failed_sync_moves_no_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    writer = new_writer(tmp_path)
    put(writer, ROWS[:5])
    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync", fail)
        with pytest.raises(OSError, match="Input/output"):
            writer.flush()
    with pytest.raises(OSError, match="earlier write or sync"):
        writer.close()
    assert writer.index_msg_timestamp == 0
    assert new_writer(tmp_path).end_physical_offset == ROWS[4][1]


def test_on_a_full_disk_no_half_made_file_stays_and_the_same_put_works_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    writer = new_writer(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "allocate", full)
        with pytest.raises(OSError, match="No space"):
            put(writer, ROWS)
        assert files(tmp_path) == []
        assert writer.end_physical_offset == -1
    put(writer, ROWS[:5])
    with monkeypatch.context() as patch:
        patch.setattr(disk, "allocate", full)
        with pytest.raises(OSError, match="No space"):
            put(writer, ROWS)
    # The message at 200 has its first key in the full file, and no place for its second.
    assert (len(files(tmp_path)), ROWS[6][1], ROWS[7][1]) == (1, 200, 300)
    put(writer, ROWS)
    assert writer.end_physical_offset == OFFSETS[-1]
    assert_complete(tmp_path)
    writer.close()


def test_reset_removes_every_file(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    put(writer, ROWS)
    writer.flush()
    writer.reset()
    assert (files(tmp_path), writer.end_physical_offset, writer.index_msg_timestamp) == ([], -1, 0)
    writer.close()


def test_one_thread_puts_while_another_flushes(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    done = threading.Event()
    timestamps: list[int] = []

    def flush() -> None:
        while not done.is_set():
            writer.flush()
            timestamps.append(writer.index_msg_timestamp)

    thread = threading.Thread(target=flush)
    thread.start()
    for offset in OFFSETS:
        put(writer, [row for row in ROWS if row[1] == offset])
    done.set()
    thread.join()
    writer.close()
    assert timestamps == sorted(timestamps)
    assert writer.index_msg_timestamp == ROWS[-1][2]
    assert contents(tmp_path) == put_keys(ROWS)
