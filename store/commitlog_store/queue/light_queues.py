"""Light queues (LMQ): places of the further units that RocketMQ's multi-dispatch gives a message.

Their offsets need not be contiguous: RocketMQ counts them when it appends (``enableLmq``) and makes units when it
dispatches (``enableMultiDispatch``), and starts its count again from the units. A gap or a second use of an offset is
not a fault of the message. RocketMQ, and so this store, treats the unit by the message's offset:

==============================  ========================================================================================
the message's offset            the unit
==============================  ========================================================================================
any, in a queue without units   goes there; fillers before it
below the queue's end           is skipped; 0 is appended all the same
the queue's end, or above       is appended at the end, whatever the message's offset
more than any queue can have    is skipped
==============================  ========================================================================================

A message whose unit exists already gets no second one. Fillers in a gap would cost messages: RocketMQ's reader takes
one for a message that was deleted, and skips the rest that it wanted from the same CommitLog file.

So a unit's place follows from those before it, and an existing queue is the only record of them once the log's head
has expired. A queue that gets messages of its own too gets no light units: the two kinds are counted apart.

Source: RocketMQ ``store/ConsumeQueue.java`` (``multiDispatchLmqQueue``, ``putMessagePositionInfo``),
``store/LmqDispatch.java``, ``store/DefaultMessageStore.java`` (``getMessage``).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from commitlog_store.format.arrays import Int64Array
from commitlog_store.format.consume_queue_unit import FILLER_SIZE, Units
from commitlog_store.queue.consume_queue_writer import ConsumeQueueWriter

# A queue may begin there and still have room. RocketMQ's own byte positions overflow soon after.
_HIGHEST_OFFSET = 1 << 58


def places_of(units: Units) -> Int64Array:
    """The physical offsets of units, -1 for units without a message."""
    sizes = units["size"]
    return np.where((sizes > 0) & (sizes != FILLER_SIZE), units["physical_offset"].astype(np.int64), np.int64(-1))


def taken_rows(offsets: Int64Array, units: Units, end: int, last_place: int, there: Int64Array) -> list[int]:
    """Which of the light units a queue that ends at ``end`` takes, one after another from there on.

    ``last_place`` is the physical offset of the queue's last unit, -1 for none. ``there`` are the places of the
    existing units from ``end`` on.
    """
    rows: list[int] = []
    at, following = end, there.tolist()
    for row, (offset, place) in enumerate(zip(offsets.tolist(), units["physical_offset"].tolist(), strict=True)):
        stands = at - end < len(following) and following[at - end] == place
        if place > last_place and (stands or offset == 0 or at <= offset <= _HIGHEST_OFFSET):
            rows.append(row)
            at, last_place = at + 1, place
    return rows


def first_light_offset(offsets: Int64Array) -> int | None:
    """The first offset of a queue without units; None when no file can have that place."""
    possible = offsets[offsets <= _HIGHEST_OFFSET]
    return int(possible[0]) if len(possible) else None


def append_light(writer: ConsumeQueueWriter, offsets: Int64Array, units: Units) -> None:
    """Dispatch: add light units. ``StoreIOError``."""
    if writer.has_own:
        return
    end = writer.next_offset
    if end is None:
        end = writer.written_end
    if end <= writer.first_offset or writer.pads:
        begin = first_light_offset(offsets)
        if begin is None:
            return
        if begin != end:
            writer.delete()
        end = begin
    if not writer.is_empty:
        writer.continue_at(end)
    rows = taken_rows(offsets, units, end, _last_place(writer.unit, end), np.zeros(0, np.int64))
    writer.append(np.arange(end, end + len(rows)), units[rows], light=True)


def rewrite_light(
    writer: ConsumeQueueWriter, offsets: Int64Array, units: Units, *, from_start: bool, write_back: bool
) -> bool:
    """Recovery: ``ConsumeQueueWriter.rewrite`` for light units. The queue's content decides their places.

    False too when the first of them leaves a gap and does not exist: units may be missing before it, or not.
    """
    if writer.has_own:
        return True
    end = writer.next_offset
    begin = first_light_offset(offsets)
    stands = False
    if end is None:
        if not from_start and lacks_light_units(writer, offsets, units):
            return False
        end, stands = _where_it_stands(writer, units)
    if end <= writer.first_offset and not stands and begin != end:
        if begin is None:
            return True
        writer.delete()
        end = begin
    there = places_of(writer.read(end, end + len(units)))
    rows = taken_rows(offsets, units, end, _last_place(writer.unit, end), there)
    places = np.arange(end, end + len(rows))
    return writer.rewrite(places, units[rows], from_start=from_start, write_back=write_back, light=True)


def lacks_light_units(writer: ConsumeQueueWriter, offsets: Int64Array, units: Units) -> bool:
    """Whether the first of some light units leaves a gap before it and does not exist: others may be missing."""
    end, stands = _where_it_stands(writer, units)
    begin = first_light_offset(offsets)
    return not stands and begin is not None and begin > end


def _where_it_stands(writer: ConsumeQueueWriter, units: Units) -> tuple[int, bool]:
    """The offset after the units of earlier messages, and whether the first of these stands there."""
    first = int(units["physical_offset"][0])
    end = writer.end_before(first)
    return end, first in places_of(writer.read(end, end + 1))


def _last_place(unit: Callable[[int], tuple[int, int] | None], end: int) -> int:
    """The physical offset of the last unit before ``end``; -1 without one."""
    last = unit(end - 1) if end else None
    return -1 if last is None or last[1] == FILLER_SIZE else last[0]
