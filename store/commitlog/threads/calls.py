"""Which threads are within a call of the store: closing waits for them, and a call within a call is refused.

A second call of a thread that is within one comes from a signal handler or a finalizer. What it interrupted may hold a
lock for which the second call would wait for ever.
"""

from __future__ import annotations

import threading
from threading import get_ident

from commitlog.errors import NestedCall

__all__ = ["Calls"]

_NESTED = (
    "This thread is in the middle of another call of the store, which a signal handler has interrupted, say, and which "
    "may hold what this call would wait for. Nothing was done; call again when the other call has ended."
)


class Calls:
    """Each thread has a lock that it holds during a call, as ``with calls.enter():``.

    ``with`` takes and releases a lock in one step each, so an exception from a signal handler leaves none taken.
    """

    def __init__(self) -> None:
        # By the thread's number. Numbers are used again, so there are never many.
        self._locks: dict[int, threading.Lock] = {}

    def enter(self) -> threading.Lock:
        """What this thread holds during a call; ask under it whether the store is closed. ``NestedCall``."""
        thread = get_ident()
        lock = self._locks.get(thread)
        if lock is None:
            return self._locks.setdefault(thread, threading.Lock())
        if lock.locked():
            raise NestedCall(_NESTED)
        return lock

    def is_within(self) -> bool:
        """Whether this thread is within a call."""
        lock = self._locks.get(get_ident())
        return lock is not None and lock.locked()

    def have_ended(self) -> bool:
        """Whether no thread is within a call."""
        return not any(lock.locked() for lock in list(self._locks.values()))

    def forget(self) -> None:
        """In a forked child, which has none of the threads that were within a call."""
        self._locks = {}
