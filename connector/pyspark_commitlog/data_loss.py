"""What happens when messages that were to be read are gone: the option ``failOnDataLoss``, in one place.

Each function either raises (``fail``) or logs a warning and returns, after which the caller goes on with what is left.
"""

from __future__ import annotations

import logging

from pyspark_commitlog.errors import DataLossError, TailLostError

__all__ = ["head_lost", "queue_gone", "tail_lost", "tail_replaced"]

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
    text = (
        f"Topic {topic!r}, queue {queue_id}: this query has planned up to offset {position}, but the queue now ends at "
        f"{available[1]} (available are [{available[0]}, {available[1]})). The store has lost the end of this queue: "
        f"it was restored from an older copy, or recovery cut off what a crash had left unwritten."
    )
    if fail:
        raise TailLostError(
            f"{text} {_RESTORE}", topic=topic, queue_id=queue_id, position=position, available=available
        )
    _logger.warning("%s Going on at offset %d.", text, available[1])


def tail_replaced(topic: str, queue_id: int, position: int, available: tuple[int, int], *, fail: bool) -> None:
    """The message before ``position`` is not the one that was there when it was read."""
    text = (
        f"Topic {topic!r}, queue {queue_id}: the message at offset {position - 1} is not the one that this query has "
        f"recorded there (available are [{available[0]}, {available[1]})). The store has lost the end of this queue "
        f"and has grown again since, so messages before offset {position} may be there that were never read."
    )
    if fail:
        raise TailLostError(
            f"{text} {_RESTORE}", topic=topic, queue_id=queue_id, position=position, available=available
        )
    _logger.warning("%s Going on at offset %d.", text, position)
