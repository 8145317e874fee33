"""One step ahead: the next item is made on another thread while this one is being used."""

from __future__ import annotations

import _thread
import queue
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple, TypeVar

__all__ = ["one_ahead"]

_T = TypeVar("_T")


class _Made(NamedTuple):
    """What became of an order. Without an item and without an error there are no more."""

    items: list[Any]
    error: BaseException | None = None


def one_ahead(items: Iterator[_T]) -> Generator[_T, None, None]:
    """The items, each begun when the one before it is handed out. What making one raises is raised in its place.

    Close it when the items are not used to their end: the one that is under way is waited for.
    """
    # An executor would do, but for Ctrl-C: its locks are not made for that, and what comes out then looks as if no
    # thread could be begun, while the item is being made all the same. These queues are used in one step each.
    orders: queue.SimpleQueue[bool] = queue.SimpleQueue()
    made: queue.SimpleQueue[_Made] = queue.SimpleQueue()
    running = _thread.allocate_lock()
    begun = False
    try:
        running.acquire()
        try:
            _thread.start_new_thread(_make, (items, orders, made, running))
        except RuntimeError:  # the interpreter is being shut down, and begins no threads any more
            yield from items
            return
        begun = True
        orders.put(True)
        while (found := made.get()).items:
            orders.put(True)
            yield found.items[0]
        if found.error is not None:
            raise found.error
    finally:
        orders.put(False)
        if begun:
            running.acquire()


def _make(
    items: Iterator[Any], orders: queue.SimpleQueue[bool], made: queue.SimpleQueue[_Made], running: _thread.LockType
) -> None:
    """Make an item for each order, until there are no more of either."""
    try:
        while orders.get():
            try:
                found = _Made([next(items)])
            except StopIteration:
                found = _Made([])
            except BaseException as error:  # noqa: BLE001 - it is raised where the item is asked for
                found = _Made([], error)
            made.put(found)
    finally:
        running.release()
