"""Replanning: retries planning while the owner of the store changes files between two looks at them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from commitlog.errors import (
    CommitLogError,
    FileChanged,
    MessageNotFound,
    OffsetOutOfRange,
    QueueNotFound,
    TopicNotFound,
)
from pyspark_commitlog import loss

__all__ = ["STORE_CHANGED", "retry_while_store_changes"]

# Errors of planning when a file or a queue is removed between the look at the bounds and their use.
STORE_CHANGED: tuple[type[CommitLogError], ...] = (
    FileChanged,
    MessageNotFound,
    OffsetOutOfRange,
    QueueNotFound,
    TopicNotFound,
)

_ATTEMPTS = 3

_T = TypeVar("_T")


def retry_while_store_changes(plan: Callable[[], _T], *, fail: bool) -> _T:
    """The result of ``plan``, called again while the store changes; each time it must look at the bounds again.

    If offsets are gone every time, that is a loss: ``DataLossError`` or ``TailLostError`` with ``fail``, else a warning
    and a last attempt, whose error is raised.
    """
    out_of_range: OffsetOutOfRange | None = None
    for _ in range(_ATTEMPTS):
        try:
            return plan()
        except STORE_CHANGED as error:
            out_of_range = error if isinstance(error, OffsetOutOfRange) else None
    if out_of_range is not None:
        loss.out_of_range(out_of_range, fail=fail)
    return plan()
