"""JobThread: runs commits, flushes and closing, which must not be interrupted; callers only wait for it.

A Python signal handler runs in the main thread, between any two steps of that thread's code, and may raise there, as
Ctrl-C does. It never runs in another thread. So an exception of a handler ends the wait of a caller, and nothing else.
docs/decisions/0011 has the argument.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar, cast

_T = TypeVar("_T")
# How often the last job looks whether the calls under way have ended.
_LOOK_AGAIN_S = 0.005


class JobThreadEnded(Exception):
    """The last job has begun before. Nothing was done."""


class Job(Generic[_T]):
    """A piece of work, and its result or error."""

    __slots__ = ("_done", "error", "result", "work")

    def __init__(self, work: Callable[[], _T]) -> None:
        self.work = work
        self.result: _T | None = None
        self.error: BaseException | None = None
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

    def __init__(self, name: str, calls_ended: Callable[[], bool]) -> None:
        """``calls_ended`` says whether no call is under way that may still give a job: the last one waits for that."""
        self._jobs: queue.SimpleQueue[Job[object]] = queue.SimpleQueue()
        self._calls_ended = calls_ended
        # A signal handler or a finalizer may call this while its own thread holds the lock.
        self._lock = threading.RLock()
        self._last: Job[object] | None = None
        self._last_is_given = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def has_started(self) -> bool:
        return self._thread.ident is not None

    def run(self, work: Callable[[], _T]) -> _T:
        """Do ``work`` on the thread. Returns its result or raises its error. Called within a call. ``JobThreadEnded``.

        An exception from a signal handler ends the wait; the work is still done.
        """
        if self._ended:
            raise JobThreadEnded
        job = Job(work)
        self._give(cast("Job[object]", job))
        job.wait()
        if job.error is not None:
            raise job.error
        return cast("_T", job.result)

    def _give(self, job: Job[object]) -> None:
        self._jobs.put(job)

    def finish(self, work: Callable[[], object]) -> Job[object]:
        """Add the last job, without waiting for it. A second call returns the same job."""
        with self._lock:
            if self._last is None:
                self._last = Job(work)
            # An exception from a signal handler may come between these: then the next caller adds it again.
            if not self._last_is_given:
                self._give(self._last)
                self._last_is_given = True
            return self._last

    def _run(self) -> None:
        while (job := self._jobs.get()) is not self._last:
            job.do()
            del job  # its objects are freed now, not after the next job
        # Calls that began before the close may give jobs after it, and wait for them.
        while not self._calls_ended():
            with contextlib.suppress(queue.Empty):
                late = self._jobs.get(timeout=_LOOK_AGAIN_S)
                if late is not job:
                    late.do()
        self._ended = True
        job.do()
