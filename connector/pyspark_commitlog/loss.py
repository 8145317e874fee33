"""What happens when messages that were to be read are gone: the option ``failOnDataLoss``, in one place.

Each function either raises (``fail``) or logs a warning and returns, after which the caller goes on with what is left.
"""

from __future__ import annotations

import logging

from commitlog.errors import FileMissing, OffsetOutOfRange
from pyspark_commitlog.errors import DataLossError, TailLostError

__all__ = ["file_missing", "head_lost", "out_of_range", "queue_gone", "tail_lost", "tail_replaced"]

_logger = logging.getLogger(__name__)

_GO_ON = "To go on with what is left, set the option failOnDataLoss to false."
_RESTORE = (
    "Restore the store that this checkpoint belongs to; or start a query with a new checkpoint; or, to go on with "
    "what is there, set the option failOnDataLoss to false."
)


def head_lost(
    topic: str,
    queue_id: int,
    wanted: tuple[int, int],
    available: tuple[int, int],
    *,
    fail: bool,
    cause: Exception | None = None,
) -> None:
    """The offsets from ``wanted[0]`` to ``available[0]`` are gone from the start of what is to be read."""
    text = (
        f"Topic {topic!r}, queue {queue_id}: wanted offsets [{wanted[0]}, {wanted[1]}), available are "
        f"[{available[0]}, {available[1]}). The messages before {available[0]} are no longer in the store; its "
        f"retention has most likely deleted them before they were read."
    )
    if fail:
        error = DataLossError(f"{text} {_GO_ON}", topic=topic, queue_id=queue_id, wanted=wanted, available=available)
        raise error from cause
    _logger.warning("%s Going on at offset %d.", text, min(available[0], wanted[1]))


def file_missing(missing: FileMissing, wanted: tuple[int, int], *, fail: bool) -> int:
    """A file between others is not there, so ``wanted`` has a hole, or begins in one; where to go on behind it."""
    begin, stop = max(missing.start, wanted[0]), wanted[1]
    resume = min(max(missing.stop, begin + 1), stop)
    text = (
        f"Topic {missing.topic!r}, queue {missing.queue_id}: of the wanted offsets [{wanted[0]}, {stop}), "
        f"[{begin}, {resume}) cannot be read, since {missing.path} is missing although files before and after it are "
        f"there."
    )
    if fail:
        raise DataLossError(
            f"{text} Restore the file. {_GO_ON} Reading then goes on at offset {resume}.",
            topic=missing.topic,
            queue_id=missing.queue_id,
            wanted=wanted,
            available=(resume, stop),
        ) from missing
    _logger.warning("%s Going on at offset %d.", text, resume)
    return resume


def out_of_range(error: OffsetOutOfRange, *, fail: bool) -> None:
    """Planning met ``error`` again and again. Returns as well when ``error`` is not about lost messages."""
    available = (error.min_offset, error.max_offset)
    if error.start < error.min_offset:
        wanted = (error.start, error.stop)
        head_lost(error.topic, error.queue_id, wanted, available, fail=fail, cause=error)
    elif error.stop > error.max_offset:
        tail_lost(error.topic, error.queue_id, error.stop, available, fail=fail)


def queue_gone(topic: str, queue_id: int, position: int, *, fail: bool) -> None:
    """The queue (or its whole topic) was there when it was last read and is not any more."""
    text = (
        f"Topic {topic!r}, queue {queue_id}: wanted offsets from {position} on, available are none. The queue was read "
        f"before and is not in the store any more."
    )
    if fail:
        raise DataLossError(
            f"{text} {_GO_ON}", topic=topic, queue_id=queue_id, wanted=(position, position), available=None
        )
    _logger.warning("%s Going on without it; should it come back, it is read from its start.", text)


def tail_lost(topic: str, queue_id: int, position: int, available: tuple[int, int], *, fail: bool) -> None:
    """The queue ends before ``position``, up to which it was already read or was to be read."""
    what = (
        f"this query has planned up to offset {position}, but the queue now ends at {available[1]} (available are "
        f"[{available[0]}, {available[1]})). The store has lost the end of this queue: it was restored from an older "
        f"copy, or recovery cut off what a crash had left unwritten."
    )
    _tell_of_tail(what, topic, queue_id, position, available, resume=available[1], fail=fail)


def tail_replaced(topic: str, queue_id: int, position: int, available: tuple[int, int], *, fail: bool) -> None:
    """The message before ``position`` is not the one that was there when it was read."""
    what = (
        f"the message at offset {position - 1} is not the one that this query has recorded there (available are "
        f"[{available[0]}, {available[1]})). The store has lost the end of this queue and has grown again since, so "
        f"messages before offset {position} may be there that were never read."
    )
    _tell_of_tail(what, topic, queue_id, position, available, resume=position, fail=fail)


def _tell_of_tail(
    what: str, topic: str, queue_id: int, position: int, available: tuple[int, int], *, resume: int, fail: bool
) -> None:
    text = f"Topic {topic!r}, queue {queue_id}: {what}"
    if fail:
        raise TailLostError(
            f"{text} {_RESTORE}", topic=topic, queue_id=queue_id, position=position, available=available
        )
    _logger.warning("%s Going on at offset %d.", text, resume)
