"""Reads ranges of several queues of a topic together: for many short ranges.

To decode a block costs as much as some thousand messages, so 64 queues with ten messages each are read in a fraction
of the time when their units are put together first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from commitlog.columnar.bodies import BodiesTooLarge
from commitlog.columnar.bodies import verify_crc as check_crc
from commitlog.columnar.decode import record_batch
from commitlog.columnar.locate import QueuePlace, RecordBlock, RecordProblem, locate
from commitlog.errors import CommitLogError
from commitlog.files.mapped_file import MappedFile
from commitlog.filter.message_filter import MessageFilter
from commitlog.format.arrays import Int32Array, Int64Array
from commitlog.format.consume_queue_unit import FILLER_SIZE, UNIT_DTYPE
from commitlog.log.commit_log import CommitLog
from commitlog.queue.block_reader import LIGHT_QUEUE_PREFIX, BlockLimits, block_bytes
from commitlog.queue.views import QueueView

__all__ = ["read_together"]


@dataclass(frozen=True)
class _Messages:
    """Messages of several ranges; one value a message. ``ranges`` has the index of each one's range."""

    physical_offsets: Int64Array
    sizes: Int64Array
    ranges: Int32Array
    queue_offsets: Int64Array

    def __getitem__(self, rows: slice | Int64Array) -> _Messages:
        return _Messages(self.physical_offsets[rows], self.sizes[rows], self.ranges[rows], self.queue_offsets[rows])


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
    if any(queue.topic.startswith(LIGHT_QUEUE_PREFIX) or queue.fillers_are_lost for queue, _, _ in ranges):
        return None
    try:
        messages = _messages(ranges, wanted)
        batches: list[pa.RecordBatch] = []
        of_range: list[Int32Array] = []
        at = 0
        while at < len(messages.sizes):
            file = commit_log.find(int(messages.physical_offsets[at]))
            if file is None:
                return None
            stop = at + _block_length(messages, at, file, limits)
            stretch = messages[at:stop]
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
    except (CommitLogError, RecordProblem, BodiesTooLarge):
        return None


def _messages(ranges: Sequence[tuple[QueueView, int, int]], wanted: MessageFilter | None) -> _Messages:
    """Those that may match, in the log's order. Raises the errors of ``QueueView.units``."""
    units_of, of_range, offsets = [np.empty(0, UNIT_DTYPE)], [np.empty(0, np.int32)], [np.empty(0, np.int64)]
    for index, (queue, start, stop) in enumerate(ranges):
        at = start
        for units in queue.units(start, stop):
            units_of.append(units)
            of_range.append(np.full(len(units), index, np.int32))
            offsets.append(np.arange(at, at + len(units)))
            at += len(units)
    units = np.concatenate(units_of)
    sizes = units["size"].astype(np.int64)
    every = _Messages(units["physical_offset"], sizes, np.concatenate(of_range), np.concatenate(offsets))
    chosen = sizes != FILLER_SIZE
    if wanted is not None:
        chosen &= wanted.may_match(units["tags_code"])
    order = np.argsort(every.physical_offsets, kind="stable")
    return every[order[chosen[order]]]


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
    messages = messages[order]
    queue_ids = np.array([queue.queue_id for queue in queues], np.int32)[messages.ranges]
    place = QueuePlace(topic=queues[0].topic, queue_id=queue_ids, queue_offsets=messages.queue_offsets)
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
