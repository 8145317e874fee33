"""How appended bytes get to the device: the three flush services.

====================  ==============================  ==========================================================
service               used with                       what it does
====================  ==============================  ==========================================================
GroupCommitService    SYNC_FLUSH                      one sync for all puts that wait
FlushRealTimeService  ASYNC_FLUSH, and beside SYNC    syncs when enough is dirty, or old enough
CommitRealTimeService the transient pool              writes what gathered in its buffers to the files
====================  ==============================  ==========================================================

RocketMQ's GroupCommitService is a thread with two lists of requests that it swaps. Waking that thread, and being woken
by it, costs much beside the sync itself, so a put that waits does the sync: the first one syncs for all that have
appended by then, and the others find it done. docs/decisions/0006-append-and-group-commit.md has the figures.

Source: RocketMQ ``store/CommitLog.java`` (``GroupCommitService``, ``FlushRealTimeService``, ``CommitRealTimeService``).
"""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import Callable

from commitlog.config import FlushDiskType, MessageStoreConfig
from commitlog.errors import StoreIOError
from commitlog.files.mapped_file_queue_writer import MappedFileQueueWriter

__all__ = ["FOREVER", "CommitRealTimeService", "FlushRealTimeService", "GroupCommitService"]

_MS = 1000.0
_PAGE = 4096
# What Lock.acquire takes for no limit.
FOREVER = -1
# How often GroupCommitService looks for messages that nobody waits for (WAIT=false).
_GROUP_COMMIT_INTERVAL_MS = 10
# A put cannot turn away from a sync that it leads. When the last one took more than this share of the time that the
# put has, it waits, and leaves the sync to FlushRealTimeService.
_SLOW_SHARE = 0.25


class _Waiter:
    """A put that wants the log on the device up to a place: how long it waits, and what wakes it."""

    __slots__ = ("end", "timeout", "woken")

    def __init__(self, end: int, timeout: float) -> None:
        self.end = end
        self.timeout = timeout
        self.woken = threading.Lock()
        self.woken.acquire()


class GroupCommitService:
    """Syncs the log for all puts that wait: one of them at a time leads, the others are woken by it."""

    def __init__(
        self,
        files: MappedFileQueueWriter,
        on_flushed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = files
        self._on_flushed = on_flushed
        self._clock = clock
        self._sync_seconds = 0.0
        self._lock = threading.Lock()
        # Who syncs; and who waits for that, or to be the next.
        self._leader: _Waiter | None = None
        self._waiting: list[_Waiter] = []
        self._to_wake: deque[_Waiter] = deque()
        # A sync that failed once has lost what it was for: the kernel drops the pages, and the next sync would say
        # that all is well. So none is tried again (invariant 2).
        self._failure: StoreIOError | None = None

    def flush_to(self, end: int, timeout: float) -> bool:
        """Return when everything up to ``end`` is on the device; False when the time was up before.

        ``StoreIOError`` when the sync failed; then no position moved (invariant 2).
        """
        me = _Waiter(end, timeout)
        leads = False
        try:
            with self._lock:
                if self._files.flushed_where >= end:
                    return True
                if self._leader is None and self._may_lead(timeout):
                    self._leader = me
                else:
                    self._waiting.append(me)
            if self._leader is not me:
                self._await(me)
            leads = self._leader is me
            if leads:
                self._sync()
        finally:
            # Ctrl-C may come at any point, here too: whoever leads hands over, or nobody would sync ever again.
            try:
                self._settle(me)
            except BaseException:
                self._settle(me)
                raise
        if leads:
            self._on_flushed()
        return self._files.flushed_where >= end

    def _may_lead(self, timeout: float) -> bool:
        """Whether a sync like the last one leaves a put its time."""
        return timeout == FOREVER or self._sync_seconds <= timeout * _SLOW_SHARE

    def _await(self, waiter: _Waiter) -> None:
        """Wait to be woken: the message is on the device, or this put is to lead, or a sync has failed."""
        woken = waiter.woken.acquire(timeout=waiter.timeout)
        if woken and self._leader is not waiter and self._files.flushed_where < waiter.end:
            self._refuse_failed()

    def _refuse_failed(self) -> None:
        if self._failure is not None:
            # Not the same object again: each raise would add to its traceback.
            raise copy.copy(self._failure) from self._failure

    def _sync(self) -> None:
        self._refuse_failed()
        began = self._clock()
        try:
            self._files.flush()
        except StoreIOError as error:
            self._failure = error
            raise
        finally:
            self._sync_seconds = self._clock() - began

    def _settle(self, me: _Waiter) -> None:
        """Wait no more. Who leads wakes everybody whose messages are on the device, and one of the others to go on.

        Where syncs are slow no put goes on: FlushRealTimeService does, a moment later. Once interrupted, it can be
        called again.
        """
        with self._lock:
            if me in self._waiting:
                self._waiting.remove(me)
            if self._leader is me:
                flushed = self._files.flushed_where
                failed = self._failure is not None
                done = [waiter for waiter in self._waiting if failed or waiter.end <= flushed]
                left = [waiter for waiter in self._waiting if not failed and waiter.end > flushed]
                following = next((waiter for waiter in left if self._may_lead(waiter.timeout)), None)
                if following is not None:
                    left.remove(following)
                    self._to_wake.append(following)  # first of all: its sync can begin while the others are woken
                self._to_wake.extend(done)
                self._waiting = left
                self._leader = following
            while self._to_wake:
                woken = self._to_wake[0].woken
                if woken.locked():
                    woken.release()
                self._to_wake.popleft()

    def flush(self) -> None:
        """Sync everything that is committed. ``StoreIOError``."""
        end = self._files.committed_where
        while self._files.flushed_where < end:
            self.flush_to(end, FOREVER)
        self._refuse_failed()


class FlushRealTimeService:
    """The asynchronous flush, and under SYNC_FLUSH the flush of what no put waits for."""

    def __init__(
        self,
        files: MappedFileQueueWriter,
        group_commit: GroupCommitService,
        config: MessageStoreConfig,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = files
        self._group_commit = group_commit
        self._least_pages = config.flush_commit_log_least_pages
        self._thorough = config.flush_commit_log_thorough_interval / _MS
        self._interval = config.flush_interval_commit_log / _MS
        if config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            self._least_pages, self._interval = 0, _GROUP_COMMIT_INTERVAL_MS / _MS
        self._clock = clock
        self._flushed_at = clock()

    def run_once(self) -> float:
        if self._files.flushed_where < self._files.committed_where:
            now = self._clock()
            if self._files.dirty_pages >= self._least_pages or now - self._flushed_at >= self._thorough:
                self._group_commit.flush()
                self._flushed_at = now
        return self._interval


class CommitRealTimeService:
    """Writes what gathered in the transient pool's buffers to the files."""

    def __init__(
        self,
        files: MappedFileQueueWriter,
        config: MessageStoreConfig,
        on_committed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = files
        self._least_pages = config.commit_commit_log_least_pages
        self._interval = config.commit_interval_commit_log / _MS
        self._thorough = config.commit_commit_log_thorough_interval / _MS
        self._on_committed = on_committed
        self._clock = clock
        self._committed_at = clock()
        self._lock = threading.Lock()

    def run_once(self) -> float:
        waiting = self._files.max_wrote - self._files.committed_where
        now = self._clock()
        if waiting >= self._least_pages * _PAGE or (waiting and now - self._committed_at >= self._thorough):
            self.commit()
            self._committed_at = now
        return self._interval

    def commit(self) -> None:
        """Write everything that has gathered. ``StoreIOError``."""
        with self._lock:
            if self._files.commit():
                self._on_committed()
