"""One step ahead: the next item is made on another thread while this one is being used."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["one_ahead"]

_T = TypeVar("_T")


def one_ahead(items: Iterator[_T], name: str) -> Iterator[_T]:
    """The items, each begun when the one before it is handed out. What making one raises is raised in its place.

    When the items are not used to their end, the one that is under way is waited for.
    """
    nothing = object()
    with ThreadPoolExecutor(1, name) as maker:
        following = maker.submit(next, items, nothing)
        while (item := following.result()) is not nothing:
            following = maker.submit(next, items, nothing)
            yield item  # type: ignore[misc]
