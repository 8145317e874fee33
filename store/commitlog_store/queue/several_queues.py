"""Reads ranges of several queues: many short ones together (``read_together``, ``read_in_turn``), and long ones side by
side (``SideBySide``).

To decode a block costs as much as some thousand messages, so 64 queues with ten messages each are read in a fraction
of the time when their units are put together first. Long ranges of queues that are interleaved in the log are read
block by block in its order: a block is then one stretch of the log, still in the processor's caches when the next step
of decoding asks for it. Queue by queue, each of them passes over all pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa

from commitlog_store.columnar.bodies import BodiesTooLarge
from commitlog_store.columnar.locate import RecordProblem
from commitlog_store.errors import FileChanged, NotFoundError, OffsetOutOfRange
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.format.arrays import Int32Array
from commitlog_store.paths import LIGHT_QUEUE_PREFIX
from commitlog_store.queue.block_reader import BlockDecoder
from commitlog_store.queue.log_blocks import Block, BlockLimits, BlockSource, QueueRange

# Units of ranges that are read in turn and decoded together: at first, so that the first rows come soon, and at most.
_FIRST_UNITS = 1_024
_MOST_UNITS = 65_536
# Bytes of their records, all of which are in memory until the last one is read.
_MOST_BYTES = 16 << 20
# Arrow copies chosen rows in one step below 2 GiB of values in a column; larger ones are copied slice by slice.
_MOST_TAKEN = 1 << 30


@dataclass(frozen=True)
class Together:
    """The messages of ranges, range by range, most often in one batch.

    ``rows`` is the number of rows of each range, ``size`` the bytes of the records that were read for them.
    """

    batches: list[pa.RecordBatch]
    rows: list[int]
    size: int

    def by_topic(self, ranges: Sequence[QueueRange]) -> Iterator[tuple[str, int, int]]:
        """The topics of the ranges, each with the number of its rows, and their bytes."""
        table = pa.Table.from_batches(self.batches) if self.batches else None
        at = 0
        for topic, group in groupby(zip(ranges, self.rows, strict=True), key=lambda one: one[0][0].topic):
            count = sum(rows for _, rows in group)
            if table is not None and count:
                yield topic, count, table.slice(at, count).nbytes
            at += count


class TooMuch(Exception):
    """The records of ranges take more bytes than are read together; the mean of those that were seen."""

    def __init__(self, record_size: int) -> None:
        super().__init__(record_size)
        self.record_size = record_size


def read_together(
    blocks: BlockSource,
    ranges: Sequence[QueueRange],
    columns: Sequence[str],
    limits: BlockLimits,
    *,
    verify_crc: bool,
    wanted: MessageFilter | None,
    most_bytes: int | None = None,
) -> Together | None:
    """The messages of ranges ``(queue, start, stop)`` of one topic or several, range by range, with the named columns.

    None where a file is missing, a unit or record is damaged, or bodies unpack to more than a batch holds.
    ``BlockReader``, one range after the other, then reads what can be read, and says what cannot. ``TooMuch`` for
    records of more than ``most_bytes``.
    """
    decoder = _decoder(ranges, columns, limits, verify_crc=verify_crc, wanted=wanted)
    batches: list[pa.RecordBatch] = []
    of_range: list[Int32Array] = []
    positions = np.array([start for _, start, _ in ranges], np.int64)
    size = rows = 0
    try:
        for block in blocks.of_ranges(ranges, limits, wanted=wanted):
            positions = block.positions
            if len(block):
                size, rows = size + int(block.messages.sizes.sum()), rows + len(block)
                if most_bytes is not None and size > most_bytes:
                    raise TooMuch(size // rows)
                by_range = block.take(np.argsort(block.messages.ranges, kind="stable"))
                batch, kept = decoder.batch(by_range)
                if batch is not None:
                    batches.append(batch)
                    of_range.append(by_range.messages.ranges[kept])
    except (RecordProblem, BodiesTooLarge):
        return None
    if positions.tolist() != [stop for _, _, stop in ranges]:
        return None
    counts = [np.bincount(one, minlength=len(ranges)) for one in of_range]
    rows_by_range: list[int] = sum(counts, np.zeros(len(ranges), np.int64)).tolist()
    if len(batches) > 1:
        batches = _range_by_range(batches, of_range, len(ranges))
    return Together(batches, rows_by_range, size)


def _decoder(
    ranges: Sequence[QueueRange],
    columns: Sequence[str],
    limits: BlockLimits,
    *,
    verify_crc: bool,
    wanted: MessageFilter | None,
) -> BlockDecoder:
    topics, queue_ids = [queue.topic for queue, _, _ in ranges], [queue.queue_id for queue, _, _ in ranges]
    several = any(topic != topics[0] for topic in topics)
    return BlockDecoder(
        topics if several else topics[0], queue_ids, columns, limits, verify_crc=verify_crc, wanted=wanted
    )


def _range_by_range(
    batches: Sequence[pa.RecordBatch], of_range: Sequence[Int32Array], count: int
) -> list[pa.RecordBatch]:
    """The rows of several stretches, each of which has them range by range, so that they are so in all."""
    if sum(batch.nbytes for batch in batches) < _MOST_TAKEN:
        order = np.argsort(np.concatenate(of_range), kind="stable")
        together = pa.Table.from_batches(batches).take(pa.array(order))
    else:
        bounds = [np.searchsorted(ranges, np.arange(count + 1)).tolist() for ranges in of_range]
        parts = [
            batch.slice(cuts[index], cuts[index + 1] - cuts[index])
            for index in range(count)
            for batch, cuts in zip(batches, bounds, strict=True)
            if cuts[index] < cuts[index + 1]
        ]
        together = pa.Table.from_batches(parts)
    combined: list[pa.RecordBatch] = together.combine_chunks().to_batches()
    return combined


def read_in_turn(
    blocks: BlockSource,
    ranges: Sequence[QueueRange],
    columns: Sequence[str],
    *,
    verify_crc: bool,
    wanted: MessageFilter | None,
) -> Iterator[tuple[Sequence[QueueRange], Together | None]]:
    """The messages of ranges, all of one before those of the next: neighbours with few messages are read together.

    None for one range that is to be read by itself: it has many messages, or one that cannot be read. Ranges that
    cannot be read together are halved, so that those beside such a range are still read together. ``RemoteFailed``.
    """
    limits = BlockLimits()
    at, most, unit_size = 0, _FIRST_UNITS, 1
    while at < len(ranges):
        some = _neighbours(ranges, at, most)
        units = sum(stop - start for _, start, stop in some)
        together: Together | None = None
        if len(some) == 1:
            unit_size -= unit_size // 8  # the next ones may be smaller
        else:
            try:
                together = read_together(
                    blocks, some, columns, limits, verify_crc=verify_crc, wanted=wanted, most_bytes=_MOST_BYTES
                )
            except TooMuch as much:
                unit_size = much.record_size
            except (NotFoundError, OffsetOutOfRange, FileChanged):
                pass  # a range that is read by itself says why
            if together is None:
                most = min(units // 2, _MOST_BYTES // unit_size)
                continue
            unit_size = max(together.size // max(units, 1), 1)
        yield some, together
        at += len(some)
        most = min(max(2 * most, 1), _MOST_UNITS, _MOST_BYTES // unit_size)


def _neighbours(ranges: Sequence[QueueRange], at: int, most: int) -> Sequence[QueueRange]:
    """The ranges from one on that are read together: of at most so many units, but one range at least."""
    units, stop = 0, at
    while stop < len(ranges):
        queue, first, after = ranges[stop]
        units += after - first
        # Blocks of several ranges have none of these queues.
        if units > most or queue.fillers_are_lost or queue.topic.startswith(LIGHT_QUEUE_PREFIX):
            break
        stop += 1
    return ranges[at : max(stop, at + 1)]


class SideBySide(Iterator[pa.RecordBatch]):
    """The batches of ranges ``(queue, start, stop)``, all of one topic, with the named columns.

    Within a queue the order is that of its messages. The batches end early where a file is missing, or a unit or record
    is damaged. From ``positions`` on, ``BlockReader`` then reads what can be read, and says what cannot.
    """

    def __init__(
        self,
        blocks: BlockSource,
        ranges: Sequence[QueueRange],
        columns: Sequence[str],
        limits: BlockLimits,
        *,
        verify_crc: bool,
        wanted: MessageFilter | None,
    ) -> None:
        self._positions = np.array([start for _, start, _ in ranges], np.int64)
        decoder = _decoder(ranges, columns, limits, verify_crc=verify_crc, wanted=wanted)
        self._batches = self._read(blocks.of_ranges(ranges, limits, wanted=wanted), decoder)

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    @property
    def positions(self) -> list[int]:
        """By range, the queue offset after the last message that was given or left out."""
        positions: list[int] = self._positions.tolist()
        return positions

    def _read(self, blocks: Iterator[Block], decoder: BlockDecoder) -> Iterator[pa.RecordBatch]:
        for block in blocks:
            for part, batch in decoder.batches(block, tolerant=True):
                if isinstance(batch, RecordProblem):
                    return
                # Of equal ranges the last one counts, and the offsets of a range ascend.
                self._positions[part.messages.ranges] = part.messages.queue_offsets + 1
                if batch is not None:
                    yield batch
            self._positions = block.positions
