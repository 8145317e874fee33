"""Flush services: bring appended bytes to the device.

====================  =================  ===============================================================
service               used with          task
====================  =================  ===============================================================
GroupCommitService    SYNC_FLUSH         one sync for all puts that wait
FlushRealTimeService  ASYNC_FLUSH        syncs when enough is dirty, or old enough
CommitRealTimeService the transient pool writes the bytes gathered in its buffers to the files
====================  =================  ===============================================================

All of them sync through one ``LogFlusher``. docs/decisions/0006-append-and-group-commit.md has the figures.

Source: RocketMQ ``store/CommitLog.java`` (``GroupCommitService``, ``FlushRealTimeService``, ``CommitRealTimeService``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import StoreIOError
from commitlog_store.files.mapped_file_queue_writer import MappedFileQueueWriter
from commitlog_store.slow_steps import SlowSpell
from commitlog_store.threads.wakeup import Wakeup

_LOG = logging.getLogger(__name__)
_MS = 1000.0
_PAGE = 4096
# How often GroupCommitService looks for messages without a waiting put (WAIT=false).
_GROUP_COMMIT_INTERVAL_S = 0.01
# A put syncs by itself while a sync takes at most this share of its timeout.
_SLOW_SHARE = 0.25


class LogFlusher:
    """Syncs the log, one thread at a time, and never again after a sync that failed (invariant 2).

    A failed sync has lost its bytes: the kernel drops the pages, and the next sync would report success. In the main
    thread, an exception of a signal handler may end a sync and hide such a failure: the next sync writes its bytes once
    more then (``_unsettled``).

    ``on_flushed`` is called after each sync: under SYNC_FLUSH, dispatch waits for it.
    """

    def __init__(
        self,
        files: MappedFileQueueWriter,
        on_flushed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = files
        self._on_flushed = on_flushed
        self._clock = clock
        self._unsettled = False
        self._last_sync_s = 0.0
        self._slow = SlowSpell(_LOG, f"A sync of {files.path}")
        self._lock = threading.Lock()
        self._failure: StoreIOError | None = None

    @property
    def flushed_where(self) -> int:
        return self._files.flushed_where

    @property
    def has_unflushed(self) -> bool:
        """Whether bytes are committed and not on the device."""
        return self._files.flushed_where < self._files.committed_where

    @property
    def dirty_pages(self) -> int:
        return self._files.dirty_pages

    def flush(self) -> None:
        """Bring everything that is committed to the device. ``StoreIOError``."""
        with self._lock:
            self.refuse_failed()
            began = self._clock()
            try:
                if self._unsettled:
                    self._files.write_back(self._files.flushed_where, self._files.committed_where)
                self._unsettled = True
                self._files.flush()
                self._unsettled = False
            except StoreIOError as error:
                self._failure = error
                raise
            self._last_sync_s = self._clock() - began
            self._slow.note(self._last_sync_s)
        self._on_flushed()

    def is_free(self, timeout_s: float) -> bool:
        """Whether no thread syncs, and a sync as long as the last one takes a small share of ``timeout_s``."""
        return not self._lock.locked() and self._last_sync_s <= timeout_s * _SLOW_SHARE

    @property
    def failed(self) -> bool:
        """Whether a sync has failed."""
        return self._failure is not None

    def refuse_failed(self) -> None:
        """``StoreIOError`` when a sync has failed."""
        if self._failure is not None:
            raise self._failure.again() from self._failure


class _Request:
    """A put that waits for the log to be on the device up to ``end``."""

    __slots__ = ("done", "end")

    def __init__(self, end: int) -> None:
        self.end = end
        self.done = threading.Lock()
        self.done.acquire()


class GroupCommitService:
    """Syncs the log for all puts that wait, on a thread of its own, woken by ``wakeup``.

    A put that is alone syncs by itself, which spares it two changes of threads. It cannot stop when its time is up, so
    it does that only while syncs are quick.
    """

    def __init__(self, flusher: LogFlusher, wakeup: Wakeup) -> None:
        self._flusher = flusher
        self._wakeup = wakeup
        # Puts add requests, the service takes them.
        self._requests: deque[_Request] = deque()

    @property
    def waiting(self) -> int:
        """How many puts wait for a sync that has not begun."""
        return len(self._requests)

    def is_free(self, timeout_s: float) -> bool:
        """Whether no put waits and no thread syncs: then a put with that timeout syncs by itself."""
        return not self._requests and self._flusher.is_free(timeout_s)

    def flush_to(self, end: int, timeout_s: float) -> bool:
        """Return when everything up to ``end`` is on the device; False after ``timeout_s`` seconds.

        ``StoreIOError`` if the sync failed; then no position moved (invariant 2).
        """
        if self._flusher.flushed_where < end and self.is_free(timeout_s):
            self._flusher.flush()
        if self._flusher.flushed_where < end:
            request = _Request(end)
            self._requests.append(request)
            self._wakeup.set()
            if not self._flusher.failed:  # else the service may have done its last step
                request.done.acquire(timeout=timeout_s)
            if self._flusher.flushed_where < end:
                self._flusher.refuse_failed()
                return False
        return True

    def run_once(self) -> float:
        """Sync once for all puts that wait by now, and wake them. After a ``StoreIOError`` the service ends."""
        try:
            if self._requests or self._flusher.has_unflushed:
                self._flusher.flush()
        finally:
            self._wake()
        return 0 if self._requests else _GROUP_COMMIT_INTERVAL_S

    def _wake(self) -> None:
        """Wake the puts whose bytes are on the device; after a failure all of them."""
        later = []
        while self._requests:
            request = self._requests.popleft()
            if self._flusher.failed or request.end <= self._flusher.flushed_where:
                request.done.release()
            else:
                later.append(request)
        self._requests.extend(later)


class FlushRealTimeService:
    """The asynchronous flush: when enough pages are dirty, or the last flush was long ago."""

    def __init__(
        self, flusher: LogFlusher, config: MessageStoreConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._flusher = flusher
        self._least_pages = config.flush_commit_log_least_pages
        self._thorough = config.flush_commit_log_thorough_interval / _MS
        self._interval = config.flush_interval_commit_log / _MS
        self._clock = clock
        self._flushed_at = clock()

    def run_once(self) -> float:
        if self._flusher.has_unflushed:
            now = self._clock()
            if self._flusher.dirty_pages >= self._least_pages or now - self._flushed_at >= self._thorough:
                self._flusher.flush()
                self._flushed_at = now
        return self._interval


class CommitRealTimeService:
    """Writes the bytes in the transient pool's buffers to the files."""

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

    def run_once(self) -> float:
        waiting = self._files.max_wrote - self._files.committed_where
        now = self._clock()
        if waiting >= self._least_pages * _PAGE or (waiting and now - self._committed_at >= self._thorough):
            self.commit()
            self._committed_at = now
        return self._interval

    def commit(self) -> None:
        """Write all bytes in the buffers. ``StoreIOError``."""
        if self._files.commit():
            self._on_committed()
