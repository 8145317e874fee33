"""Wakeups: what a thread waits for and another one brings about, safe from exceptions of signal handlers.

``threading.Event`` and ``Condition`` are written in Python, with locks inside that an exception from a signal handler
may leave taken. Here one thread releases a lock that another one acquires, each in one step of C.
"""

from __future__ import annotations

import _thread
import contextlib
from collections.abc import Iterator

__all__ = ["Waiters", "Wakeup"]


class Wakeup:
    """Ends a wait of one thread, or its next wait if it does not wait at this moment."""

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def set(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is set already
            self._lock.release()

    def wait(self, seconds: float) -> bool:
        """Return when it is set, or after so many seconds; whether it was set."""
        return self._lock.acquire(timeout=min(max(seconds, 0.0), _thread.TIMEOUT_MAX))


class Waiters:
    """Any number of threads that wait until something has changed, and look again then."""

    def __init__(self) -> None:
        self._waiting: dict[Wakeup, bool] = {}

    @contextlib.contextmanager
    def waiting(self) -> Iterator[Wakeup]:
        """What ``wake_all`` sets. Begin before looking, so that no change comes between the look and the wait."""
        wakeup = Wakeup()
        self._waiting[wakeup] = True
        try:
            yield wakeup
        finally:
            self._waiting.pop(wakeup, None)

    def wake_all(self) -> None:
        for wakeup in list(self._waiting):
            wakeup.set()

    def __len__(self) -> int:
        """How many threads wait."""
        return len(self._waiting)
