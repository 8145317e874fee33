"""The flush services step by step, with the time passed in: when they sync, and what a sync that fails leaves."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from commitlog import FlushDiskType, MessageStoreConfig
from commitlog.errors import StoreIOError
from commitlog.files import disk
from commitlog.files.mapped_file_queue_writer import MappedFileQueueWriter
from commitlog.files.transient_store_pool import TransientStorePool
from commitlog.services import flush
from commitlog.services.flush import CommitRealTimeService, FlushRealTimeService, GroupCommitService

__all__: list[str] = []

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
    yield queue
    queue.close()


def nothing() -> None:
    """What is called after a flush."""


class HeldSyncs:
    """Every sync stops where it begins, until the test lets all of them go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._began, self._go_on = threading.Event(), threading.Event()
        self._real = disk.sync
        monkeypatch.setattr(disk, "sync", self._sync)

    def _sync(self, descriptor: int) -> None:
        self.count += 1
        self._began.set()
        assert self._go_on.wait(10)
        self._real(descriptor)

    def begin_in_a_thread(self, put: Callable[..., object], *arguments: float) -> threading.Thread:
        """A put that leads: it has begun to sync."""
        leader = threading.Thread(target=put, args=arguments)
        leader.start()
        assert self._began.wait(10)
        return leader

    def let_go(self) -> None:
        self._go_on.set()


def test_an_asynchronous_flush_waits_for_enough_pages(files: MappedFileQueueWriter) -> None:
    clock = Clock()
    service = FlushRealTimeService(
        files, GroupCommitService(files, nothing), MessageStoreConfig(flush_commit_log_least_pages=4), clock
    )
    append(files, 3 * 4096)
    service.run_once()
    assert files.flushed_where == 0
    append(files, 4096)
    service.run_once()
    assert files.flushed_where == 4 * 4096


def test_an_asynchronous_flush_takes_what_is_old_enough(files: MappedFileQueueWriter) -> None:
    clock = Clock()
    config = MessageStoreConfig(flush_commit_log_thorough_interval=10_000)
    service = FlushRealTimeService(files, GroupCommitService(files, nothing), config, clock)
    append(files, 100)
    clock.now = 9.9
    service.run_once()
    assert files.flushed_where == 0
    clock.now = 10.0
    service.run_once()
    assert files.flushed_where == 100


def test_beside_synchronous_puts_whatever_is_dirty_is_flushed(files: MappedFileQueueWriter) -> None:
    """Messages that nobody waits for (WAIT=false) reach the device too."""
    config = MessageStoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    service = FlushRealTimeService(files, GroupCommitService(files, nothing), config, Clock())
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
    GroupCommitService(files, nothing).flush()
    assert synced == [f"{0:020d}", f"{_FILE_SIZE:020d}"]
    assert files.flushed_where == _FILE_SIZE + 10


def test_a_sync_that_failed_is_never_tried_again(files: MappedFileQueueWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel drops the pages of a failed sync; the next one would say that all is well (invariant 2)."""
    append(files, 100)
    group_commit = GroupCommitService(files, nothing)

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync", fail)
        with pytest.raises(StoreIOError, match=f"{0:020d}"):
            group_commit.flush_to(100, 1.0)
    assert files.flushed_where == 0
    with pytest.raises(StoreIOError):
        group_commit.flush_to(100, 1.0)
    with pytest.raises(StoreIOError):
        group_commit.flush()
    assert files.flushed_where == 0


def test_one_sync_serves_all_that_wait(files: MappedFileQueueWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one syncs; those that come meanwhile share the next sync."""
    group_commit = GroupCommitService(files, nothing)
    append(files, 100)
    held = HeldSyncs(monkeypatch)
    results: list[bool] = []

    def wait_for(end: int) -> None:
        results.append(group_commit.flush_to(end, 10))

    threads = [held.begin_in_a_thread(wait_for, 100)]
    for place in range(1, 6):
        append(files, 100)
        threads.append(threading.Thread(target=wait_for, args=(100 + 100 * place,)))
        threads[-1].start()
    while len(group_commit._waiting) < 5:
        threading.Event().wait(0.001)
    held.let_go()
    for thread in threads:
        thread.join(10)
    assert results == [True] * 6
    assert held.count == 2


def test_a_put_that_waits_too_long_goes_without(files: MappedFileQueueWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    group_commit = GroupCommitService(files, nothing)
    append(files, 100)
    held = HeldSyncs(monkeypatch)
    leader = held.begin_in_a_thread(group_commit.flush_to, 100, 10)
    append(files, 100)
    assert not group_commit.flush_to(200, 0.01)
    held.let_go()
    leader.join(10)
    assert group_commit.flush_to(200, 10)


class SlowSyncs:
    """Every sync takes its time by the clock that the services ask."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: Clock, seconds: float) -> None:
        self.seconds, self.count = seconds, 0
        self._clock, self._real = clock, disk.sync
        monkeypatch.setattr(disk, "sync", self._sync)

    def _sync(self, descriptor: int) -> None:
        self.count += 1
        self._clock.now += self.seconds
        self._real(descriptor)


def test_where_syncs_are_slow_a_put_keeps_its_timeout_since_the_flush_service_syncs(
    files: MappedFileQueueWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A put that led such a sync could not turn away from it, and would never see FLUSH_DISK_TIMEOUT."""
    clock = Clock()
    syncs = SlowSyncs(monkeypatch, clock, 3.0)
    group_commit = GroupCommitService(files, nothing, clock)
    config = MessageStoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    service = FlushRealTimeService(files, group_commit, config, clock)
    append(files, 100)
    assert group_commit.flush_to(100, 0.01)  # the first one leads: nobody knows yet
    synced = syncs.count
    append(files, 100)
    assert not group_commit.flush_to(200, 0.01)
    assert (syncs.count, files.flushed_where) == (synced, 100)
    syncs.seconds = 0.0
    service.run_once()
    assert files.flushed_where == 200
    append(files, 100)
    assert group_commit.flush_to(300, 0.01)  # syncs are quick again, and puts lead them


def test_a_slow_sync_is_not_handed_to_a_put_that_waits(
    files: MappedFileQueueWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    group_commit = GroupCommitService(files, nothing, clock)
    append(files, 100)
    held = HeldSyncs(monkeypatch)
    leader = held.begin_in_a_thread(group_commit.flush_to, 100, 10)
    append(files, 100)
    results: list[bool] = []
    second = threading.Thread(target=lambda: results.append(group_commit.flush_to(200, 10)))
    second.start()
    while not group_commit._waiting:
        threading.Event().wait(0.001)
    clock.now = 5.0
    held.let_go()
    leader.join(10)
    assert files.flushed_where == 100
    group_commit.flush()  # as FlushRealTimeService does
    second.join(10)
    assert results == [True]
    assert held.count == 2


def test_the_pool_commits_in_time_and_only_committed_bytes_are_flushed(tmp_path: Path) -> None:
    pool = TransientStorePool(2)
    files = MappedFileQueueWriter(str(tmp_path), _FILE_SIZE, pool=pool)
    clock, told = Clock(), []
    config = MessageStoreConfig(transient_store_pool_enable=True, commit_commit_log_least_pages=2)
    service = CommitRealTimeService(files, config, lambda: told.append(files.committed_where), clock)
    append(files, 4096)
    GroupCommitService(files, nothing).flush()
    service.run_once()
    assert (files.committed_where, files.flushed_where, told) == (0, 0, [])
    append(files, 4096)
    service.run_once()
    assert (files.committed_where, told) == (8192, [8192])
    append(files, 1)
    clock.now = 1.0
    service.run_once()
    assert files.committed_where == 8193
    GroupCommitService(files, nothing).flush()
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


class Interrupted:
    """Stands in for the lock of a put that waits: Ctrl-C comes while it does."""

    def __init__(self, before: threading.Event) -> None:
        self._before = before

    def acquire(self, timeout: float) -> bool:
        self._before.wait(10)
        raise KeyboardInterrupt

    def locked(self) -> bool:
        return True

    def release(self) -> None:
        """Nobody is left to be woken."""


@pytest.mark.parametrize("chosen", [False, True], ids=["still waiting", "already chosen to lead"])
def test_a_put_that_is_interrupted_leaves_nobody_behind(
    files: MappedFileQueueWriter, monkeypatch: pytest.MonkeyPatch, chosen: bool
) -> None:
    """Ctrl-C in a synchronous put: the next put is synced all the same."""
    group_commit = GroupCommitService(files, nothing)
    handed_over = threading.Event()
    append(files, 100)
    held = HeldSyncs(monkeypatch)
    leader = held.begin_in_a_thread(group_commit.flush_to, 100, 10)
    append(files, 100)
    interrupted = Interrupted(handed_over if chosen else threading.Event())
    real_waiter = flush._Waiter

    def waiter(end: int, timeout: float) -> flush._Waiter:
        made = real_waiter(end, timeout)
        made.woken = interrupted  # type: ignore[assignment]
        if not chosen:
            interrupted._before.set()
        return made

    monkeypatch.setattr(flush, "_Waiter", waiter)
    raised: list[bool] = []

    def put() -> None:
        with pytest.raises(KeyboardInterrupt):
            group_commit.flush_to(200, 10)
        raised.append(True)

    second = threading.Thread(target=put)
    second.start()
    if chosen:
        while not group_commit._waiting:
            threading.Event().wait(0.001)
    else:
        second.join(10)
    held.let_go()
    leader.join(10)
    handed_over.set()
    second.join(10)
    assert raised == [True]
    monkeypatch.setattr(flush, "_Waiter", real_waiter)
    append(files, 100)
    assert group_commit.flush_to(300, 10)


def test_an_interrupt_while_the_leader_hands_over_leaves_somebody_to_sync(
    files: MappedFileQueueWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C may come right behind the sync: those that wait are woken all the same, and go on."""
    group_commit = GroupCommitService(files, nothing)
    append(files, 100)
    held = HeldSyncs(monkeypatch)
    raised: list[bool] = []

    def lead() -> None:
        with pytest.raises(KeyboardInterrupt):
            group_commit.flush_to(100, 10)
        raised.append(True)

    leader = held.begin_in_a_thread(lead)
    results: list[bool] = []
    append(files, 100)
    second = threading.Thread(target=lambda: results.append(group_commit.flush_to(200, 10)))
    second.start()
    while not group_commit._waiting:
        threading.Event().wait(0.001)

    def may_lead(timeout: float) -> bool:
        """Asked in the middle of handing over."""
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(group_commit, "_may_lead", may_lead)
    held.let_go()
    leader.join(10)
    second.join(10)
    assert raised == [True]
    assert results == [True]
    append(files, 100)
    assert group_commit.flush_to(300, 10)
