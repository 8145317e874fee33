"""Reads queues as record batches: checks, filters and decodes blocks, whatever source they come from (``log_blocks``).

``BlockReader`` reads a range of one queue, and says what cannot be read. ``read_together`` and ``SideBySide`` read
ranges of several queues of a topic: many short ranges at once, and long ones side by side.

To decode a block costs as much as some thousand messages, so 64 queues with ten messages each are read in a fraction
of the time when their units are put together first. Long ranges of queues that are interleaved in the log are read
block by block in its order: a block is then one stretch of the log, still in the processor's caches when the next step
of decoding asks for it. Queue by queue, each of them passes over all pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from commitlog_store.columnar.bodies import BODY_ADVICE, BODY_FIELDS, BodiesTooLarge, verify_crc
from commitlog_store.columnar.decode import record_batch
from commitlog_store.columnar.locate import QueuePlace, RecordBlock, RecordProblem, locate
from commitlog_store.errors import CommitLogError, CorruptRecord, FileMissing, OffsetOutOfRange, ReadFailed
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.format.arrays import Int32Array, Int64Array
from commitlog_store.paths import LIGHT_QUEUE_PREFIX
from commitlog_store.queue.log_blocks import Block, BlockLimits, BlockSource, Lost, QueueRange
from commitlog_store.queue.skipped import SkippedRange, Skips
from commitlog_store.queue.views import QueueView


class BlockDecoder:
    """Makes batches of blocks of one topic.

    With ``wanted``, of the messages that match: properties decide, and bodies of other messages are not touched.
    ``verify_crc`` compares the bodies of the messages that are given with their CRC, whatever columns are asked for.
    """

    def __init__(
        self,
        topic: str,
        queue_ids: Sequence[int] | None,
        columns: Sequence[str],
        limits: BlockLimits,
        *,
        verify_crc: bool,
        wanted: MessageFilter | None = None,
    ) -> None:
        """``queue_ids`` are by range; None for records that no queue leads to, which are of those that they name."""
        self._topic = topic
        self._queue_id: int | Int32Array = 0
        if queue_ids is not None:
            self._queue_id = queue_ids[0] if len(queue_ids) == 1 else np.array(queue_ids, np.int32)
        self._unplaced = queue_ids is None
        self._shared = topic.startswith(LIGHT_QUEUE_PREFIX)
        self._columns = columns
        self._limits = limits
        self._verify_crc = verify_crc
        self._wanted = None if wanted is None or wanted.is_all else wanted
        # Bytes of records a batch: fewer than the limit where bodies unpack to more than they take in the log.
        self._size = limits.size
        # Messages a batch: fewer than the limit after a damaged one, so that much damage costs no decoding in vain.
        self._rows = limits.rows

    def batches(
        self, block: Block, *, tolerant: bool = False
    ) -> Iterator[tuple[Block, pa.RecordBatch | RecordProblem | None]]:
        """A block's batches, each with the part of the block that it is made of; None for a part without a match.

        A part of one message has the problem for which it cannot be read. With ``tolerant``, those before it come
        first, and those after it follow.
        """
        at = 0
        while at < len(block):
            part = block.take(slice(at, at + self._count(block, at)))
            try:
                batch, _ = self.batch(part)
            except BodiesTooLarge as full:
                self._size = max(int(part.messages.sizes[: full.rows].sum()) * 3 // 4, 1)
                continue
            except RecordProblem as problem:
                if tolerant and problem.index:
                    self._rows = problem.index
                    continue
                self._rows = 1
                yield part.take(slice(problem.index, problem.index + 1)), problem
                at += 1
                continue
            self._rows = min(2 * self._rows, self._limits.rows)
            self._size = min(self._size + self._size // 32 + 1, self._limits.size)
            at += len(part)
            yield part, batch

    def batch(self, block: Block) -> tuple[pa.RecordBatch | None, slice | Int64Array]:
        """The batch of a whole block, None without a match, and which messages are in it.

        ``RecordProblem`` and ``BodiesTooLarge`` count all messages of the block.
        """
        records = self.located(block)
        if self._wanted is None:
            return self._columns_of(records), slice(None)
        kept = np.flatnonzero(self._wanted.matches(records.properties))
        if not len(kept):
            return None, kept
        try:
            return self._columns_of(records if len(kept) == len(records.sizes) else records.take(kept)), kept
        except BodiesTooLarge as full:
            raise BodiesTooLarge(int(kept[full.rows])) from None
        except RecordProblem as problem:
            problem.index = int(kept[problem.index])
            raise

    def located(self, block: Block) -> RecordBlock:
        """The records of a block, found and checked but for their bodies. ``RecordProblem``."""
        messages = block.messages
        queue_id = self._queue_id if isinstance(self._queue_id, int) else self._queue_id[messages.ranges]
        place = QueuePlace(
            topic=self._topic,
            queue_id=queue_id,
            queue_offsets=messages.queue_offsets,
            shared=self._shared or self._unplaced,
        )
        records = locate(
            block.data, block.starts, messages.sizes, messages.physical_offsets, place, body_limit=self._limits.size
        )
        if self._unplaced:
            own = replace(
                place, queue_id=records.field("queue_id"), queue_offsets=records.field("queue_offset"), shared=False
            )
            records = replace(records, place=own)
        return records

    def _count(self, block: Block, at: int) -> int:
        """The number of messages from ``at`` on that make a batch; at least one."""
        if self._rows == self._limits.rows and self._size == self._limits.size:
            return len(block) - at
        sizes = np.cumsum(block.messages.sizes[at : at + self._rows])
        return max(int(np.searchsorted(sizes, self._size, side="right")), 1)

    def _columns_of(self, records: RecordBlock) -> pa.RecordBatch:
        if self._verify_crc:
            verify_crc(records)
        return record_batch(records, self._columns)


class BlockReader:
    """Reads ranges of one queue.

    With ``skips``, damage does not end the reading: a message that cannot be read is skipped and reported there. With
    ``wanted``, only messages that match are given, as ``BlockDecoder`` says.
    """

    def __init__(
        self,
        blocks: BlockSource,
        queue: QueueView,
        limits: BlockLimits,
        *,
        verify_crc: bool,
        skips: Skips | None = None,
        wanted: MessageFilter | None = None,
    ) -> None:
        # The queue offset after the last message that was given or left out.
        self.position = -1
        self._wanted = wanted
        self._blocks = blocks
        self._queue = queue
        self._limits = limits
        self._verify_crc = verify_crc
        self._skips = skips

    def batches(self, start: int, stop: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The messages at queue offsets ``[start, stop)`` as batches of the named columns."""
        self.position = start
        queue, tolerant = self._queue, self._skips is not None
        decoder = BlockDecoder(
            queue.topic, [queue.queue_id], columns, self._limits, verify_crc=self._verify_crc, wanted=self._wanted
        )
        for block in self._blocks.of_queue(queue, start, stop, self._limits, wanted=self._wanted, tolerant=tolerant):
            if isinstance(block, Lost):
                self._lose(block)
                continue
            for part, batch in decoder.batches(block, tolerant=tolerant):
                if isinstance(batch, RecordProblem):
                    self._lose(self._damaged(part, batch))
                self.position = int(part.messages.queue_offsets[-1]) + 1
                if isinstance(batch, pa.RecordBatch):
                    self._report()
                    yield batch
            self.position = int(block.positions[0])
        self.position = stop
        self._report()

    def _report(self) -> None:
        if self._skips is not None:
            self._skips.flush()

    def _lose(self, lost: Lost) -> None:
        """Report messages as skipped, or raise what is wrong with them."""
        error = lost.error
        missing = isinstance(error, FileMissing | ReadFailed)
        expired = isinstance(error, OffsetOutOfRange) and error.start < error.min_offset
        if isinstance(error, CommitLogError) and (
            self._skips is None or expired or (missing and not self._skips.missing_files)
        ):
            raise error
        assert self._skips is not None
        self._skips.add(
            SkippedRange(
                topic=self._queue.topic,
                queue_id=self._queue.queue_id,
                start=lost.start,
                stop=lost.stop,
                physical_start=lost.physical[0],
                physical_stop=lost.physical[1],
                reason=str(error),
            )
        )

    def _damaged(self, block: Block, problem: RecordProblem) -> Lost:
        """A block of one message, whose record contradicts the format or its unit."""
        offset, physical = int(block.messages.queue_offsets[0]), int(block.messages.physical_offsets[0])
        path, position = self._blocks.place_of(physical)
        error = CorruptRecord(
            f"{problem.field} of the record of topic {self._queue.topic!r}, queue {self._queue.queue_id}, "
            f"offset {offset}",
            path=path,
            offset=position + problem.within,
            expected=problem.expected,
            found=problem.found,
            advice=BODY_ADVICE if problem.field in BODY_FIELDS else "",
        )
        error.__cause__ = problem
        size = int(block.messages.sizes[0])
        whole = int(block.starts[0]) + size <= len(block.data)
        return Lost(offset, offset + 1, error, (physical, physical + size) if whole else (-1, -1))


def read_together(
    blocks: BlockSource,
    ranges: Sequence[QueueRange],
    columns: Sequence[str],
    limits: BlockLimits,
    *,
    verify_crc: bool,
    wanted: MessageFilter | None,
) -> list[pa.RecordBatch] | None:
    """The messages of ranges ``(queue, start, stop)``, all of one topic, range by range, with the named columns.

    None where a file is missing, a unit or record is damaged, or bodies unpack to more than a batch holds.
    ``BlockReader``, one range after the other, then reads what can be read, and says what cannot.
    """
    topic, queue_ids = ranges[0][0].topic, [queue.queue_id for queue, _, _ in ranges]
    decoder = BlockDecoder(topic, queue_ids, columns, limits, verify_crc=verify_crc, wanted=wanted)
    batches: list[pa.RecordBatch] = []
    of_range: list[Int32Array] = []
    positions = [start for _, start, _ in ranges]
    try:
        for block in blocks.of_ranges(ranges, limits, wanted=wanted):
            positions = block.positions.tolist()
            if len(block):
                by_range = block.take(np.argsort(block.messages.ranges, kind="stable"))
                batch, kept = decoder.batch(by_range)
                if batch is not None:
                    batches.append(batch)
                    of_range.append(by_range.messages.ranges[kept])
    except (RecordProblem, BodiesTooLarge):
        return None
    if positions != [stop for _, _, stop in ranges]:
        return None
    return batches if len(batches) < 2 else _range_by_range(batches, of_range, len(ranges))


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
        queue_ids = [queue.queue_id for queue, _, _ in ranges]
        decoder = BlockDecoder(ranges[0][0].topic, queue_ids, columns, limits, verify_crc=verify_crc, wanted=wanted)
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
            for part, batch in decoder.batches(block):
                if isinstance(batch, RecordProblem):
                    return
                # Of equal ranges the last one counts, and the offsets of a range ascend.
                self._positions[part.messages.ranges] = part.messages.queue_offsets + 1
                if batch is not None:
                    yield batch
            self._positions = block.positions
