"""Writable CommitLog files: created whole, appended to, held, deleted, found."""

from __future__ import annotations

import errno
import os
import threading
from functools import partial
from pathlib import Path

import pytest

from commitlog_store.errors import CorruptRecord, DiskFull, NotAStore, ReadFailed, StoreIOError
from commitlog_store.files import disk
from commitlog_store.files.mapped_file_queue_writer import MappedFileQueueWriter
from commitlog_store.files.mapped_file_writer import MappedFileWriter, make_file
from commitlog_store.recovery.log_on_disk import LogOnDisk

_SIZE = 32 << 10


@pytest.fixture
def file(tmp_path: Path) -> MappedFileWriter:
    path = str(tmp_path / f"{0:020d}")
    make_file(path, _SIZE)
    return MappedFileWriter.open(path, 0)


def test_positions_follow_the_work(file: MappedFileWriter) -> None:
    file.append(b"abc")
    assert (file.wrote_position, file.committed_position, file.flushed_position) == (3, 3, 0)
    file.flush()
    assert file.flushed_position == 3
    assert file.read(0, 4) == b"abc\0"


def test_a_failed_write_moves_no_position(file: MappedFileWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(disk, "write_at", fail)
    with pytest.raises(StoreIOError, match=f"{0:020d}"):
        file.append(b"x" * (1 << 20))
    assert (file.wrote_position, file.committed_position) == (0, 0)


def test_a_new_file_has_its_space(tmp_path: Path) -> None:
    """So that a full disk shows when the file is made, and not as SIGBUS or in the middle of a record."""
    path = tmp_path / "file"
    make_file(str(path), 1 << 20)
    found = path.stat()
    assert found.st_size == 1 << 20
    assert found.st_blocks * 512 >= 1 << 20
    assert found.st_mode & 0o777 == 0o600


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the cache cannot be emptied here")
def test_space_that_was_never_written_is_not_read(tmp_path: Path) -> None:
    """Reading brings the following pages into the kernel's cache, where they look as if they had been written."""
    path = tmp_path / "file"
    make_file(str(path), 64 << 20)
    with path.open("r+b", buffering=0) as file:
        file.write(b"x" * 100)
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        found = 0
        for start, stop in disk.data_extents(file.fileno(), 0, 64 << 20):
            found += len(os.pread(file.fileno(), stop - start, start))
        assert 100 <= found <= 8 << 20


def test_a_warm_file_has_been_written_to_its_end(tmp_path: Path) -> None:
    make_file(str(tmp_path / "file"), 3 << 20, warm=True)
    assert (tmp_path / "file").read_bytes() == bytes(3 << 20)


def test_a_file_without_space_for_it_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk, "allocate", fail)
    with pytest.raises(DiskFull, match="file"):
        make_file(str(tmp_path / "file"), 1 << 20)
    assert list(tmp_path.iterdir()) == []


def test_mapped_bytes_stay_readable_after_the_file_is_deleted(file: MappedFileWriter) -> None:
    """Invariant 8."""
    file.append(b"abc")
    kept = file.span(0, 3)
    file.delete()
    assert not os.path.exists(file.path)
    assert kept.tobytes() == b"abc"


def test_the_queue_rolls_and_finds_by_offset(tmp_path: Path) -> None:
    files = MappedFileQueueWriter(str(tmp_path), _SIZE)
    for _ in range(3):
        files.writable().append(b"x" * _SIZE)
        files.appended()
    assert [file.base for file in files.files] == [0, _SIZE, 2 * _SIZE]
    for offset, base in ((0, 0), (_SIZE - 1, 0), (_SIZE, _SIZE), (3 * _SIZE - 1, 2 * _SIZE)):
        found = files.find(offset)
        assert found is not None
        assert found.base == base
    assert files.find(3 * _SIZE) is None
    assert files.find(-1) is None
    files.close()


def test_cutting_zeroes_the_rest_and_deletes_what_lies_after(tmp_path: Path) -> None:
    files = MappedFileQueueWriter(str(tmp_path), _SIZE)
    for _ in range(3):
        files.writable().append(b"x" * _SIZE)
        files.appended()
    files.cut(_SIZE + 100)
    files.set_end(_SIZE + 100)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{0:020d}", f"{_SIZE:020d}"]
    assert (tmp_path / f"{_SIZE:020d}").read_bytes() == b"x" * 100 + bytes(_SIZE - 100)
    assert files.max_wrote == _SIZE + 100
    files.close()


def test_files_of_different_sizes_are_refused(tmp_path: Path) -> None:
    make_file(str(tmp_path / f"{0:020d}"), _SIZE)
    (tmp_path / f"{_SIZE:020d}").write_bytes(b"x" * (_SIZE // 2))
    with pytest.raises(CorruptRecord, match=str(_SIZE // 2)):
        MappedFileQueueWriter(str(tmp_path), _SIZE).load(aborted=False)


def test_a_hole_between_files_is_refused(tmp_path: Path) -> None:
    make_file(str(tmp_path / f"{0:020d}"), _SIZE)
    (tmp_path / f"{2 * _SIZE:020d}").write_bytes(b"x" * _SIZE)
    with pytest.raises(CorruptRecord, match=f"{_SIZE:020d}"):
        MappedFileQueueWriter(str(tmp_path), _SIZE).load()


def test_a_file_is_opened_when_it_is_used_first_and_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for base in (0, _SIZE, 2 * _SIZE):
        make_file(str(tmp_path / f"{base:020d}"), _SIZE)
    opened: list[str] = []
    plain = disk.open_for_writing

    def noting(path: str) -> int:
        opened.append(path)
        return plain(path)

    monkeypatch.setattr(disk, "open_for_writing", noting)
    files = MappedFileQueueWriter(str(tmp_path), _SIZE)
    files.load(aborted=False)
    assert opened == []
    found = files.find(_SIZE + 5)
    assert found is not None
    threads = [threading.Thread(target=found.read, args=(0, 5)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened == [str(tmp_path / f"{_SIZE:020d}")]
    files.close()
    with pytest.raises(ReadFailed, match="Bad file descriptor"):
        found.read(0, 5)


def test_a_missing_file_is_an_error_with_its_name_when_it_is_used(tmp_path: Path) -> None:
    make_file(str(tmp_path / f"{0:020d}"), _SIZE)
    files = MappedFileQueueWriter(str(tmp_path), _SIZE)
    files.load(aborted=False)
    (tmp_path / f"{0:020d}").unlink()
    with pytest.raises(StoreIOError, match=f"Cannot open .*{0:020d}"):
        files.files[0].read(0, 5)
    files.close()


def test_an_empty_file_after_a_hole_is_a_leftover(tmp_path: Path) -> None:
    """Of two files made ahead, only the second may have reached the device when the machine stopped."""
    make_file(str(tmp_path / f"{0:020d}"), _SIZE)
    make_file(str(tmp_path / f"{2 * _SIZE:020d}"), _SIZE)
    files = MappedFileQueueWriter(str(tmp_path), _SIZE)
    files.load()
    assert [path.name for path in tmp_path.iterdir()] == [f"{0:020d}"]
    files.close()


def test_a_link_after_a_hole_is_not_followed_and_stays(tmp_path: Path) -> None:
    """Invariant 10, also where the link leads to a file of zeros, which would be a leftover."""
    log, elsewhere = tmp_path / "commitlog", tmp_path / "elsewhere"
    log.mkdir()
    make_file(str(log / f"{0:020d}"), _SIZE)
    make_file(str(elsewhere), _SIZE)
    link = log / f"{2 * _SIZE:020d}"
    link.symlink_to(elsewhere)
    for load in (MappedFileQueueWriter(str(log), _SIZE).load, partial(LogOnDisk.load, str(log), aborted=True)):
        with pytest.raises(NotAStore, match=f"{link.name} is a symbolic link"):
            load()
    assert link.is_symlink()


def test_a_file_after_a_hole_that_cannot_be_read_is_named_by_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = str(tmp_path)
    for base in (0, 2 * _SIZE):
        (tmp_path / f"{base:020d}").write_bytes(b"x" * _SIZE)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(disk, "read_at", fail)
    for load in (MappedFileQueueWriter(log, _SIZE).load, partial(LogOnDisk.load, log, aborted=True)):
        with pytest.raises(ReadFailed, match=f"Cannot read .*{2 * _SIZE:020d}"):
            load()


def test_a_file_that_is_warmed_can_be_written_and_read(file: MappedFileWriter) -> None:
    file.warm()
    file.append(b"abc")
    file.flush()
    assert file.read(0, 4) == b"abc\0"


def test_a_file_that_was_truncated_after_it_was_opened_is_an_io_error(tmp_path: Path) -> None:
    """mmap says so by a ValueError, which no caller expects."""
    path = str(tmp_path / "00000000000000000000")
    make_file(path, _SIZE)
    file = MappedFileWriter.open(path, 0)
    os.truncate(path, 100)
    with pytest.raises(StoreIOError, match="truncated"):
        file.append(b"abc")
    assert file.wrote_position == 0
    file.close()


def test_an_end_that_was_scanned_and_is_cut_off_is_not_mapped_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In tmpfs a hole of a mapping takes space when it is touched."""
    make_file(str(tmp_path / "file"), 16 << 20)
    file = MappedFileWriter.open(str(tmp_path / "file"), 0)
    file.append(b"x" * (4 << 20))
    assert file.scanned(0, 4 << 20).all()
    file.zero_from(1 << 20)
    if file.data_extents(1 << 20, 4 << 20):
        pytest.skip("the file system has no holes")
    mapped: list[tuple[int, int]] = []
    monkeypatch.setattr(file, "span", lambda *stretch: mapped.append(stretch))
    assert not file.scanned(1 << 20, 4 << 20).any()
    assert not mapped
    file.close()
