"""Where the units of a queue's file end: in sparse files, in files without holes, and at each edge."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlog_store.files import disk
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.queue.written_units import last_written, written_units

CAPACITY = 20_000
# The least unit: its first eight bytes and its last ones are zero.
UNIT = (0).to_bytes(8, "big") + (91 << 8).to_bytes(4, "big") + bytes(8)
COUNTS = [0, 1, 2, 204, 205, 206, 207, 410, 411, 9_999, 19_793, 19_794, 19_999, CAPACITY]
BOTH = pytest.mark.parametrize("count_units", [written_units, last_written])


def units_file(path: Path, count: int, *, sparse: bool, capacity: int = CAPACITY) -> Path:
    with path.open("wb") as stream:
        stream.write(UNIT * count)
        if sparse:
            stream.truncate(capacity * UNIT_SIZE)
        else:
            stream.write(bytes((capacity - count) * UNIT_SIZE))
    return path


def counted(count_units: Callable[..., int], path: Path, *more: int) -> int:
    descriptor = disk.open_file(str(path))
    try:
        return count_units(descriptor, *more)
    finally:
        disk.close(descriptor)


@BOTH
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("sparse", [True, False])
def test_the_units_of_a_file_are_counted(
    count_units: Callable[[int], int], count: int, sparse: bool, tmp_path: Path
) -> None:
    assert counted(count_units, units_file(tmp_path / "0", count, sparse=sparse)) == count


@pytest.mark.parametrize("sparse", [True, False])
def test_units_that_were_added_are_counted_from_those_that_are_known(sparse: bool, tmp_path: Path) -> None:
    file = units_file(tmp_path / "0", 12_345, sparse=sparse)
    for known in (0, 1, 204, 9_999, 12_141, 12_344, 12_345):
        assert counted(written_units, file, known) == 12_345


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("size", [512, 4096, 65_536])
def test_zeros_between_units_are_no_end(size: int, sparse: bool, tmp_path: Path) -> None:
    """Wherever they are, also when most of the file is a hole."""
    file = units_file(tmp_path / "0", 12_345, sparse=sparse)
    end = 12_345 * UNIT_SIZE
    for at in range(0, end - size, size):
        with file.open("r+b") as stream:
            stream.seek(at)
            old = stream.read(size)
            stream.seek(at)
            stream.write(bytes(size))
            stream.flush()
            assert counted(last_written, file) == 12_345, at
            stream.seek(at)
            stream.write(old)
    os.truncate(file, 0)
    with file.open("r+b") as stream:
        stream.seek(19_999 * UNIT_SIZE)
        stream.write(UNIT)
    assert counted(last_written, file) == CAPACITY, "everything before the last unit is a hole"


def reads_of(look: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the reads of a look."""
    lengths: list[int] = []
    real = disk.read_at

    def read(descriptor: int, length: int, offset: int) -> bytes:
        lengths.append(length)
        return real(descriptor, length, offset)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "read_at", read)
        assert look() == 12_345
    return lengths


@pytest.mark.parametrize("sparse", [True, False])
def test_a_file_is_not_read_as_a_whole(sparse: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = units_file(tmp_path / "0", 12_345, sparse=sparse)
    assert len(reads_of(lambda: counted(written_units, file), monkeypatch)) <= 12
    assert len(reads_of(lambda: counted(written_units, file, 12_340), monkeypatch)) == 1
    lengths = reads_of(lambda: counted(last_written, file), monkeypatch)
    assert sum(lengths) <= (4096 if sparse else (CAPACITY - 12_345) * UNIT_SIZE + (64 << 10))
