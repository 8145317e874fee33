"""Calls: the threads that are within a call of the store. Closing waits for them; a call within a call is refused.

A second call of a thread that is within one comes from a signal handler or a finalizer. The interrupted call may hold a
lock for which the second one would wait indefinitely.
"""

from __future__ import annotations

import threading
from threading import get_ident

from commitlog_store.errors import NestedCall

_NESTED = (
    "This thread is in the middle of another call of the store, which a signal handler has interrupted, say, and which "
    "may hold a lock that this call would wait for. Nothing was done; call again when the other call has ended."
)


class Calls:
    """The calls under way: each thread has a lock that it holds during a call, as ``with calls.enter():``.

    ``with`` takes and releases a lock in one step each, so an exception from a signal handler leaves none taken.
    """

    def __init__(self) -> None:
        # By the thread's number. Numbers are reused, so the dict stays small.
        self._locks: dict[int, threading.Lock] = {}

    def enter(self) -> threading.Lock:
        """This thread's lock, to hold during a call; check under it whether the store is closed. ``NestedCall``."""
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
        """In a forked child: forget all calls, since their threads do not exist there."""
        self._locks = {}
