"""The flush services step by step, with the time passed in: when they sync, and their state after a failed sync."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_store import MessageStoreConfig
from commitlog_store.engine.flush import CommitRealTimeService, FlushRealTimeService, GroupCommitService, LogFlusher
from commitlog_store.errors import StoreIOError
from commitlog_store.files import disk
from commitlog_store.files.mapped_file_queue_writer import MappedFileQueueWriter
from commitlog_store.files.transient_store_pool import TransientStorePool
from commitlog_store.threads.wakeup import Wakeup
from commitlog_store.threads.worker import Worker
from tests.support.interrupter import interrupt_main_thread
from tests.support.waiting import WAIT_LIMIT_S, wait_for

_FILE_SIZE = 64 << 10


class Clock:
    """A time that tests set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def append(files: MappedFileQueueWriter, size: int) -> None:
    files.writable().append(b"x" * size)
    files.appended()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[MappedFileQueueWriter]:
    queue = MappedFileQueueWriter(str(tmp_path), _FILE_SIZE)
    queue.writable()
    yield queue
    queue.close()


class GroupCommit:
    """The service with its thread, as an open store has it."""

    def __init__(self, files: MappedFileQueueWriter) -> None:
        wakeup = Wakeup()
        self.errors: list[BaseException] = []
        self.flusher = LogFlusher(files)
        self.service = GroupCommitService(self.flusher, wakeup)
        self._worker = Worker("GroupCommitService", self.service, self.errors.append, wakeup)

    def __enter__(self) -> GroupCommit:
        self._worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.stop()


class HeldSyncs:
    """Every sync stops where it begins, until the test lets all of them go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.began = threading.Event()
        self._go_on = threading.Event()
        self._real = disk.sync
        monkeypatch.setattr(disk, "sync", self._sync)

    def _sync(self, descriptor: int) -> None:
        self.count += 1
        self.began.set()
        assert self._go_on.wait(WAIT_LIMIT_S)
        self._real(descriptor)

    def release(self) -> None:
        self._go_on.set()


def test_an_asynchronous_flush_waits_for_enough_pages(files: MappedFileQueueWriter) -> None:
    clock = Clock()
    service = FlushRealTimeService(LogFlusher(files), MessageStoreConfig(flush_commit_log_least_pages=4), clock)
    append(files, 3 * 4096)
    service.run_once()
    assert files.flushed_where == 0
    append(files, 4096)
    service.run_once()
    assert files.flushed_where == 4 * 4096


def test_an_asynchronous_flush_syncs_pages_that_are_old_enough(files: MappedFileQueueWriter) -> None:
    clock = Clock()
    config = MessageStoreConfig(flush_commit_log_thorough_interval=10_000)
    service = FlushRealTimeService(LogFlusher(files), config, clock)
    append(files, 100)
    clock.now = 9.9
    service.run_once()
    assert files.flushed_where == 0
    clock.now = 10.0
    service.run_once()
    assert files.flushed_where == 100


def test_beside_synchronous_puts_every_dirty_page_is_flushed(files: MappedFileQueueWriter) -> None:
    """Messages that no put waits for (WAIT=false) reach the device too."""
    service = GroupCommitService(LogFlusher(files), Wakeup())
    append(files, 1)
    assert service.run_once() <= 0.010
    assert files.flushed_where == 1


def test_a_flush_over_a_file_end_syncs_the_older_file_first(
    files: MappedFileQueueWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(files, _FILE_SIZE)
    append(files, 10)
    synced = []
    real = disk.sync

    def sync(descriptor: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        real(descriptor)

    monkeypatch.setattr(disk, "sync", sync)
    LogFlusher(files).flush()
    assert synced == [f"{0:020d}", f"{_FILE_SIZE:020d}"]
    assert files.flushed_where == _FILE_SIZE + 10


def test_a_sync_that_failed_is_never_tried_again(files: MappedFileQueueWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel drops the pages of a failed sync; the next one would say that all is well (invariant 2)."""

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with GroupCommit(files) as group_commit:
        with monkeypatch.context() as patch:
            patch.setattr(disk, "sync", fail)
            append(files, 100)
            with pytest.raises(StoreIOError, match=f"{0:020d}"):
                group_commit.service.flush_to(100, 30.0)
        assert files.flushed_where == 0
        with pytest.raises(StoreIOError):
            group_commit.service.flush_to(100, 30.0)
        with pytest.raises(StoreIOError):
            group_commit.flusher.flush()
        wait_for(lambda: group_commit.errors)
    assert files.flushed_where == 0
    assert [type(error) for error in group_commit.errors] == [StoreIOError], "the store is halted by it"


def test_one_sync_serves_all_that_wait(files: MappedFileQueueWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The puts that come during a sync share the next one."""
    held = HeldSyncs(monkeypatch)
    results: list[bool] = []
    with GroupCommit(files) as group_commit:

        def put(end: int) -> threading.Thread:
            append(files, 100)
            thread = threading.Thread(target=lambda: results.append(group_commit.service.flush_to(end, 30)))
            thread.start()
            return thread

        threads = [put(100)]
        assert held.began.wait(WAIT_LIMIT_S)
        threads += [put(100 + 100 * place) for place in range(1, 6)]
        wait_for(lambda: group_commit.service.waiting == 5)
        held.release()
        for thread in threads:
            thread.join(WAIT_LIMIT_S)
    assert results == [True] * 6
    assert held.count == 2


def test_a_put_that_waits_too_long_continues_without_the_sync(
    files: MappedFileQueueWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldSyncs(monkeypatch)
    with GroupCommit(files) as group_commit:
        append(files, 100)
        assert held.began.wait(WAIT_LIMIT_S), "the service syncs what no put waits for"
        append(files, 100)
        assert not group_commit.service.flush_to(200, 0.01)
        assert files.flushed_where == 0
        held.release()
        assert group_commit.service.flush_to(200, 30)


def test_a_put_leaves_slow_syncs_to_the_service(files: MappedFileQueueWriter) -> None:
    """A put that syncs by itself cannot stop when its time is up."""
    clock = Clock()
    flusher = LogFlusher(files, clock=clock)
    service = GroupCommitService(flusher, Wakeup())
    append(files, 100)
    assert service.flush_to(100, 1.0), "a put that is alone syncs by itself"
    real = files.flush

    def slow() -> None:
        clock.now += 0.3
        real()

    files.flush = slow  # type: ignore[method-assign]
    append(files, 100)
    assert service.flush_to(200, 1.0), "the first slow sync is not known before"
    append(files, 100)
    assert not service.flush_to(300, 0.01), "no thread runs the service"
    service.run_once()
    assert files.flushed_where == 300


def test_bytes_of_an_interrupted_sync_are_written_once_more(
    files: MappedFileQueueWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt may hide that the sync failed: the kernel has dropped the pages then (invariant 2)."""
    flusher = LogFlusher(files)
    append(files, 100)

    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            flusher.flush()
    assert files.flushed_where == 0
    written: list[int] = []
    real = disk.write_at

    def write_at(descriptor: int, data: disk.Bytes, offset: int) -> None:
        written.append(len(data))
        real(descriptor, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_at", write_at)
        flusher.flush()
    assert (written, files.flushed_where) == ([100], 100)
    append(files, 100)
    flusher.flush()
    assert (sum(written), files.flushed_where) == (100, 200), "once is enough"


def test_an_interrupt_of_a_put_that_waits_ends_nothing_but_its_wait(
    files: MappedFileQueueWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldSyncs(monkeypatch)
    with GroupCommit(files) as group_commit:
        append(files, 100)
        assert held.began.wait(WAIT_LIMIT_S)
        append(files, 100)
        with (
            interrupt_main_thread(lambda: wait_for(lambda: group_commit.service.waiting == 1)),
            pytest.raises(KeyboardInterrupt),
        ):
            group_commit.service.flush_to(200, 30)
        held.release()
        append(files, 100)
        assert group_commit.service.flush_to(300, 30)
    assert group_commit.errors == []


def test_the_pool_commits_in_time_and_only_committed_bytes_are_flushed(tmp_path: Path) -> None:
    pool = TransientStorePool(2)
    files = MappedFileQueueWriter(str(tmp_path), _FILE_SIZE, pool=pool)
    clock, told = Clock(), []
    config = MessageStoreConfig(transient_store_pool_enable=True, commit_commit_log_least_pages=2)
    service = CommitRealTimeService(files, config, lambda: told.append(files.committed_where), clock)
    append(files, 4096)
    LogFlusher(files).flush()
    service.run_once()
    assert (files.committed_where, files.flushed_where, told) == (0, 0, [])
    append(files, 4096)
    service.run_once()
    assert (files.committed_where, told) == (8192, [8192])
    append(files, 1)
    clock.now = 1.0
    service.run_once()
    assert files.committed_where == 8193
    LogFlusher(files).flush()
    assert files.flushed_where == 8193
    files.close()


def test_a_full_file_gives_its_buffer_back(tmp_path: Path) -> None:
    pool = TransientStorePool(1)
    files = MappedFileQueueWriter(str(tmp_path), _FILE_SIZE, pool=pool)
    append(files, _FILE_SIZE)
    assert pool.available == 0
    files.commit()
    assert pool.available == 1
    append(files, 10)  # the next file takes it
    assert pool.available == 0
    files.commit()
    assert (tmp_path / f"{_FILE_SIZE:020d}").read_bytes()[:11] == b"x" * 10 + b"\0"
    files.close()
