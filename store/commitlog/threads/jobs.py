"""JobThread: runs commits, flushes and closing, which must not be interrupted; callers only wait for it.

A Python signal handler runs in the main thread, between any two steps of that thread's code, and may raise there, as
Ctrl-C does. It never runs in another thread. So an exception of a handler ends the wait of a caller, and nothing else.
docs/decisions/0011 has the argument.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar, cast

__all__ = ["Job", "JobThread", "JobThreadEnded"]

_T = TypeVar("_T")


class JobThreadEnded(Exception):
    """The thread has already got its last job. Nothing was done."""


class Job(Generic[_T]):
    """A piece of work, and its result or error."""

    __slots__ = ("_done", "error", "is_given", "result", "work")

    def __init__(self, work: Callable[[], _T]) -> None:
        self.work = work
        self.result: _T | None = None
        self.error: BaseException | None = None
        self.is_given = False
        self._done = threading.Lock()
        self._done.acquire()

    def do(self) -> None:
        """Do the work. An exception is kept for the threads that wait."""
        try:
            self.result = self.work()
        except BaseException as error:  # noqa: BLE001 - it is raised where the job is waited for
            self.error = error
        self._done.release()

    def wait(self) -> None:
        """Return when the work is done. Any number of threads may wait."""
        with self._done:
            pass


class JobThread:
    """Runs one job after the other, in the order in which they were given. The last one ends the thread."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Job[object]] = queue.SimpleQueue()
        # A signal handler or a finalizer may call this while its own thread holds the lock: both only add to the queue.
        self._lock = threading.RLock()
        self._last: Job[object] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def run(self, work: Callable[[], _T]) -> _T:
        """Do ``work`` on the thread. Returns its result or raises its exception. ``JobThreadEnded``.

        An exception from a signal handler ends the wait; the work is still done.
        """
        job = Job(work)
        with self._lock:
            if self._last is not None:
                raise JobThreadEnded
            self._jobs.put(cast("Job[object]", job))
        job.wait()
        if job.error is not None:
            raise job.error
        return cast("_T", job.result)

    def finish(self, work: Callable[[], object]) -> Job[object]:
        """Add the last job, without waiting for it. A second call returns the same job."""
        with self._lock:
            if self._last is None:
                self._last = Job(work)
            # An exception from a signal handler may come between these: then the next caller adds it again.
            if not self._last.is_given:
                self._jobs.put(self._last)
                self._last.is_given = True
            return self._last

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            job.do()
            if job is self._last:
                return
            del job  # its objects are freed now, not after the next job
