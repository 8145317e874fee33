"""Prefetch: the next item is made on another thread while this one is being used.

Used by threads of the store, which no signal handler reaches.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

_T = TypeVar("_T")


class _Made(NamedTuple):
    """Result of an order: an item, an error, or neither at the end of the items."""

    items: list[Any]
    error: BaseException | None = None


def prefetch(items: Generator[_T, None, None]) -> Generator[_T, None, None]:
    """The items, each begun when the one before it is handed out. An exception of making one is raised in its place.

    Close it if the items are not used to their end: it waits for the item that is being made, and closes ``items``.
    """
    orders: queue.SimpleQueue[bool] = queue.SimpleQueue()
    made: queue.SimpleQueue[_Made] = queue.SimpleQueue()
    maker = threading.Thread(target=_make, args=(items, orders, made), name="Prefetch", daemon=True)
    try:
        try:
            maker.start()
        except RuntimeError:  # the interpreter is being shut down, and begins no more threads
            yield from items
            return
        orders.put(True)
        while (found := made.get()).items:
            orders.put(True)
            yield found.items[0]
        if found.error is not None:
            raise found.error
    finally:
        orders.put(False)
        if maker.ident is not None:
            maker.join()
        items.close()


def _make(items: Generator[Any, None, None], orders: queue.SimpleQueue[bool], made: queue.SimpleQueue[_Made]) -> None:
    """Make an item for each order, until there are no more of either."""
    while orders.get():
        try:
            made.put(_Made([next(items)]))
        except StopIteration:
            made.put(_Made([]))
        except BaseException as error:  # noqa: BLE001 - it is raised where the item is asked for
            made.put(_Made([], error))
