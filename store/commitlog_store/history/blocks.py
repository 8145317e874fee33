"""HistoryBlocks: blocks of records from the archive, and from the live store after them.

What the live store no longer has when it is read is looked for in the archive, at the offset that was reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from commitlog_store.errors import CommitLogError, CorruptStoreError, FileMissing, OffsetOutOfRange
from commitlog_store.format.arrays import Int32Array, Int64Array
from commitlog_store.history.sides import GONE, BothSides, Part, QueueKey
from commitlog_store.queue.log_blocks import Block, BlockLimits, BlockSource, Lost, QueueRange, UnitFilter
from commitlog_store.reader import StoreReader

# So often a reading of several queues begins again because retention moved their border, one after the other.
_MOST_MOVES = 10


class HistoryBlocks:
    """A ``BlockSource`` over both readers."""

    def __init__(self, both: BothSides) -> None:
        self._both = both
        self._last: BlockSource | None = None

    def of_queue(
        self, part: QueueRange, limits: BlockLimits, *, wanted: UnitFilter | None = None, tolerant: bool = False
    ) -> Iterator[Block | Lost]:
        """See ``LogBlocks.of_queue``. A part that neither has is lost with a ``HistoryGap``."""
        queue, at, stop = part
        key, bridged = (queue.topic, queue.queue_id), 0
        while at < stop:
            sides = self._both.of_one(*key)
            side = self._both.parts(sides, at, stop, bridged=bridged)[0]
            if side.reader is None:
                yield Lost(at, side.stop, self._both.gap(key, sides, side))
                at = side.stop
                continue
            try:
                for piece in self._pieces(side, key, limits, wanted, tolerant=tolerant):
                    archived_to = self._archived_to(side, key, piece)
                    if isinstance(piece, Lost) and archived_to > piece.start:
                        at, bridged = piece.start, min(piece.stop, archived_to)
                        break
                    yield piece
                    at = piece.stop if isinstance(piece, Lost) else int(piece.positions[0])
            except GONE as gone:
                archived_to = self._both.archived_to(key, at) if side.reader is self._both.live else -1
                if archived_to < 0:
                    raise
                bridged = min(max(gone.stop if isinstance(gone, FileMissing) else 0, at + 1), archived_to)

    def _pieces(
        self, part: Part, key: QueueKey, limits: BlockLimits, wanted: UnitFilter | None, *, tolerant: bool
    ) -> Iterator[Block | Lost]:
        assert part.reader is not None
        blocks, [checked] = part.reader.blocks_of([(*key, part.start, part.stop)])
        self._last = blocks
        return blocks.of_queue(checked, limits, wanted=wanted, tolerant=tolerant)

    def _archived_to(self, part: Part, key: QueueKey, piece: Block | Lost) -> int:
        """The end of what the archive has of messages that the live store has lost; -1 for others."""
        is_gone = isinstance(piece, Lost) and isinstance(piece.error, FileMissing | OffsetOutOfRange)
        if not is_gone or part.reader is not self._both.live:
            return -1
        assert isinstance(piece, Lost)
        return self._both.archived_to(key, piece.start)

    def of_ranges(
        self, ranges: Sequence[QueueRange], limits: BlockLimits, *, wanted: UnitFilter | None = None
    ) -> Iterator[Block]:
        """See ``LogBlocks.of_ranges``: of all ranges what the archive has, then what the live store has."""
        positions = np.array([start for _, start, _ in ranges], np.int64)
        stops = np.array([stop for _, _, stop in ranges], np.int64)
        for _ in range(_MOST_MOVES):
            before = positions
            try:
                for reader in (self._both.past, self._both.live):
                    parts = self._parts_in(reader, ranges, positions)
                    for block in self._side_by_side(reader, ranges, parts, limits, wanted):
                        positions = positions.copy()
                        positions[list(parts)] = block.positions
                        messages = replace(block.messages, ranges=_renumbered(parts, block.messages.ranges))
                        yield replace(block, messages=messages, positions=positions)
                    if any(positions[index] < part.stop for index, part in parts.items()):
                        break  # no live message comes before an archived one
            except GONE:
                pass  # the border has moved
            if (positions == stops).all() or (positions == before).all():
                return

    def _parts_in(self, reader: StoreReader, ranges: Sequence[QueueRange], positions: Int64Array) -> dict[int, Part]:
        """What a reader has of ranges at their positions, by the index of the range."""
        keys = [(queue.topic, queue.queue_id) for queue, _, _ in ranges]
        found: dict[int, Part] = {}
        for index, (_, sides) in enumerate(self._both.of(keys)):
            parts = self._both.parts(sides, int(positions[index]), ranges[index][2])
            if parts and parts[0].reader is reader:
                found[index] = parts[0]
        return found

    def _side_by_side(
        self,
        reader: StoreReader,
        ranges: Sequence[QueueRange],
        parts: dict[int, Part],
        limits: BlockLimits,
        wanted: UnitFilter | None,
    ) -> Iterator[Block]:
        """The blocks of the parts that one reader has."""
        if not parts:
            return iter(())
        named = [
            (ranges[index][0].topic, ranges[index][0].queue_id, part.start, part.stop) for index, part in parts.items()
        ]
        self._last, checked = reader.blocks_of(named)
        return self._last.of_ranges(checked, limits, wanted=wanted)

    def place_of(self, physical_offset: int) -> tuple[str, int]:
        """See ``LogBlocks.place_of``: by the source of the last block."""
        if self._last is None:
            return self._both.live.path, physical_offset
        return self._last.place_of(physical_offset)

    def error_of_damaged_part(
        self, error: CorruptStoreError, queue: tuple[str, int] | None, offset: int
    ) -> CommitLogError:
        """See ``LogBlocks.error_of_damaged_part``: by the source of the last block."""
        return error if self._last is None else self._last.error_of_damaged_part(error, queue, offset)


def _renumbered(parts: dict[int, Part], indices: Int32Array) -> Int32Array:
    """Indices of parts as those of the ranges that they are parts of."""
    renumbered: Int32Array = np.array(list(parts), np.int32)[indices]
    return renumbered
