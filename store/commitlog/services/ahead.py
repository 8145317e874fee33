"""One step ahead: the next item is made on another thread while this one is being used."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["one_ahead"]

_T = TypeVar("_T")


def one_ahead(items: Iterator[_T], name: str) -> Generator[_T, None, None]:
    """The items, each begun when the one before it is handed out. What making one raises is raised in its place.

    Close it when the items are not used to their end: the one that is under way is waited for.
    """
    nothing = object()
    with ThreadPoolExecutor(1, name) as maker:
        try:
            following = maker.submit(next, items, nothing)
        except RuntimeError:  # the interpreter is being shut down, and begins no threads any more
            yield from items
            return
        while (item := following.result()) is not nothing:
            try:
                following = maker.submit(next, items, nothing)
            except RuntimeError:
                yield item  # type: ignore[misc]
                yield from items
                return
            yield item  # type: ignore[misc]
