"""Fence: the identity of a message, by which a reader checks that a position still names the same one."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from commitlog_store.errors import FileMissing, OffsetOutOfRange
from commitlog_store.format.checksum import crc32
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.queue.views import QueueView


class Fence(NamedTuple):
    """Identity of a message: differs for another one that got its queue offset after the store lost its tail.

    ``crc`` is the CRC-32 of the record's first 88 bytes, its BODYCRC and store time among them.
    """

    physical_offset: int
    crc: int


def fence_at(commit_log: CommitLog, physical_offset: int, *, tolerant: bool = False) -> Fence | None:
    """The fence of the record at a physical offset; None outside the log and where nothing was written.

    With ``tolerant``, also None for a damaged record, whose header cannot identify it.
    """
    if tolerant and commit_log.whole_record(physical_offset) is None:
        return None
    head = commit_log.header(physical_offset)
    return None if head is None else Fence(physical_offset, crc32(head))


def fence_of(commit_log: CommitLog, queue: QueueView, offset: int, *, tolerant: bool) -> Fence | None:
    """The fence of the message at an offset of a queue whose bounds were read; None if it does not exist (any more).

    With ``tolerant``, also None for a damaged record. ``CorruptConsumeQueue`` without.
    """
    # A queue that was not read yet has -1 as its last offset; a file's bytes are counted in 64 bits.
    if not 0 <= offset <= MAX_LONG // UNIT_SIZE:
        return None
    last_offset, place = queue.last_unit()
    if offset != last_offset:
        unit = queue.unit(offset)
        if unit is None:
            if not tolerant:
                refuse_damaged_unit(queue, offset)
            return None
        place = unit[0]
    return fence_at(commit_log, place, tolerant=tolerant)


def refuse_damaged_unit(queue: QueueView, offset: int) -> None:
    """``CorruptConsumeQueue`` for a unit within the queue's bounds that was zeroed."""
    low, high = queue.bounds()
    if low <= offset < high:
        with contextlib.suppress(FileMissing, OffsetOutOfRange):
            next(queue.units(offset, offset + 1), None)
