"""AllocateMappedFileService: files are made ahead of need, and a put waits for one only so long."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from commitlog_store.errors import DiskFull
from commitlog_store.files import disk
from commitlog_store.files.frame_space import FrameSpace
from commitlog_store.files.mapped_file_queue_writer import MappedFileQueueWriter
from commitlog_store.files.mapped_file_writer import make_file
from commitlog_store.recovery import allocate
from commitlog_store.recovery.allocate import AllocateMappedFileService
from commitlog_store.threads.wakeup import Wakeup
from tests.support.waiting import WAIT_LIMIT_S

_SIZE = 32 << 10


class _WorksAtOnce(Wakeup):
    """Lets the service work on the thread that wakes it."""

    service: AllocateMappedFileService

    def set(self) -> None:
        work(self.service)


def working(timeout_s: float) -> AllocateMappedFileService:
    wakeup = _WorksAtOnce()
    wakeup.service = AllocateMappedFileService(timeout_s, wakeup, warm=False)
    return wakeup.service


def work(service: AllocateMappedFileService) -> None:
    """Everything the service's thread would do now."""
    while service.run_once() == 0:
        pass


def test_the_next_two_files_are_made_when_a_file_is_half_full(tmp_path: Path) -> None:
    service = working(1.0)
    files = MappedFileQueueWriter(str(tmp_path), _SIZE, allocator=service)
    files.writable().append(b"x" * (_SIZE // 2 - 1))
    files.appended()
    assert [path.name for path in tmp_path.iterdir()] == [f"{0:020d}"]
    files.writable().append(b"x")
    files.appended()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{step * _SIZE:020d}" for step in range(3)]
    files.close()


def test_a_frame_has_no_files_made_ahead_and_the_next_put_has(tmp_path: Path) -> None:
    """A commit from Spark is followed by the close of the store, which would wait for a file that is being made."""
    service = working(1.0)
    files = MappedFileQueueWriter(str(tmp_path), _SIZE, allocator=service)
    space = FrameSpace(files)
    space.write(b"x" * (_SIZE // 2))
    space.publish()
    assert [path.name for path in tmp_path.iterdir()] == [f"{0:020d}"]
    files.writable().append(b"x")
    files.appended()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{step * _SIZE:020d}" for step in range(3)]
    files.close()


def test_a_discarded_frame_leaves_no_gap_before_files_made_ahead(tmp_path: Path) -> None:
    """Such files are left by a crash within an earlier frame; a store with a gap is not opened."""
    files = MappedFileQueueWriter(str(tmp_path), _SIZE, allocator=working(1.0))
    files.writable().append(b"x")
    for step in (1, 2, 3):
        (tmp_path / f"{step * _SIZE:020d}").write_bytes(bytes(_SIZE))
    space = FrameSpace(files)
    for _ in range(2):
        space.end_file(b"x" * 8)
    space.write(b"x" * 100)
    space.discard()
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == [0, _SIZE, 2 * _SIZE, 3 * _SIZE]
    assert not any(map(any, (path.read_bytes()[1:] for path in tmp_path.iterdir())))
    files.close()


def test_a_discarded_frame_leaves_no_gap_before_a_file_that_is_being_made(tmp_path: Path) -> None:
    service = AllocateMappedFileService(WAIT_LIMIT_S, Wakeup(), warm=False)
    thread = threading.Thread(target=work, args=(service,))
    files = MappedFileQueueWriter(str(tmp_path), _SIZE, allocator=service)
    service.prepare(str(tmp_path / f"{0:020d}"), _SIZE)
    work(service)
    files.writable().append(b"x" * (_SIZE // 2))
    files.appended()
    assert service.run_once() == 0, "the first of the two files that the put ordered"
    space = FrameSpace(files)
    space.end_file(b"x" * 8)
    space.discard()
    thread.start()
    thread.join(WAIT_LIMIT_S)
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == [0, _SIZE, 2 * _SIZE]
    files.close()


def test_a_put_waits_only_so_long_for_its_file(tmp_path: Path) -> None:
    idle = AllocateMappedFileService(0.01, Wakeup(), warm=False)  # no thread runs it
    files = MappedFileQueueWriter(str(tmp_path), _SIZE, allocator=idle)
    with pytest.raises(TimeoutError, match=f"{0:020d}"):
        files.writable()
    work(idle)
    assert files.writable().base == 0
    files.close()


def test_a_full_disk_is_reported_to_the_put_that_needs_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = working(5.0)
    files = MappedFileQueueWriter(str(tmp_path), _SIZE, allocator=service)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(disk, "allocate", fail)
        with pytest.raises(DiskFull):
            files.writable()
    assert files.writable().base == 0  # space is available again
    files.close()


def test_a_put_is_not_refused_for_what_failed_before_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk had no space, or the process no descriptors, when the service began to make the put's file ahead."""
    begun, put_came, put_ended = threading.Event(), threading.Event(), threading.Event()
    wakeup = Wakeup()
    monkeypatch.setattr(wakeup, "set", put_came.set)
    service = AllocateMappedFileService(WAIT_LIMIT_S, wakeup, warm=False)
    attempts: list[str] = []

    def fail_once(path: str, size: int, *, warm: bool) -> None:
        attempts.append(path)
        if len(attempts) > 1:
            make_file(path, size, warm=warm)
            return
        put_came.clear()
        begun.set()
        put_came.wait(WAIT_LIMIT_S)
        raise DiskFull("make", path=path, cause=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), advice="")

    def work_until_the_put_has_ended() -> None:
        while not put_ended.wait(0.001):
            work(service)

    monkeypatch.setattr(allocate, "make_file", fail_once)
    file = tmp_path / f"{0:020d}"
    service.prepare(str(file), _SIZE)
    thread = threading.Thread(target=work_until_the_put_has_ended)
    thread.start()
    begun.wait(WAIT_LIMIT_S)
    try:
        service.make(str(file), _SIZE)
    finally:
        put_ended.set()
        thread.join(WAIT_LIMIT_S)
    assert len(attempts) == 2
    assert file.stat().st_size == _SIZE


def test_the_file_that_a_put_needs_goes_before_those_made_ahead(tmp_path: Path) -> None:
    service = AllocateMappedFileService(5.0, Wakeup(), warm=False)
    ahead, needed = str(tmp_path / "ahead"), str(tmp_path / "needed")
    service.prepare(ahead + "1", _SIZE)
    service.prepare(ahead + "2", _SIZE)
    made: list[str] = []
    done = threading.Thread(target=service.make, args=(needed, _SIZE))
    done.start()
    while len(service._wanted) < 3:
        threading.Event().wait(0.001)
    while service.run_once() == 0:
        made += [path.name for path in tmp_path.iterdir() if path.name not in made]
    done.join(WAIT_LIMIT_S)
    assert made == ["ahead1", "needed", "ahead2"]
