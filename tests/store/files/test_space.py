"""Space of a log file: allocated before each write, given back where a step fails or a file ends, taken from a cut."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from commitlog_store.errors import DiskFull, StoreIOError
from commitlog_store.files import disk, space
from commitlog_store.files.frame_space import FrameSpace
from commitlog_store.files.mapped_file_queue_writer import AllocateNow, MappedFileQueueWriter
from commitlog_store.files.mapped_file_writer import MappedFileWriter, make_file
from commitlog_store.files.transient_store_pool import TransientStorePool
from commitlog_store.log.commit_log_writer import CommitLogWriter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere zeros are written, tested here too")

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


def ended_by_a_frame(files: MappedFileQueueWriter) -> None:
    """A frame whose second part goes into the next file."""
    frame = FrameSpace(files)
    frame.write(b"x" * 100)
    frame.end_file(b"filler")
    frame.write(b"y" * 100)
    frame.publish()


def ended_by_a_record(files: MappedFileQueueWriter) -> None:
    """A record that does not fit any more."""
    log = CommitLogWriter(files, lambda queues: [0] * len(queues), lambda _: None, lambda _: None)
    log.append(bytearray(100), [100], 0, "orders", 0, has_unit=False)
    log.append(bytearray(_SIZE - 100), [_SIZE - 100], 0, "orders", 0, has_unit=False)


@pytest.mark.parametrize("end_file", [ended_by_a_frame, ended_by_a_record])
def test_the_end_of_a_file_after_its_filler_takes_no_space(
    tmp_path: Path, end_file: Callable[[MappedFileQueueWriter], None]
) -> None:
    """Neither what was allocated ahead, nor by an order that the service takes up only now."""
    files = MappedFileQueueWriter(str(tmp_path), _SIZE)
    first = files.writable()
    first.reserve(20 * _MIB)
    late = first.order_step()
    end_file(files)
    assert taken(first) <= 4096
    first.allocate(late)
    assert (taken(first) <= 4096, len(files.files)) == (True, 2)
    files.close()


def test_a_frame_that_fails_leaves_the_file_that_it_ended_as_it_was(tmp_path: Path) -> None:
    files = MappedFileQueueWriter(str(tmp_path), _SIZE)
    first = files.writable()
    first.append(b"before")
    frame = FrameSpace(files)
    frame.end_file(b"filler")
    frame.discard()
    first.append(b"after" * _MIB)
    assert first.read(0, 16) == b"beforeafterafter"
    assert first.allocated_position >= first.wrote_position
    files.close()


def test_a_buffer_writes_nothing_after_a_filler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There lie bytes of the file that the buffer had before, and no space: on a full disk the commit would fail."""
    files = MappedFileQueueWriter(str(tmp_path), _SIZE, pool=TransientStorePool(1))
    first = files.writable()
    first.append(b"\xff" * _SIZE)
    files.commit()
    second = files.writable()
    second.append(b"x" * 100)
    second.leave_rest(100)
    second.skip_to_end()
    monkeypatch.setattr(disk, "allocate", full)
    files.commit()
    assert files.committed_where == 2 * _SIZE
    assert second.read(0, _SIZE) == b"x" * 100 + bytes(_SIZE - 100)
    assert taken(second) <= 4096
    files.close()


def test_space_is_allocated_by_zeros_where_the_system_has_no_call_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS; and a file system of Linux without fallocate, under musl. Bytes that are there stay."""
    path = tmp_path / "file"
    path.touch()
    with path.open("r+b") as stream:
        stream.truncate(8 * _MIB)
        stream.seek(5 * _MIB)
        stream.write(b"here")
        stream.flush()
        monkeypatch.delattr(os, "posix_fallocate")
        disk.allocate(stream.fileno(), 4 * _MIB + 4096, 3 * _MIB)
        assert path.stat().st_size == 8 * _MIB
        assert path.stat().st_blocks * 512 == 3 * _MIB
        disk.allocate(stream.fileno(), 8 * _MIB, 4096)
        assert path.stat().st_size == 8 * _MIB + 4096
    assert path.read_bytes().split(b"here") == [bytes(5 * _MIB), bytes(3 * _MIB + 4096 - 4)]


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.ENOSPC], ids=["no-call", "full"])
def test_only_a_file_system_without_the_call_is_given_zeros(
    file: MappedFileWriter, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", fail)
    if code == errno.ENOSPC:
        with pytest.raises(DiskFull):
            file.reserve(8 * _MIB)
    else:
        file.reserve(8 * _MIB)
        assert taken(file) >= 8 * _MIB


def test_the_argument_of_the_call_for_a_hole_on_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    """fpunchhole_t of <sys/fcntl.h>: two unsigned ints, and two off_t. What is refused as illegal is zeroed instead."""
    calls: list[tuple[int, int, bytes]] = []

    def called(descriptor: int, command: int, argument: bytes) -> None:
        calls.append((descriptor, command, argument))
        if len(calls) > 1:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(fcntl, "fcntl", called)
    disk._punch_on_macos(7, 1 << 33, 4096)
    expected = (0).to_bytes(8, sys.byteorder) + (1 << 33).to_bytes(8, sys.byteorder) + (4096).to_bytes(8, sys.byteorder)
    assert calls == [(7, 99, expected)]
    with pytest.raises(OSError, match="supported"):
        disk._punch_on_macos(7, 1, 4096)


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
