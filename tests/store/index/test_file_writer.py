"""One index file, written: RocketMQ's bytes, whole or absent, and cut back to a prefix."""

from __future__ import annotations

import errno
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.errors import CorruptIndex, InvalidValue
from commitlog_store.files import disk
from commitlog_store.format.index_file import INDEX_ENTRY_DTYPE, decode_header, entry_offset, file_size, slot_offset
from commitlog_store.format.java_hash import index_key_hash
from commitlog_store.index.file_writer import IndexFileWriter
from commitlog_store.index.service import IndexService
from tests.store.index.put_key import PutKey, Rows, columns, decoded_rows
from tests.support.golden import GOLDEN

NAME = "20261121083655495"
T0 = 1_700_000_000_000
# Entries 0 to 4 share a slot of 7, entry 3 has a slot of its own, the last two are of one message.
ROWS: Rows = [
    (7, 0, T0 + 7),
    (14, 120, T0 + 900),
    (7, 250, T0 + 1100),
    (3, 400, T0 + 1200),
    (21, 520, T0 + 2500),
    (4, 700, T0 + 9000),
    (11, 700, T0 + 9000),
]
# Those with the slots and entries that these tests make.
GOLDEN_FILES = [path for path in sorted(GOLDEN.glob("*/store/index/*")) if path.stat().st_size == file_size(1000, 4000)]

rows_of_any_kind = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 40), st.integers(0, 2**31 - 1)),
        st.integers(0, 50),
        st.one_of(st.integers(T0, T0 + 20_000), st.sampled_from([0, 1, -5, 2**31 * 1000 + T0, 2**62])),
    ),
    max_size=40,
).map(
    lambda rows: [(key, offset, time) for (key, _, time), offset in zip(rows, sorted(r[1] for r in rows), strict=True)]
)


def new_file(directory: Path, slots: int = 7, capacity: int = 30, rows: Rows | None = None) -> IndexFileWriter:
    path = directory / NAME
    path.unlink(missing_ok=True)
    file = IndexFileWriter.create(str(path), slots, capacity)
    if rows:
        assert file.put(*columns(rows)) == len(rows)
    return file


def put_key(slots: int, capacity: int, rows: Rows) -> PutKey:
    oracle = PutKey(slots, capacity)
    for row in rows:
        oracle.put(*row)
    return oracle


def cut(rows: Rows, cuts: list[int]) -> list[Rows]:
    bounds = sorted({0, len(rows), *(at % (len(rows) + 1) for at in cuts)})
    return [rows[start:stop] for start, stop in pairwise(bounds)]


@given(st.lists(st.integers(0, 4000), max_size=20), st.sampled_from(GOLDEN_FILES))
def test_the_entries_of_rocketmqs_own_files_give_its_bytes_again(tmp_path: Path, cuts: list[int], golden: Path) -> None:
    file = new_file(tmp_path, 1000, 4000)
    for batch in cut(decoded_rows(golden, 1000), cuts):
        assert file.put(*columns(batch)) == len(batch)
    found, expected = (tmp_path / NAME).read_bytes(), golden.read_bytes()
    # The entries do not tell the milliseconds of the last.
    begin, end = (decode_header(expected[:40]).begin_timestamp, decode_header(expected[:40]).end_timestamp)
    assert file.header.end_timestamp == begin + (end - begin) // 1000 * 1000
    assert found[:8] + found[16:] == expected[:8] + expected[16:]
    file.close()


@pytest.mark.parametrize("golden", GOLDEN_FILES, ids=lambda path: path.parts[-4])
def test_one_by_one_is_the_same_as_all_at_once(tmp_path: Path, golden: Path) -> None:
    rows = decoded_rows(golden, 1000)
    file = new_file(tmp_path, 1000, 4000)
    for row in rows:
        file.put(*columns([row]))
    assert (tmp_path / NAME).read_bytes() == put_key(1000, 4000, rows).data
    file.close()


@given(rows_of_any_kind, st.lists(st.integers(0, 100), max_size=5), st.integers(1, 9), st.integers(2, 30))
def test_any_batches_give_what_put_key_gives(
    tmp_path: Path, rows: Rows, cuts: list[int], slots: int, capacity: int
) -> None:
    oracle = put_key(slots, capacity, rows)
    file = new_file(tmp_path, slots, capacity)
    taken = sum(file.put(*columns(batch)) for batch in cut(rows, cuts))
    assert taken == min(len(rows), capacity - 1)
    assert (tmp_path / NAME).read_bytes() == oracle.data
    assert (file.header, file.room) == (oracle.header, capacity - 1 - taken)
    file.close()


def test_entries_are_accepted_up_to_the_last_place(tmp_path: Path) -> None:
    file = new_file(tmp_path, 7, 5)
    assert file.put(*columns(ROWS)) == 4
    assert file.put(*columns(ROWS[4:])) == 0
    file.close()


def test_a_slot_that_a_crash_left_ahead_is_as_good_as_unused(tmp_path: Path) -> None:
    file = new_file(tmp_path, rows=ROWS[:2])
    with (tmp_path / NAME).open("r+b") as raw:
        for slot, value in ((3, 3), (4, 4), (5, -1)):
            raw.seek(slot_offset(slot))
            raw.write(value.to_bytes(4, "big", signed=True))
    file.put(*columns([(3, 400, T0), (4, 400, T0), (5, 400, T0)]))
    entries = np.frombuffer((tmp_path / NAME).read_bytes(), INDEX_ENTRY_DTYPE, 3, entry_offset(3, 7))
    assert entries["previous"].tolist() == [0, 0, 0]
    assert file.header.hash_slot_count == 4
    file.close()


def test_a_negative_hash_is_refused(tmp_path: Path) -> None:
    file = new_file(tmp_path)
    with pytest.raises(InvalidValue, match="never negative"):
        file.put(*columns([(-1, 0, T0)]))
    assert file.put(*columns(ROWS)) == len(ROWS)
    file.close()


def test_readers_see_entries_only_after_slots_and_entries_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, int]] = []
    write_at, store_mapped = disk.write_at, disk.store_mapped

    def write(descriptor: int, data: Any, offset: int) -> None:
        steps.append(("write", offset))
        write_at(descriptor, data, offset)

    def store(*args: Any, offset: int, **more: Any) -> None:
        steps.append(("store", offset))
        store_mapped(*args, offset=offset, **more)

    file = new_file(tmp_path, rows=ROWS[:2])
    monkeypatch.setattr(disk, "write_at", write)
    monkeypatch.setattr(disk, "store_mapped", store)
    file.put(*columns(ROWS[2:]))
    assert steps == [("write", entry_offset(3, 7)), ("store", 40), ("write", 0)]
    file.close()


def test_uncounted_entries_hide_nothing_from_a_reader(tmp_path: Path) -> None:
    """A batch moves the slots of its keys on before the header counts it."""
    row = (index_key_hash("t#a"), 100, T0)
    file = new_file(tmp_path, rows=[row])
    counted = (tmp_path / NAME).read_bytes()[:40]
    file.put(*columns([(row[0], 200, T0), (row[0], 300, T0)]))
    file.close()
    with (tmp_path / NAME).open("r+b") as raw:
        raw.write(counted)
    service = IndexService(str(tmp_path))
    # RocketMQ's own owner is at most one entry ahead of the header, and that one is shown.
    assert [hit.physical_offset for hit in service.candidates("t", "a", 0, 2**62, strict=False)] == [200, 100]
    with pytest.raises(CorruptIndex):
        list(service.candidates("t", "a", 0, 2**62, strict=True))
    service.close()


@pytest.mark.parametrize("step", ["truncate", "allocate", "sync", "give_name", "sync_directory", "map_for_writing"])
def test_a_file_that_cannot_be_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, step, fail)
        with pytest.raises(OSError, match="No space"):
            new_file(tmp_path)
    assert list(tmp_path.iterdir()) == []
    new_file(tmp_path).close()
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_header_and_slots_have_their_space_before_the_first_entry(tmp_path: Path) -> None:
    new_file(tmp_path, 50_000, 200_000).close()
    status = (tmp_path / NAME).stat()
    assert status.st_size == file_size(50_000, 200_000)
    assert 200_040 <= status.st_blocks * 512 < 300_000


def test_entries_without_space_are_put_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their space is allocated before anything is written, so the file stays usable on a full disk."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = new_file(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "allocate", fail)
        for _ in range(2):
            with pytest.raises(OSError, match="No space") as failed:
                file.put(*columns(ROWS))
            assert failed.value.filename == file.path
        assert file.header.index_count == 1
    assert file.put(*columns(ROWS)) == len(ROWS)
    file.flush()
    file.close()
    there = (tmp_path / NAME).read_bytes()
    new_file(tmp_path, rows=ROWS).close()
    assert there == (tmp_path / NAME).read_bytes()


@pytest.mark.parametrize("step", ["write_at", "store_mapped", "sync"])
def test_after_a_failure_the_file_writer_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Slots may be ahead, and a second sync would succeed without the pages that the first one lost."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    file = new_file(tmp_path, rows=ROWS[:2])
    with monkeypatch.context() as patch:
        patch.setattr(disk, step, fail)
        with pytest.raises(OSError, match="Input/output"):
            file.flush() if step == "sync" else file.put(*columns(ROWS[2:]))
    assert file.header.index_count == 3
    for again in (lambda: file.put(*columns(ROWS[2:])), file.flush, lambda: file.truncate(1000)):
        with pytest.raises(OSError, match="earlier write or sync failed"):
            again()
    file.close()


def test_flushed_bytes_are_not_synced_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = new_file(tmp_path, rows=ROWS)
    file.flush()
    synced: list[int] = []
    monkeypatch.setattr(disk, "sync", synced.append)
    file.flush()
    assert synced == []
    file.close()


def test_an_open_file_is_continued(tmp_path: Path) -> None:
    for at in range(1, len(ROWS)):
        new_file(tmp_path, rows=ROWS[:at]).close()
        file = IndexFileWriter.open(str(tmp_path / NAME), {file_size(7, 30): 7})
        assert (file.slot_count, file.capacity) == (7, 30)
        file.put(*columns(ROWS[at:]))
        file.close()
        assert (tmp_path / NAME).read_bytes() == put_key(7, 30, ROWS).data


@pytest.mark.parametrize(
    ("at", "data"),
    [
        pytest.param(0, bytes(40), id="no entries"),
        pytest.param(36, (99).to_bytes(4, "big"), id="more entries than places"),
        pytest.param(36, b"\xff" * 4, id="a negative count"),
        pytest.param(40, bytes(28), id="slots that lead nowhere"),
    ],
)
def test_an_impossible_file_is_refused(tmp_path: Path, at: int, data: bytes) -> None:
    new_file(tmp_path, rows=ROWS).close()
    with (tmp_path / NAME).open("r+b") as raw:
        raw.seek(at)
        raw.write(data)
    with pytest.raises(CorruptIndex, match=NAME):
        IndexFileWriter.open(str(tmp_path / NAME), {file_size(7, 30): 7})


@pytest.mark.parametrize("physical_offset", [*range(0, 720, 10), 701, 1 << 40])
def test_truncate_leaves_a_file_as_if_nothing_else_had_been_put(tmp_path: Path, physical_offset: int) -> None:
    file = new_file(tmp_path, rows=ROWS)
    kept = [row for row in ROWS if row[1] < physical_offset]
    assert file.truncate(physical_offset) == len(kept)
    path = tmp_path / NAME
    if not kept:
        assert not path.exists()
        return
    expected = put_key(7, 30, kept).data
    if len(kept) < len(ROWS):
        begin, end = kept[0][2], kept[-1][2]
        expected[8:16] = (begin + (end - begin) // 1000 * 1000).to_bytes(8, "big")
    assert path.read_bytes() == expected
    file.put(*columns(ROWS[len(kept) :]))
    file.close()
    assert path.read_bytes() == put_key(7, 30, ROWS).data


@pytest.mark.parametrize("golden", GOLDEN_FILES, ids=lambda path: path.parts[-4])
def test_truncate_finds_nothing_wrong_with_rocketmqs_own_files(tmp_path: Path, golden: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(golden.read_bytes())
    file = IndexFileWriter.open(str(path), {})
    assert file.truncate(1 << 40) == len(decoded_rows(golden, 1000))
    file.close()
    assert path.read_bytes() == golden.read_bytes()


@pytest.mark.parametrize("block", [1, 2, 3, 7])
def test_truncate_does_not_depend_on_how_much_is_read_at_a_time(tmp_path: Path, block: int) -> None:
    for kept in range(1, 6):
        file = new_file(tmp_path, rows=ROWS)
        assert file.truncate(ROWS[kept][1], block_entries=block) == kept
        assert decoded_rows(tmp_path / NAME, 7)[-1][1] == ROWS[kept - 1][1]
        file.close()


@pytest.mark.parametrize(
    ("number", "field", "value"),
    [
        pytest.param(3, "key_hash", -7, id="a negative hash"),
        pytest.param(4, "previous", 4, id="a chain into itself"),
        pytest.param(5, "previous", 6, id="a chain that ascends"),
        pytest.param(3, "previous", 0, id="a chain that is cut"),
        pytest.param(4, "physical_offset", 249, id="offsets that descend"),
        pytest.param(1, "physical_offset", 5, id="not the first message of the header"),
        pytest.param(2, "seconds", -1, id="a negative time"),
        pytest.param(7, "seconds", 0, id="not the last time of the header"),
        pytest.param(2, "key_hash", 3, id="an entry of another slot"),
    ],
)
def test_truncate_refuses_an_impossible_entry_and_changes_nothing(
    tmp_path: Path, number: int, field: str, value: int
) -> None:
    file = new_file(tmp_path, rows=ROWS)
    path = tmp_path / NAME
    data = bytearray(path.read_bytes())
    np.frombuffer(data, INDEX_ENTRY_DTYPE, 7, entry_offset(1, 7))[field][number - 1] = value
    path.write_bytes(data)
    with pytest.raises(CorruptIndex, match=NAME):
        file.truncate(1 << 40)
    assert path.read_bytes() == data
    file.close()


def test_zeros_are_not_the_entry_of_the_message_at_physical_offset_0(tmp_path: Path) -> None:
    file = new_file(tmp_path, rows=[(5, 0, T0), (6, 0, T0)])
    with (tmp_path / NAME).open("r+b") as raw:
        raw.seek(entry_offset(2, 7))
        raw.write(bytes(20))
    with pytest.raises(CorruptIndex):
        file.truncate(1)
    file.close()
