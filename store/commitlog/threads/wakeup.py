"""Wakeups: events that one thread waits for and another one sets, safe from exceptions of signal handlers.

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
        """Return when it is set, or after ``seconds``. Returns whether it was set."""
        return self._lock.acquire(timeout=min(max(seconds, 0.0), _thread.TIMEOUT_MAX))


class Waiters:
    """Any number of threads that wait for a change, and then look again."""

    def __init__(self) -> None:
        self._waiting: dict[Wakeup, bool] = {}

    @contextlib.contextmanager
    def waiting(self) -> Iterator[Wakeup]:
        """The wakeup that ``wake_all`` sets. Enter before looking: then no change is missed between look and wait."""
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
        """The number of threads that wait."""
        return len(self._waiting)
