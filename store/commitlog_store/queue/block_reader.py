"""Reads a queue as record batches: checks, filters and decodes blocks, whatever source they come from (``log_blocks``).

``BlockReader`` reads a range of one queue, and says what cannot be read. ``several_queues`` reads several.
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
from commitlog_store.queue.log_blocks import Block, BlockLimits, BlockSource, Lost
from commitlog_store.queue.skipped import SkippedRange, Skips
from commitlog_store.queue.views import QueueView


class BlockDecoder:
    """Makes batches of blocks of one topic or several.

    With ``wanted``, of the messages that match: properties decide, and bodies of other messages are not touched.
    ``verify_crc`` compares the bodies of the messages that are given with their CRC, whatever columns are asked for.
    """

    def __init__(
        self,
        topic: str | Sequence[str],
        queue_ids: Sequence[int] | None,
        columns: Sequence[str],
        limits: BlockLimits,
        *,
        verify_crc: bool,
        wanted: MessageFilter | None = None,
    ) -> None:
        """``queue_ids`` are by range, and so are several topics; None for records that no queue leads to, which are of
        the queues that they name."""
        self._topic = topic if isinstance(topic, str) else pa.array(topic, pa.string())
        self._queue_id: int | Int32Array = 0
        if queue_ids is not None:
            self._queue_id = queue_ids[0] if len(queue_ids) == 1 else np.array(queue_ids, np.int32)
        self._unplaced = queue_ids is None
        self._shared = isinstance(topic, str) and topic.startswith(LIGHT_QUEUE_PREFIX)
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
        topic = self._topic if isinstance(self._topic, str) else self._topic.take(pa.array(messages.ranges))
        place = QueuePlace(
            topic=topic,
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
        for block in self._blocks.of_queue((queue, start, stop), self._limits, wanted=self._wanted, tolerant=tolerant):
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
        named = self._blocks.error_of_damaged_part(error, (self._queue.topic, self._queue.queue_id), offset)
        return Lost(offset, offset + 1, named, (physical, physical + size) if whole else (-1, -1))
