"""Reads ranges of several queues of a topic together: many short ranges at once, and long ones side by side.

To decode a block costs as much as some thousand messages, so 64 queues with ten messages each are read in a fraction
of the time when their units are put together first.

Long ranges of queues that are interleaved in the log are read block by block in its order: a block is then one stretch
of the log, still in the processor's caches when the next step of decoding asks for it. Queue by queue, each of them
passes over all pages.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from commitlog_store.columnar.bodies import BodiesTooLarge
from commitlog_store.columnar.bodies import verify_crc as check_crc
from commitlog_store.columnar.decode import record_batch
from commitlog_store.columnar.locate import QueuePlace, RecordBlock, RecordProblem, locate
from commitlog_store.errors import CommitLogError
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.format.arrays import Int32Array, Int64Array
from commitlog_store.format.consume_queue_unit import FILLER_SIZE
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.paths import LIGHT_QUEUE_PREFIX
from commitlog_store.queue.block_reader import BlockLimits, block_bytes
from commitlog_store.queue.views import QueueView

__all__ = ["SideBySide", "read_together"]

# Units in memory at a time, of all queues; more where few of them may lead to messages that are read.
_UNITS = 65_536
_UNITS_BY_TAGS = 262_144


class _InTheWay(Exception):
    """A file is missing, or a unit is damaged. It never leaves this module."""


class _Messages(NamedTuple):
    """Messages of several ranges; one value a message. ``ranges`` has the index of each one's range."""

    physical_offsets: Int64Array
    sizes: Int64Array
    ranges: Int32Array
    queue_offsets: Int64Array

    def take(self, rows: slice | Int64Array) -> _Messages:
        return _Messages(self.physical_offsets[rows], self.sizes[rows], self.ranges[rows], self.queue_offsets[rows])

    def place(self, queues: Sequence[QueueView]) -> QueuePlace:
        queue_ids = np.array([queue.queue_id for queue in queues], np.int32)[self.ranges]
        return QueuePlace(topic=queues[0].topic, queue_id=queue_ids, queue_offsets=self.queue_offsets)


def read_together(
    commit_log: CommitLog,
    ranges: Sequence[tuple[QueueView, int, int]],
    columns: Sequence[str],
    limits: BlockLimits,
    *,
    verify_crc: bool,
    wanted: MessageFilter | None,
) -> list[pa.RecordBatch] | None:
    """The messages of ranges ``(queue, start, stop)``, all of one topic, range by range, with the named columns.

    None if anything stands in the way: a missing file, a damaged unit or record, bodies that unpack to more than a
    batch holds. ``BlockReader``, one range after the other, then reads what can be read, and says what cannot.
    """
    if wanted is not None and wanted.is_all:
        wanted = None
    if not _can_be_joined(ranges):
        return None
    try:
        messages = _messages(ranges, wanted)
        batches: list[pa.RecordBatch] = []
        of_range: list[Int32Array] = []
        at = 0
        while at < len(messages.sizes):
            file = commit_log.find(int(messages.physical_offsets[at]))
            if file is None:
                raise _InTheWay
            stop = at + _block_length(messages, at, file, limits)
            stretch = messages.take(slice(at, stop))
            block = _locate(commit_log, file, [queue for queue, _, _ in ranges], stretch, limits.size)
            ranges_of_rows = np.sort(stretch.ranges)
            if wanted is not None:
                kept = np.flatnonzero(wanted.matches(block.properties))
                block, ranges_of_rows = block.take(kept), ranges_of_rows[kept]
            if verify_crc:
                check_crc(block)
            if len(ranges_of_rows):
                batches.append(record_batch(block, columns))
                of_range.append(ranges_of_rows)
            at = stop
        return batches if len(batches) < 2 else _range_by_range(batches, of_range, len(ranges))
    except (CommitLogError, RecordProblem, BodiesTooLarge, _InTheWay):
        return None


class SideBySide(Iterator[pa.RecordBatch]):
    """The batches of ranges ``(queue, start, stop)``, all of one topic, with the named columns.

    Within a queue the order is that of its messages. The batches end early where anything stands in the way: a missing
    file, a damaged unit or record. From ``positions`` on, ``BlockReader`` then reads what can be read, and says what
    cannot.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        ranges: Sequence[tuple[QueueView, int, int]],
        columns: Sequence[str],
        limits: BlockLimits,
        *,
        verify_crc: bool,
        wanted: MessageFilter | None,
    ) -> None:
        self._commit_log = commit_log
        self._ranges = ranges
        self._queues = [queue for queue, _, _ in ranges]
        self._positions = np.array([start for _, start, _ in ranges], np.int64)
        self._columns = columns
        self._limits = limits
        self._verify_crc = verify_crc
        self._wanted = None if wanted is None or wanted.is_all else wanted
        # Bytes of records a block: fewer than the limit where bodies unpack to more than they take in the log.
        self._size = limits.size
        self._batches = self._read() if _can_be_joined(ranges) else iter(())

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    @property
    def positions(self) -> list[int]:
        """By range, the queue offset after the last message that was given or left out."""
        positions: list[int] = self._positions.tolist()
        return positions

    def _read(self) -> Iterator[pa.RecordBatch]:
        by_tags = self._wanted is not None and self._wanted.looks_at_units
        rounds = -(-sum(stop - start for _, start, stop in self._ranges) // (_UNITS_BY_TAGS if by_tags else _UNITS))
        try:
            for step in range(1, rounds + 1):
                ends = [start + (stop - start) * step // rounds for _, start, stop in self._ranges]
                parts = list(zip(self._queues, self._positions.tolist(), ends, strict=True))
                messages = _messages(parts, self._wanted)
                at = yield from self._blocks(messages, last=step == rounds)
                self._positions = np.array(ends, np.int64)
                # Of those left for the next round, the first one of each range.
                self._positions[messages.ranges[at:][::-1]] = messages.queue_offsets[at:][::-1]
        except (CommitLogError, RecordProblem, _InTheWay):
            return

    def _blocks(self, messages: _Messages, *, last: bool) -> Generator[pa.RecordBatch, None, int]:
        """The batches of a round, and the number of its messages in them; only the ``last`` one reads a short block."""
        at = 0
        while at < len(messages.sizes):
            file = self._commit_log.find(int(messages.physical_offsets[at]))
            if file is None:
                raise _InTheWay
            count = _block_length(messages, at, file, BlockLimits(rows=self._limits.rows, size=self._size))
            if 0 < at == len(messages.sizes) - count and not last:
                break
            stretch = messages.take(slice(at, at + count))
            try:
                batch = self._decoded(file, stretch)
            except BodiesTooLarge as full:
                self._size = max(int(stretch.sizes[: full.rows].sum()) * 3 // 4, 1)
                continue
            self._size = min(self._size + self._size // 32 + 1, self._limits.size)
            # Of equal ranges the last one counts, and the offsets of a range ascend.
            self._positions[stretch.ranges] = stretch.queue_offsets + 1
            at += count
            if batch is not None:
                yield batch
        return at

    def _decoded(self, file: MappedFile, messages: _Messages) -> pa.RecordBatch | None:
        """A batch in the log's order; None without a row that matches."""
        data, positions = block_bytes(self._commit_log, file, messages.physical_offsets, messages.sizes)
        place, limit = messages.place(self._queues), self._limits.size
        block = locate(data, positions, messages.sizes, messages.physical_offsets, place, body_limit=limit)
        kept = None
        if self._wanted is not None:
            kept = np.flatnonzero(self._wanted.matches(block.properties))
            if not len(kept):
                return None
            block = block.take(kept)
        if self._verify_crc:
            check_crc(block)
        try:
            return record_batch(block, self._columns)
        except BodiesTooLarge as full:
            raise BodiesTooLarge(full.rows if kept is None else int(kept[full.rows])) from None


def _can_be_joined(ranges: Sequence[tuple[QueueView, int, int]]) -> bool:
    return not any(queue.topic.startswith(LIGHT_QUEUE_PREFIX) or queue.fillers_are_lost for queue, _, _ in ranges)


def _messages(ranges: Sequence[tuple[QueueView, int, int]], wanted: MessageFilter | None) -> _Messages:
    """Those that may match, in the log's order. Raises ``_InTheWay`` and the errors of ``QueueView.units``."""
    parts = [_Messages(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))]
    for index, (queue, start, stop) in enumerate(ranges):
        at, before = start, -1
        for units in queue.units(start, stop):
            sizes = units["size"].astype(np.int64)
            of_range = np.full(len(units), index, np.int32)
            every = _Messages(units["physical_offset"], sizes, of_range, np.arange(at, at + len(units)))
            chosen = sizes != FILLER_SIZE
            if wanted is not None:
                chosen &= wanted.may_match(units["tags_code"])
            parts.append(every if chosen.all() else every.take(np.flatnonzero(chosen)))
            places = parts[-1].physical_offsets
            if len(places) and (places[0] <= before or not (places[1:] > places[:-1]).all()):
                raise _InTheWay  # put into the log's order, messages of a queue would pass each other
            at, before = at + len(units), places[-1] if len(places) else before
    joined = _Messages(*map(np.concatenate, zip(*parts, strict=True)))
    return joined.take(np.argsort(joined.physical_offsets, kind="stable"))


def _block_length(messages: _Messages, at: int, file: MappedFile, limits: BlockLimits) -> int:
    """The number of messages from ``at`` on that make a block: in one file and within the limits; at least one."""
    starts = messages.physical_offsets[at : at + limits.rows]
    within_file = np.searchsorted(starts, file.base + file.size)
    within_span = np.searchsorted(starts, starts[0] + limits.span)
    within_size = np.searchsorted(np.cumsum(messages.sizes[at : at + limits.rows]), limits.size, side="right")
    return max(int(min(within_file, within_span, within_size)), 1)


def _locate(
    commit_log: CommitLog, file: MappedFile, queues: Sequence[QueueView], messages: _Messages, body_limit: int
) -> RecordBlock:
    """The messages of a stretch of the log, range by range."""
    data, positions = block_bytes(commit_log, file, messages.physical_offsets, messages.sizes)
    order = np.argsort(messages.ranges, kind="stable")
    messages = messages.take(order)
    place = messages.place(queues)
    return locate(data, positions[order], messages.sizes, messages.physical_offsets, place, body_limit=body_limit)


def _range_by_range(
    batches: Sequence[pa.RecordBatch], of_range: Sequence[Int32Array], count: int
) -> list[pa.RecordBatch]:
    """The rows of several stretches, each of which has them range by range, so that they are so in all."""
    bounds = [np.searchsorted(ranges, np.arange(count + 1)).tolist() for ranges in of_range]
    parts = [
        batch.slice(cuts[index], cuts[index + 1] - cuts[index])
        for index in range(count)
        for batch, cuts in zip(batches, bounds, strict=True)
        if cuts[index] < cuts[index + 1]
    ]
    combined: list[pa.RecordBatch] = pa.Table.from_batches(parts).combine_chunks().to_batches()
    return combined
