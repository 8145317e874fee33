"""Timer messages that wait, as files and ledger show them: for the service's start, for retention and for readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from commitlog_store.delayed.timer_log import Delivered, TimerLog, dues_of
from commitlog_store.format.arrays import Int64Array
from commitlog_store.format.timer_log import MAGIC_DELETE, OwnCheck, TimerCheck
from commitlog_store.format.timer_messages import PRECISION_MS

# The holder of the log's files in which timer messages wait, in reports of retention.
TIMER_HOLDER = "timer messages that are not delivered yet"
# The physical offset of the queue's message at an offset; None where nothing is.
PlaceOf = Callable[[int], int | None]


class InTimerLog(NamedTuple):
    """Units of messages that wait. ``topic_hashes`` are Java's hash codes of the topics that the messages go to."""

    dues: Int64Array
    physical_offsets: Int64Array
    sizes: Int64Array
    topic_hashes: Int64Array


def agreeing_check(
    check: TimerCheck | None, frames: int, bounds: tuple[int, int], place_of: PlaceOf
) -> OwnCheck | None:
    """This package's part of the checkpoint, if queue and ledger agree with it.

    ``frames`` is the version of the last batch of deliveries, 0 without one; ``bounds`` are those of the queue.
    """
    own = None if check is None else check.own
    if own is None or own.frames > frames or own.queue_offset > bounds[1]:
        return None
    if own.last_physical < 0 or own.queue_offset <= bounds[0]:
        return own  # retention has removed the message before
    return own if place_of(own.queue_offset - 1) == own.last_physical else None


def judged_with(delivered: Delivered, own: OwnCheck | None) -> Delivered:
    """What is delivered, by ledger and checkpoint.

    A message that the timer log took in had not been passed by the key, or was delivered at once, in a frame that says
    so. Where the process was killed before it delivered anything after that, only the checkpoint knows.
    """
    if own is None:
        return delivered
    return Delivered(delivered.key, max(delivered.judged, own.last_physical + 1))


def units_that_wait(
    log: TimerLog, check: TimerCheck | None, own: OwnCheck | None, delivered: Delivered
) -> Iterator[InTimerLog]:
    """The units of the messages that wait. Without ``own``, those that a broker has not delivered as of ``check``.

    None of this package's that do not agree with queue or ledger: then the queue alone says what waits.
    """
    if own is not None:
        for _, units in log.blocks(own.start, own.end):
            dues, physical = dues_of(units), units["physical_offset"].astype(np.int64)
            waits = delivered.waiting(dues, physical) & (units["magic"] & MAGIC_DELETE == 0)
            sizes, hashes = units["message_size"].astype(np.int64), units["topic_hash"].astype(np.int64)
            yield InTimerLog(dues[waits], physical[waits], sizes[waits], hashes[waits])
    elif check is not None and check.own is None:
        for _, units in log.blocks(log.first):
            slots = (units["write_time"].astype(np.int64) + units["delay"]) // PRECISION_MS
            waits = (slots >= check.read_time // PRECISION_MS) & (units["magic"] & MAGIC_DELETE == 0)
            chosen = units[waits]
            yield InTimerLog(
                dues_of(chosen),
                chosen["physical_offset"].astype(np.int64),
                chosen["message_size"].astype(np.int64),
                chosen["topic_hash"].astype(np.int64),
            )


def next_offset(check: TimerCheck | None, own: OwnCheck | None, bounds: tuple[int, int]) -> int:
    """The offset of the first message of the queue that the timer log has no unit for."""
    from_broker = 0 if check is None or check.own is not None else check.queue_offset
    found = from_broker if own is None else own.queue_offset
    return min(max(found, bounds[0]), bounds[1])
