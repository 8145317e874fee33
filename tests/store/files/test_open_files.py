"""How many CommitLog files are open at a time, which of them may be closed, and which pages stay in memory."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlog_store.errors import StoreIOError
from commitlog_store.files import disk
from commitlog_store.files.frame_space import FrameSpace
from commitlog_store.files.mapped_file_queue_writer import MappedFileQueueWriter
from commitlog_store.files.mapped_file_writer import MappedFileWriter, make_file
from commitlog_store.files.memory import drop_pages

_SIZE = 8 << 10
_MAX_OPEN = 4


@pytest.fixture
def files(tmp_path: Path) -> MappedFileQueueWriter:
    return MappedFileQueueWriter(str(tmp_path), _SIZE, max_open=_MAX_OPEN)


def _fill(files: MappedFileQueueWriter, count: int) -> None:
    """Append so many whole files, each of its own letter."""
    for _ in range(count):
        file = files.writable()
        file.append(_letter(file.base) * (_SIZE - 8))
        file.append(bytes(8))
        file.skip_to_end()
        files.appended()


def _letter(base: int) -> bytes:
    return bytes([ord("a") + base // _SIZE % 26])


def _open_count(files: MappedFileQueueWriter) -> int:
    return sum(file.is_open for file in files.files)


def _failing(path: str, calls: list[int]) -> Callable[[int], None]:
    """A sync that fails the first time it is asked for a file, and then says that all is well, as the kernel does."""

    def sync(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").resolve() == Path(path) and not calls:
            calls.append(descriptor)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fdatasync(descriptor)

    return sync


def test_of_many_flushed_files_a_few_are_open(files: MappedFileQueueWriter) -> None:
    for _ in range(20):
        _fill(files, 1)
        files.flush()
    assert _open_count(files) <= _MAX_OPEN
    for file in files.files:
        assert file.read(0, 1) == _letter(file.base)
        assert file.span(1, 2).tobytes() == _letter(file.base)
        assert _open_count(files) <= _MAX_OPEN
    files.close()


def test_without_flushed_files_a_new_file_waits_for_the_device(files: MappedFileQueueWriter) -> None:
    _fill(files, 20)
    assert _open_count(files) <= _MAX_OPEN
    assert files.flushed_where == 0, "that is for the flush to say"
    files.flush()
    assert files.flushed_where == 20 * _SIZE
    files.close()


def test_a_frame_over_many_files_keeps_a_few_open(files: MappedFileQueueWriter) -> None:
    _fill(files, 1)
    space = FrameSpace(files)
    for _ in range(20):
        space.write(b"x" * (_SIZE - 8))
        space.end_file(bytes(8))
    space.write(b"end")
    descriptors = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    assert sum(path.startswith(files.path) for path in descriptors) <= 2 * (_MAX_OPEN + 1), "one may be mapped too"
    space.publish()
    assert _open_count(files) <= _MAX_OPEN + 1
    files.flush()
    assert files.flushed_where == 21 * _SIZE + 3
    assert files.files[5].read(0, 4) == b"xxxx"
    files.close()


def test_a_file_with_bytes_that_are_not_on_the_device_stays_open(files: MappedFileQueueWriter) -> None:
    _fill(files, 1)
    file = files.files[0]
    assert (file.rest(), file.is_open) == (False, True)
    file.flush()
    assert (file.rest(), file.is_open) == (True, False)
    files.close()


def test_bytes_that_a_reader_holds_stay_mapped_when_their_file_is_closed(files: MappedFileQueueWriter) -> None:
    """Invariant 8."""
    _fill(files, 1)
    files.flush()
    kept = files.files[0].span(0, 100)
    assert files.files[0].rest()
    assert kept.tobytes() == b"a" * 100
    files.close()


@pytest.mark.parametrize("by", ["flush", "a put that needs a file"])
def test_a_file_whose_sync_failed_is_never_taken_for_clean(
    files: MappedFileQueueWriter, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second sync of the same pages says that all is well (invariant 2)."""
    _fill(files, _MAX_OPEN - 1)
    failed = files.files[0]
    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync", _failing(failed.path, []))
        with pytest.raises(StoreIOError, match="sync"):
            files.flush() if by == "flush" else _fill(files, _MAX_OPEN)
        with pytest.raises(StoreIOError, match="sync"):
            files.flush()
    assert files.flushed_where == failed.flushed_position == 0
    assert not failed.rest()
    assert failed.is_open
    files.close()


def test_files_are_read_while_others_are_opened_and_closed(files: MappedFileQueueWriter) -> None:
    """A descriptor that is closed under a reader may be another file's a moment later."""
    _fill(files, 20)
    files.flush()
    wrong: list[object] = []

    def read() -> None:
        for turn in range(300):
            file = files.files[turn * 7 % 20]
            try:
                found = file.read(0, 1) + file.span(5, 6).tobytes()
            except Exception as error:  # noqa: BLE001 - every error is reported
                found = repr(error).encode()
            if found != _letter(file.base) * 2:
                wrong.append((file.base, found))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    _fill(files, 20)
    files.flush()
    for thread in threads:
        thread.join()
    assert wrong == []
    files.close()


def test_recovery_reads_more_files_than_may_be_open(files: MappedFileQueueWriter) -> None:
    _fill(files, 20)
    files.flush()
    files.close()
    again = MappedFileQueueWriter(files.path, _SIZE, max_open=_MAX_OPEN)
    again.load()
    for file in again.files:
        assert file.read(0, 1) == _letter(file.base)
        file.sync_all()
        assert _open_count(again) <= _MAX_OPEN
    again.close()


def test_more_bytes_than_are_given_back_at_once_go_through_a_locked_mapping(tmp_path: Path) -> None:
    """Pages that are locked cannot be given back, and are not to be."""
    path = str(tmp_path / f"{0:020d}")
    make_file(path, 20 << 20)
    file = MappedFileWriter.open(path, 0)
    if not file.warm():
        pytest.skip("memory may not be locked here")
    for _ in range(18 << 10):
        file.append(b"x" * 1024)
    file.flush()
    assert file.flushed_position == 18 << 20
    assert file.read((18 << 20) - 2, 3) == b"xx\0"
    file.close()


def test_advice_that_the_kernel_refuses_is_not_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(8192))
    descriptor = os.open(path, os.O_RDWR)
    mapping = disk.map_for_writing(descriptor, 8192)
    drop_pages(mapping, 0, 1 << 40)
    mapping.close()
    os.close(descriptor)
