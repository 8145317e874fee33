"""Replanning: a plan is made again while the owners of its stores change files, by ``StoreReader.consistently``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from commitlog_store import StoreReader
from commitlog_store.errors import (
    CommitLogError,
    FileChanged,
    MessageNotFound,
    OffsetOutOfRange,
    QueueNotFound,
    StoreBusy,
    TopicNotFound,
)

# Errors of planning when a file or a queue is removed between the look at the bounds and their use.
STORE_CHANGED: tuple[type[CommitLogError], ...] = (
    FileChanged,
    MessageNotFound,
    OffsetOutOfRange,
    QueueNotFound,
    TopicNotFound,
)

_T = TypeVar("_T")


def plan_again(reader: StoreReader, plan: Callable[[], _T]) -> _T:
    """The result of ``plan``, called again while the store changes; each time it must look at the bounds again.

    All that it gives rests on these bounds. ``StoreBusy``, and its own errors.
    """
    return reader.consistently(plan, one_moment=False)


def plan_again_of_stores(readers: Mapping[str, StoreReader], plan: Callable[[], _T]) -> _T:
    """``plan_again`` for a plan of one store or several, by name."""
    if not readers:
        return plan()
    if "" in readers:
        return plan_again(readers[""], plan)
    try:
        return plan_again(next(iter(readers.values())), plan)  # any of them: it reads its own files in ``plan`` only
    except StoreBusy as error:
        raise StoreBusy(
            f"One of the stores {', '.join(readers)} changed during each of many looks at them: retention deletes "
            "files, or several batches were dispatched. Start the query again."
        ) from error
