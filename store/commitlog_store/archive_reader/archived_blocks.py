"""ArchivedBlocks: blocks of records of an archive, fetched ahead of the reader, where ``LogBlocks`` has local ones.

The same units lead to the same records, and the same code cuts them into blocks. What differs: while a block is being
decoded, the requests for what follows it are under way. A reading is announced in steps of some thousand messages, one
step ahead of the one that is read: first the units of a step, and once they have come, the records that they lead to.
Records whose tags are not wanted are not announced, and so not fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from commitlog_store.archive_reader.archived_log import ArchivedFile, ArchivedLog
from commitlog_store.archive_reader.archived_queues import expect_units
from commitlog_store.errors import CommitLogError
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.format.arrays import Int64Array
from commitlog_store.object_storage.pages import ObjectPages, ReadAhead
from commitlog_store.paths import LIGHT_QUEUE_PREFIX
from commitlog_store.queue.log_blocks import (
    Block,
    BlockLimits,
    LogBlocks,
    Lost,
    Messages,
    QueueRange,
    UnitFilter,
    places_of,
)
from commitlog_store.queue.views import QueueView

# Messages of one step, of all ranges.
_STEP = 65_536


class ArchivedBlocks(LogBlocks):
    """Blocks of one archive."""

    def __init__(self, log: ArchivedLog, pages: ObjectPages) -> None:
        super().__init__(log)
        self._log = log
        self._pages = pages

    def of_queue(
        self, part: QueueRange, limits: BlockLimits, *, wanted: UnitFilter | None = None, tolerant: bool = False
    ) -> Iterator[Block | Lost]:
        """See ``LogBlocks.of_queue``. ``ArchiveFailed``, ``ArchiveDamaged``."""
        ahead = self._pages.ahead()
        try:
            steps = _Steps(self._log, ahead, [part], wanted)
            steps.reach(0)
            for piece in super().of_queue(part, limits, wanted=wanted, tolerant=tolerant):
                yield piece
                steps.reach((piece.stop if isinstance(piece, Lost) else int(piece.positions[0])) - part[1])
        finally:
            ahead.close()

    def of_ranges(
        self, ranges: Sequence[QueueRange], limits: BlockLimits, *, wanted: UnitFilter | None = None
    ) -> Iterator[Block]:
        """See ``LogBlocks.of_ranges``. ``ArchiveFailed``, ``ArchiveDamaged``."""
        ahead = self._pages.ahead()
        try:
            steps = _Steps(self._log, ahead, ranges, wanted)
            before = sum(start for _, start, _ in ranges)
            steps.reach(0)
            for block in super().of_ranges(ranges, limits, wanted=wanted):
                yield block
                steps.reach(int(block.positions.sum()) - before)
        finally:
            ahead.close()

    def at_places(self, physical_offsets: Int64Array, sizes: Int64Array | None, limits: BlockLimits) -> Iterator[Block]:
        """See ``LogBlocks.at_places``. ``ArchiveFailed``, ``ArchiveDamaged``."""
        ahead = self._pages.ahead()
        try:
            self._log.expect(ahead, physical_offsets, np.ones_like(physical_offsets) if sizes is None else sizes)
            yield from super().at_places(physical_offsets, sizes, limits)
        finally:
            ahead.close()

    def _place_before(self, queue: QueueView, offset: int) -> tuple[str, int, int]:
        low, _ = queue.bounds()
        unit = queue.unit(offset - 1) if offset > low else None
        before = self._log.min_offset if unit is None else unit[0]
        return (*self.place_of(before), before)

    def _reads_together(self, queue: QueueView) -> bool:
        return not queue.topic.startswith(LIGHT_QUEUE_PREFIX)

    def _block(
        self,
        file: MappedFile,
        messages: Messages,
        positions: Int64Array,
        limits: BlockLimits,  # noqa: ARG002 - what comes from an object is in memory
    ) -> Block:
        assert isinstance(file, ArchivedFile)
        data, starts = file.stretches(messages.physical_offsets - file.base, messages.sizes)
        return Block(data, starts, messages, positions)


class _Steps:
    """Announces what a reading of ranges will read, as far as it has come. All ranges advance side by side."""

    def __init__(
        self, log: ArchivedLog, ahead: ReadAhead, ranges: Sequence[QueueRange], wanted: UnitFilter | None
    ) -> None:
        self._log = log
        self._ahead = ahead
        self._ranges = ranges
        self._wanted = wanted
        self._total = sum(stop - start for _, start, stop in ranges)
        self._count = max(-(-self._total // _STEP), 1)
        self._next = 0
        self._announce_units(0)

    def reach(self, done: int) -> None:
        """``done`` messages have been read: the step of the next one is announced, and the step after it."""
        while (
            self._next < self._count and self._next * self._total <= (done + self._total // self._count) * self._count
        ):
            self._announce(self._next)
            self._next += 1

    def _announce(self, step: int) -> None:
        self._announce_units(step + 1)
        try:
            starts, sizes = places_of(self._parts(step), self._wanted)
        except CommitLogError:
            return  # the read of it raises the error
        self._log.expect(self._ahead, starts, sizes)

    def _announce_units(self, step: int) -> None:
        if step < self._count:
            expect_units(self._ahead, self._parts(step))

    def _parts(self, step: int) -> list[QueueRange]:
        return [
            (queue, start + (stop - start) * step // self._count, start + (stop - start) * (step + 1) // self._count)
            for queue, start, stop in self._ranges
        ]
