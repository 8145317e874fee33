"""WaitingRoom: clients that wait for messages of one store, for all of which one thread looks.

A look by each of them, ten times a second, would take a core at 250 of them. Here each queue is looked at once,
however many clients wait for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from commitlog_store.errors import CommitLogError, QueueNotFound, TopicNotFound
from commitlog_store.files.file_watch import LOOK_AGAIN_SECONDS
from commitlog_store.reader import StoreReader
from commitlog_store.threads.wakeup import Wakeup
from commitlog_store.threads.worker import Worker

_LOG = logging.getLogger(__name__)

_QueueKey = tuple[str, int]
# So often a waiting call asks whether it is wanted still.
_ASK_SECONDS = 0.5
_IDLE_SECONDS = 60.0
# Watched directories without a waiter, as many as there may be before the reader is opened again.
_SPARE_QUEUES = 100


class Waiter:
    """A call that waits for one of these positions to be filled."""

    def __init__(self, positions: Mapping[_QueueKey, int]) -> None:
        self.positions = positions
        self.wakeup = Wakeup()

    def wait(self, seconds: float, is_wanted: Callable[[], bool]) -> None:
        """Return when a position may be filled, after ``seconds``, or when the call is not wanted any more."""
        ends = time.monotonic() + seconds
        while is_wanted() and (left := ends - time.monotonic()) > 0:
            if self.wakeup.wait(min(left, _ASK_SECONDS)):
                return


class WaitingRoom:
    """A service: ``run_once`` looks for all that wait. ``start`` gives it a thread, which ``close`` ends."""

    def __init__(self, open_reader: Callable[[], StoreReader]) -> None:
        self._open = open_reader
        self._reader: StoreReader | None = None
        self._watched: set[_QueueKey] = set()
        self._lock = threading.Lock()
        self._waiters: set[Waiter] = set()
        self._wakeup = Wakeup()
        self._worker = Worker("commitlog-serve-waits", self, lambda _: self.wake_all(), self._wakeup)

    def start(self) -> None:
        self._worker.start()

    def close(self) -> None:
        """End the thread. Calls that wait are woken."""
        self._worker.stop()
        self.wake_all()
        self._leave_store()

    @contextmanager
    def joined(self, positions: Mapping[_QueueKey, int]) -> Iterator[Waiter]:
        """Look for these positions too. Look at them yourself within the block, then wait."""
        waiter = Waiter(positions)
        with self._lock:
            self._waiters.add(waiter)
        self._wakeup.set()
        try:
            yield waiter
        finally:
            with self._lock:
                self._waiters.discard(waiter)

    def wake_all(self) -> None:
        self._wake(lambda _: True)

    def run_once(self) -> float:
        """Wake the calls that have something to find. Returns the seconds until the next look."""
        wanted: dict[_QueueKey, int] = {}
        with self._lock:
            for waiter in self._waiters:
                for queue, offset in waiter.positions.items():
                    wanted[queue] = min(offset, wanted.get(queue, offset))
        if not wanted:
            self._leave_store()
            return _IDLE_SECONDS
        try:
            reader = self._reader_of(wanted)
            if reader.wait_for_any(wanted, LOOK_AGAIN_SECONDS):
                ends = dict(_ends(reader, wanted))
                self._wake(lambda one: any(ends.get(queue, 0) > offset for queue, offset in one.positions.items()))
            return 0.0
        except CommitLogError as error:
            _LOG.debug("Calls that wait look for themselves: %s", error)
            self._leave_store()
            self.wake_all()
            return LOOK_AGAIN_SECONDS

    def _wake(self, which: Callable[[Waiter], bool]) -> None:
        with self._lock:
            woken = {waiter for waiter in self._waiters if which(waiter)}
            self._waiters -= woken
        for waiter in woken:
            waiter.wakeup.set()

    def _reader_of(self, wanted: Mapping[_QueueKey, int]) -> StoreReader:
        """A reader watches what it once waited for; it is replaced when most of that is of the past."""
        self._watched |= wanted.keys()
        if len(self._watched) > 2 * len(wanted) + _SPARE_QUEUES:
            self._leave_store()
            self._watched = set(wanted)
        if self._reader is None:
            self._reader = self._open()
        return self._reader

    def _leave_store(self) -> None:
        reader, self._reader = self._reader, None
        self._watched = set()
        if reader is not None:
            reader.close()


def _ends(reader: StoreReader, queues: Mapping[_QueueKey, int]) -> Iterator[tuple[_QueueKey, int]]:
    for queue in queues:
        try:
            yield queue, reader.queue_info(*queue).max_offset
        except (TopicNotFound, QueueNotFound):
            continue
