"""What one thread waits for and others bring about, while signal handlers may raise in any of them."""

from __future__ import annotations

import _thread
import contextlib

__all__ = ["Wakeup"]


class Wakeup:
    """Ends a wait, or the next one if nobody waits; of several who wait, one.

    A lock that is let go of by who wakes and taken by who waits, each in one step: docs/decisions/0008 says why it is
    no ``threading.Event``.
    """

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def set(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is set already
            self._lock.release()

    def wait(self, seconds: float) -> None:
        """Return when it is set, or so many seconds are over."""
        self._lock.acquire(timeout=min(max(seconds, 0.0), _thread.TIMEOUT_MAX))
