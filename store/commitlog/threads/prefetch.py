"""One step ahead: the next item is made on another thread while this one is being used."""

from __future__ import annotations

import _thread
import os
import queue
import sys
from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

__all__ = ["prefetch"]

_T = TypeVar("_T")


class _Made(NamedTuple):
    """What became of an order. Without an item and without an error there are no more."""

    items: list[Any]
    error: BaseException | None = None


def prefetch(items: Generator[_T, None, None]) -> Generator[_T, None, None]:
    """The items, each begun when the one before it is handed out. What making one raises is raised in its place.

    Close it when the items are not used to their end: the one that is under way is waited for, and ``items`` closed.
    """
    maker = _Maker(items)
    try:
        if not maker.begin():
            yield from items
            return
        while (found := maker.next()).items:
            yield found.items[0]
        if found.error is not None:
            raise found.error
    finally:
        maker.end()
        items.close()


class _Maker:
    """The thread that makes items. docs/decisions/0011 says why it is no executor's."""

    def __init__(self, items: Generator[Any, None, None]) -> None:
        self._items = items
        self._orders: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._made: queue.SimpleQueue[_Made] = queue.SimpleQueue()
        self._process = os.getpid()
        self._ended = False
        # Held by the thread as long as it lives.
        self._running = _thread.allocate_lock()

    def begin(self) -> bool:
        """Whether there is a thread: while the interpreter is being shut down, none begins any more."""
        if sys.is_finalizing():
            return False
        try:
            _thread.start_new_thread(self._run, ())
        except RuntimeError:
            return False
        self._orders.put(True)
        return True

    def next(self) -> _Made:
        """The item that was ordered; the next one is ordered."""
        found = self._made.get()
        if found.items:
            self._orders.put(True)
        return found

    def end(self) -> None:
        """Return when the thread has ended. What interrupts that is raised afterwards: it is using the items."""
        interrupt: BaseException | None = None
        # A forked child has no such thread.
        over = os.getpid() != self._process
        while not over:
            try:
                self._ended = True  # for one that has not got its lock yet
                self._orders.put(False)
                with self._running:
                    over = True
            except BaseException as error:  # noqa: BLE001 - it is raised below
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _run(self) -> None:
        """Make an item for each order, until there are no more of either."""
        last = _Made([], RuntimeError("the thread that makes the items has ended"))
        with self._running:
            try:
                while not self._ended and self._orders.get():
                    self._made.put(self._make())
            finally:
                self._made.put(last)

    def _make(self) -> _Made:
        try:
            return _Made([next(self._items)])
        except StopIteration:
            return _Made([])
        except BaseException as error:  # noqa: BLE001 - it is raised where the item is asked for
            return _Made([], error)
