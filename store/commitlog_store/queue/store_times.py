"""Offsets by store time: bisection over a queue's messages, around those that cannot be read.

Store times rise within a queue, so a message that cannot be read hides its time, and no other message. The search takes
the next one that can be read in its place. Where the answer lies beside messages that cannot be read, it is known only
if these are skipped; else the error that reading them raises is the answer: it names the file.
"""

from __future__ import annotations

import numpy as np

from commitlog_store.errors import CorruptConsumeQueue, CorruptRecord, FileMissing, MessageNotFound
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.format.consume_queue_unit import FILLER_SIZE
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.record_search import first_good_record
from commitlog_store.queue.block_reader import BlockReader
from commitlog_store.queue.fence import refuse_damaged_unit
from commitlog_store.queue.log_blocks import BlockLimits, LogBlocks
from commitlog_store.queue.skipped import SkippedRange, Skips
from commitlog_store.queue.views import QueueView, out_of_range


class StoreTimes:
    """The store times of one queue's messages. With ``whole``, a record with a wrong CRC counts as one that cannot be
    read.

    Each method raises ``OffsetOutOfRange`` or ``MessageNotFound`` when retention removes messages during it.
    """

    def __init__(self, commit_log: CommitLog, queue: QueueView, *, whole: bool) -> None:
        self._commit_log = commit_log
        self._queue = queue
        self._whole = whole
        # Stretches of the log without a whole record, as they were found: physical offsets, half-open.
        self._bare: list[tuple[int, int]] = []

    def first_from(self, wanted_ms: int, start: int, stop: int, *, after: bool) -> tuple[int, int]:
        """The first message in ``[start, stop)`` stored at or after a time (with ``after``: after it), and the first
        offset at which it may be: between the two, messages cannot be read. ``stop`` when all are older.

        Returned as ``(first offset, message)``.
        """
        low, high = start, stop
        while low < high:
            middle = (low + high) // 2
            at, stored = self._next(middle, high)
            if at < high and (stored < wanted_ms or (after and stored == wanted_ms)):
                low = at + 1
            else:
                high = middle
        return low, self._next(low, stop)[0]

    def refuse_or_skip(self, start: int, stop: int, skips: Skips | None, wanted_ms: int, store: str) -> None:
        """Report the messages of ``[start, stop)``, which cannot be read, as skipped, or raise what is wrong with them.

        ``store`` is the store's path as a command of a shell takes it, for the advice.
        """
        try:
            if skips is None or not skips.missing_files:
                self.refuse(start, stop, skips)
            else:
                self.skip(start, stop, skips)
        except (FileMissing, CorruptRecord, CorruptConsumeQueue) as error:
            raise error.advised(
                f"The message that the time {wanted_ms} ms leads to may be among the offsets [{start}, {stop}), "
                f"which cannot be read: 'commitlog doctor {store}' says what is lost. To take the "
                "next message that can be read: on_damage='skip', or --on-damage skip."
            ) from error.__cause__

    def refuse(self, start: int, stop: int, skips: Skips | None) -> None:
        """Raise the error that reading the messages of ``[start, stop)`` raises; return when none is lost."""
        blocks = BlockReader(LogBlocks(self._commit_log), self._queue, BlockLimits(), verify_crc=False, skips=skips)
        for _ in blocks.batches(start, stop, ("queueOffset",)):
            pass

    def skip(self, start: int, stop: int, skips: Skips) -> None:
        """Report the messages of ``[start, stop)``, none of which can be read, as skipped: for the first one's reason.

        Reading each of them would take long where they are many.
        """
        try:
            self.refuse(start, stop, None)
        except (FileMissing, CorruptRecord, CorruptConsumeQueue) as error:
            first, last = self._queue.unit(start) or (-1, 0), self._queue.unit(stop - 1) or (-1, 0)
            known = first[0] >= 0 and 0 < sum(last) <= self._commit_log.bounds()[1]
            skips.add(
                SkippedRange(
                    topic=self._queue.topic,
                    queue_id=self._queue.queue_id,
                    start=start,
                    stop=stop,
                    physical_start=first[0] if known else -1,
                    physical_stop=sum(last) if known else -1,
                    reason=str(error),
                )
            )
            skips.flush()

    def _next(self, start: int, stop: int) -> tuple[int, int]:
        """Queue offset and store time of the first message of ``[start, stop)`` that can be read; ``stop`` and a time
        after all others without one."""
        at = start
        while at < stop:
            unit = self._queue.unit(at)
            if unit is None:
                at = self._next_unit(at, stop)
                continue
            stored = self._stored(at, *unit)
            if stored is not None:
                return at, stored
            at = self._after(at, unit[0], stop)
        return stop, MAX_LONG

    def _stored(self, at: int, place: int, size: int) -> int | None:
        """The store time of the message that a unit leads to; None if it cannot be read."""
        try:
            record = self._commit_log.read_record(place) if self._whole else self._commit_log.read_without_body(place)
        except CorruptRecord:
            return None
        except MessageNotFound:
            self._commit_log.refresh()
            if place < self._commit_log.min_offset and at < self._queue.bounds()[0]:
                raise  # retention has removed it just now
            return None
        return record.store_timestamp if record.total_size == size else None

    def _next_unit(self, at: int, stop: int) -> int:
        """The offset of the first unit of a message after ``at``, whose unit is a filler, damaged or in no file."""
        if self._queue.fillers_are_lost:
            return self._queue.first_offset_from(0, at + 1, stop)
        begin = at
        try:
            for units in self._queue.units(at, stop, check=False):
                possible = np.flatnonzero(
                    (units["size"] > 0) & (units["size"] != FILLER_SIZE) & (units["physical_offset"] >= 0)
                )
                if len(possible):
                    return begin + int(possible[0])
                begin += len(units)
        except FileMissing as missing:
            return min(max(missing.stop, at + 1), stop)
        return stop

    def _after(self, at: int, place: int, stop: int) -> int:
        """The offset of the next message that may be readable, after one at ``place`` of the log that is not."""
        following = self._queue.unit(at + 1) if at + 1 < stop else None
        if following is not None and following[0] <= place:
            return at + 1  # the unit is damaged: its place says nothing about those after it
        file = self._commit_log.find(place)
        if file is not None:
            return self._queue.first_offset_from(self._next_record(file, place + 1), at + 1, stop)
        if (missing := self._commit_log.missing_file_after(place)) is not None:
            return self._queue.first_offset_from(missing[1], at + 1, stop)
        last = self._queue.unit(stop - 1)
        end = self._commit_log.bounds()[1]
        # Where the log has lost its newest files, no unit from here on leads to a message. Else this one is damaged.
        return stop if place >= end and last is not None and last[0] >= end else at + 1

    def _next_record(self, file: MappedFile, start: int) -> int:
        """The physical offset of the first whole record of a file from ``start`` on, or the file's end."""
        end = file.base + file.size
        for first, last in self._bare:
            if first <= start < last:
                return last
        known = min((one for one in self._bare if start < one[0] <= end), default=(end, end))
        found = first_good_record(file, start, known[0], end)
        last = known[1] if found is None else found.physical_offset
        self._bare.append((start, last))
        return last


def stored_at(commit_log: CommitLog, queue: QueueView, offset: int, *, tolerant: bool) -> int:
    """The store time (ms) of a message within the queue's bounds. ``OffsetOutOfRange`` where no message is, and the
    errors of reading it; ``CorruptConsumeQueue`` for a damaged unit unless ``tolerant``."""
    unit = queue.unit(offset)
    if unit is None:
        if not tolerant:
            refuse_damaged_unit(queue, offset)
        advice = f"Offset {offset} has no message: it is a filler, or retention removed it just now."
        raise out_of_range(queue, offset, offset + 1, queue.bounds(), advice)
    try:
        return commit_log.read_without_body(unit[0]).store_timestamp
    except MessageNotFound:
        StoreTimes(commit_log, queue, whole=False).refuse(offset, offset + 1, None)  # by the file's name
        raise
