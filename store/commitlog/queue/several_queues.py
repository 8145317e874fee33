"""Reads ranges of several queues of a topic together, in the log's order: for many short ranges.

To decode a block costs as much as some thousand messages, so 64 queues with ten messages each are read in a fraction
of the time when their units are put together first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from commitlog.columnar.bodies import BodiesTooLarge, verify_crc
from commitlog.columnar.decode import record_batch
from commitlog.columnar.locate import QueuePlace, RecordProblem, locate
from commitlog.errors import CommitLogError
from commitlog.files.mapped_file import MappedFile
from commitlog.format.arrays import Int32Array, Int64Array
from commitlog.format.consume_queue_unit import FILLER_SIZE, UNIT_DTYPE
from commitlog.log.commit_log import CommitLog
from commitlog.queue.block_reader import LIGHT_QUEUE_PREFIX, BlockLimits, block_bytes
from commitlog.queue.views import QueueView

__all__ = ["read_together"]


@dataclass(frozen=True)
class _Messages:
    """Messages of several queues in the log's order; one value a message."""

    physical_offsets: Int64Array
    sizes: Int64Array
    queue_ids: Int32Array
    queue_offsets: Int64Array

    def __getitem__(self, rows: slice | Int64Array) -> _Messages:
        return _Messages(self.physical_offsets[rows], self.sizes[rows], self.queue_ids[rows], self.queue_offsets[rows])


def read_together(
    commit_log: CommitLog,
    ranges: Sequence[tuple[QueueView, int, int]],
    columns: Sequence[str],
    limits: BlockLimits,
    *,
    crc: bool,
) -> list[pa.RecordBatch] | None:
    """The messages of ``(queue, start, stop)``, all of one topic, as batches of the named columns.

    None if anything stands in the way: a missing file, a damaged unit or record, bodies that unpack to more than a
    batch holds. ``BlockReader``, one range after the other, then reads what can be read, and says what cannot.
    """
    if any(queue.topic.startswith(LIGHT_QUEUE_PREFIX) or queue.fillers_are_lost for queue, _, _ in ranges):
        return None
    try:
        messages = _messages(ranges)
        batches = []
        at = 0
        while at < len(messages.sizes):
            file = commit_log.find(int(messages.physical_offsets[at]))
            if file is None:
                return None
            stop = at + _block_length(messages, at, file, limits)
            batches.append(_decode(commit_log, file, ranges[0][0].topic, messages[at:stop], columns, limits, crc=crc))
            at = stop
        return batches
    except (CommitLogError, RecordProblem, BodiesTooLarge):
        return None


def _messages(ranges: Sequence[tuple[QueueView, int, int]]) -> _Messages:
    """Raises the errors of ``QueueView.units``."""
    units_of, queue_ids, offsets = [np.empty(0, UNIT_DTYPE)], [np.empty(0, np.int32)], [np.empty(0, np.int64)]
    for queue, start, stop in ranges:
        at = start
        for units in queue.units(start, stop):
            units_of.append(units)
            queue_ids.append(np.full(len(units), queue.queue_id, np.int32))
            offsets.append(np.arange(at, at + len(units)))
            at += len(units)
    units = np.concatenate(units_of)
    sizes = units["size"].astype(np.int64)
    every = _Messages(units["physical_offset"], sizes, np.concatenate(queue_ids), np.concatenate(offsets))
    order = np.argsort(every.physical_offsets, kind="stable")
    return every[order[sizes[order] != FILLER_SIZE]]


def _block_length(messages: _Messages, at: int, file: MappedFile, limits: BlockLimits) -> int:
    """The number of messages from ``at`` on that make a block: in one file and within the limits; at least one."""
    starts = messages.physical_offsets[at : at + limits.rows]
    within_file = np.searchsorted(starts, file.base + file.size)
    within_span = np.searchsorted(starts, starts[0] + limits.span)
    within_size = np.searchsorted(np.cumsum(messages.sizes[at : at + limits.rows]), limits.size, side="right")
    return max(int(min(within_file, within_span, within_size)), 1)


def _decode(
    commit_log: CommitLog,
    file: MappedFile,
    topic: str,
    messages: _Messages,
    columns: Sequence[str],
    limits: BlockLimits,
    *,
    crc: bool,
) -> pa.RecordBatch:
    physical, sizes = messages.physical_offsets, messages.sizes
    data, positions = block_bytes(commit_log, file, physical, sizes)
    place = QueuePlace(topic=topic, queue_id=messages.queue_ids, queue_offsets=messages.queue_offsets)
    block = locate(data, positions, sizes, physical, place, body_limit=limits.size)
    if crc:
        verify_crc(block)
    return record_batch(block, columns)
