"""Planning beside a live owner: what the store changes between two looks is looked at again."""

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
from pyspark_commitlog import loss as data_loss

__all__ = ["STORE_CHANGED", "again_if_files_change"]

# What planning meets when retention takes a file, or someone a queue, between the look at the bounds and their use.
STORE_CHANGED: tuple[type[CommitLogError], ...] = (
    FileChanged,
    MessageNotFound,
    OffsetOutOfRange,
    QueueNotFound,
    TopicNotFound,
)

_ATTEMPTS = 3

_T = TypeVar("_T")


def again_if_files_change(plan: Callable[[], _T], *, fail: bool) -> _T:
    """What ``plan`` gives, called again while the store changes under it; each time it must look at the bounds anew.

    Should offsets be gone every time, that is a loss: ``DataLossError`` or ``TailLostError`` with ``fail``, else a
    warning and a last attempt, whose error passes.
    """
    lost: OffsetOutOfRange | None = None
    for _ in range(_ATTEMPTS):
        try:
            return plan()
        except STORE_CHANGED as error:
            lost = error if isinstance(error, OffsetOutOfRange) else None
    if lost is not None:
        data_loss.out_of_range(lost, fail=fail)
    return plan()
