"""Space of a log file: allocated before each write, given back where a step fails, and taken from what is cut off."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog.errors import DiskFull, StoreIOError
from commitlog.files import disk, space
from commitlog.files.mapped_file_queue_writer import AllocateNow, MappedFileQueueWriter
from commitlog.files.mapped_file_writer import MappedFileWriter, make_file

__all__: list[str] = []

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is allocated")

_MIB = 1 << 20
_SIZE = 64 * _MIB


@pytest.fixture
def file(tmp_path: Path) -> Iterator[MappedFileWriter]:
    path = str(tmp_path / f"{0:020d}")
    make_file(path, _SIZE)
    made = MappedFileWriter.open(path, 0)
    yield made
    made.close()


def taken(file: MappedFileWriter) -> int:
    return os.stat(file.path).st_blocks * 512


def full(descriptor: int, offset: int, length: int) -> None:
    """A file system that keeps the part that it found space for, as ext4 does."""
    os.posix_fallocate(descriptor, offset, length // 2)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_new_file_has_its_size_and_the_space_of_the_first_step(file: MappedFileWriter) -> None:
    assert os.stat(file.path).st_size == _SIZE
    assert space.FIRST_STEP <= taken(file) < 2 * space.FIRST_STEP


def test_no_write_goes_beyond_the_allocated_position(file: MappedFileWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the mapping on a full disk it would kill the process."""
    ends: list[int] = []
    write, copy = disk.write_at, disk.write_mapped

    def noted(descriptor: int, data: bytes, offset: int) -> None:
        assert offset + len(data) <= file.allocated_position
        write(descriptor, data, offset)

    def noted_copy(mapping: object, data: bytes, offset: int, *, descriptor: int) -> None:
        assert offset + len(data) <= file.allocated_position
        ends.append(offset + len(data))
        copy(mapping, data, offset, descriptor=descriptor)  # type: ignore[arg-type]

    monkeypatch.setattr(disk, "write_at", noted)
    monkeypatch.setattr(disk, "write_mapped", noted_copy)
    for length in [100, 60_000, 5 * _MIB, 65_000] * 4:
        file.append(bytes(length))
        assert file.wrote_position <= file.allocated_position <= file.wrote_position + space.FIRST_STEP
    assert len(ends) == 12


def test_a_step_without_space_refuses_the_write_and_keeps_no_part_of_it(
    file: MappedFileWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.append(b"x" * (4 * _MIB))
    before = taken(file)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "allocate", full)
        with pytest.raises(DiskFull, match="Cannot allocate"):
            file.append(b"y" * 100)
        with pytest.raises(DiskFull):
            file.reserve(40 * _MIB)
    assert (file.wrote_position, taken(file)) == (4 * _MIB, before)
    file.append(b"y" * 100)
    assert file.read(4 * _MIB - 1, 3) == b"xyy"


def test_a_failed_step_of_a_reopened_file_keeps_the_bytes_of_its_last_page(
    file: MappedFileWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Space is allocated from that page on, and given back from the next one on."""
    file.append(b"x" * 5_000)
    again = MappedFileWriter.open(file.path, 0)
    again.set_positions(5_000)
    monkeypatch.setattr(disk, "allocate", full)
    with pytest.raises(DiskFull):
        again.append(b"y")
    assert again.read(0, 5_001) == b"x" * 5_000 + b"\0"
    again.close()


def test_another_failure_to_allocate_is_no_full_disk(file: MappedFileWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(disk, "allocate", fail)
    with pytest.raises(StoreIOError, match="allocate space"):
        file.append(b"x")
    assert file.wrote_position == 0


@pytest.mark.parametrize("holes", [True, False], ids=["holes", "no-holes"])
def test_what_is_cut_off_reads_as_zero_and_takes_no_space(
    file: MappedFileWriter, holes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the file system has no holes, it is zeroed, and keeps its space."""

    def none(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    if not holes:
        monkeypatch.setattr(disk, "punch_hole", none)
    file.append(b"x" * 100)
    file.reserve(20 * _MIB)
    for at in range(100, 20 * _MIB, 999_999):
        file.write_ahead(b"y" * 1_000, at)
    file.zero_from(100)
    assert Path(file.path).read_bytes() == b"x" * 100 + bytes(_SIZE - 100)
    assert (taken(file) <= 4096) is holes
    file.append(b"z" * 100)  # in space that is allocated again
    assert file.read(99, 3) == b"xzz"
    assert file.allocated_position == space.FIRST_STEP


def test_the_end_of_a_file_after_its_filler_takes_no_space(tmp_path: Path) -> None:
    files = MappedFileQueueWriter(str(tmp_path), _SIZE)
    files.writable().append(b"x")
    files.files[-1].skip_to_end()
    files.appended()
    assert taken(files.files[-1]) < 2 * space.FIRST_STEP
    files.close()


def test_steps_double_up_to_the_largest_and_leave_at_most_two_of_these(tmp_path: Path) -> None:
    steps: list[int] = []

    class Service(AllocateNow):
        def allocate_ahead(self, file: MappedFileWriter, position: int, /) -> None:
            steps.append((position - file.allocated_position) // _MIB)
            file.allocate(position)
            assert position - file.wrote_position <= 2 * space.LARGEST_STEP

    files = MappedFileQueueWriter(str(tmp_path), _SIZE, allocator=Service())
    for _ in range(_SIZE // (1 << 18)):
        files.writable().append(bytes(1 << 18))
        files.appended()
    assert steps == [4, 8, 16, 16, 16]
    files.close()


def test_a_step_that_the_service_could_not_allocate_is_ordered_once(tmp_path: Path) -> None:
    """Or each put would order it again; the put that needs the space allocates it."""
    orders: list[int] = []

    class Full(AllocateNow):
        def allocate_ahead(self, file: MappedFileWriter, position: int, /) -> None:
            orders.append(file.wrote_position)

    files = MappedFileQueueWriter(str(tmp_path), _SIZE, allocator=Full())
    for _ in range(15):
        files.writable().append(bytes(1 << 18))
        files.appended()
    assert len(orders) == 1
    files.close()
