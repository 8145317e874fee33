"""Wakeups: events that one thread waits for and another one sets, safe from exceptions of signal handlers.

``threading.Event`` and ``Condition`` are written in Python, with locks inside that an exception from a signal handler
may leave taken. Here one thread releases a lock that another one acquires, each in one step of C.
"""

from __future__ import annotations

import _thread
import contextlib
from collections.abc import Iterator
from typing import Protocol, TypeVar


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


class LoopWakeup:
    """Ends one wait of a task of the running event loop, also if it has not begun. Any thread may set it.

    A bare future: ``asyncio.wait_for`` around an ``Event`` takes a task and two more rounds of the loop.
    """

    def __init__(self) -> None:
        import asyncio  # programs without it do not import it

        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()

    def set(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Return when it is set, or after ``seconds``, without blocking the loop."""
        timer = self._loop.call_later(seconds, self._end)
        try:
            await self._ended
        finally:
            timer.cancel()


class Settable(Protocol):
    """A wakeup of a thread or of a task."""

    def set(self) -> None: ...


_Wakeup = TypeVar("_Wakeup", bound=Settable)


class Waiters:
    """Any number of threads and tasks that wait for a change, and then look again."""

    def __init__(self) -> None:
        self._waiting: dict[Settable, bool] = {}

    @contextlib.contextmanager
    def waiting(self, wakeup: _Wakeup, *, of_all: bool = True) -> Iterator[_Wakeup]:
        """Have ``wake_all`` set this wakeup. Enter before looking: no change is missed between look and wait.

        ``wake_general`` sets only those that are ``of_all``.
        """
        self._waiting[wakeup] = of_all
        try:
            yield wakeup
        finally:
            self._waiting.pop(wakeup, None)

    def wake_all(self) -> None:
        for wakeup in list(self._waiting):
            wakeup.set()

    def wake_general(self) -> None:
        for wakeup, of_all in list(self._waiting.items()):
            if of_all:
                wakeup.set()

    def __len__(self) -> int:
        """The number of threads and tasks that wait."""
        return len(self._waiting)
