"""Finds the blocks that a client asks for: units, without those whose tags are not wanted, and the records' bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from commitlog_store.columnar.locate import RecordProblem
from commitlog_store.errors import InvalidValue
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.filter.tags import TagSubscription
from commitlog_store.format.arrays import BoolArray, Int64Array
from commitlog_store.queue.block_reader import BlockDecoder
from commitlog_store.queue.log_blocks import Block, Lost
from commitlog_store.reader import StoreReader
from commitlog_store.remote.block_wire import BlocksWanted, encode_piece, end_of_blocks

# Limits of one block and one answer, whatever a client asks for.
_MOST_ROWS = 1 << 20
_LARGEST = 64 << 20
_MOST_BYTES = 64 << 20


class _TagsOfUnits:
    """The part of a filter that decides about units."""

    def __init__(self, tags: list[list[str]]) -> None:
        self._subscriptions = [TagSubscription(tuple(one)) for one in tags]
        self.tags_of_units = [subscription.tags for subscription in self._subscriptions]

    looks_at_units = True

    def may_match(self, tags_codes: Int64Array) -> BoolArray:
        """See ``MessageFilter.may_match``."""
        found = np.ones(len(tags_codes), np.bool_)
        for subscription in self._subscriptions:
            found &= subscription.may_match(tags_codes)
        return found


class _Matching:
    """Leaves out of blocks the messages that a filter does not match, by the code that the reader has for it."""

    def __init__(self, wanted: BlocksWanted, chosen: MessageFilter) -> None:
        topics = [topic for topic, *_ in wanted.ranges]
        queue_ids = [queue_id for _, queue_id, *_ in wanted.ranges]
        topic = topics[0] if len(set(topics)) == 1 else topics
        self._decoder = BlockDecoder(topic, queue_ids, (), wanted.limits, verify_crc=False)
        self._chosen = chosen

    def __call__(self, piece: Block | Lost) -> Block | Lost:
        if isinstance(piece, Lost) or not len(piece):
            return piece
        try:
            records = self._decoder.located(piece)
        except RecordProblem:
            return piece  # whole: the reader finds it too, and says what is damaged
        kept = np.flatnonzero(self._chosen.matches(records.properties))
        return piece if len(kept) == len(piece) else piece.take(kept)


def blocks_of(
    reader: StoreReader,
    wanted: BlocksWanted,
    is_wanted: Callable[[], bool] = lambda: True,
    *,
    for_sending: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The rows of an answer, which ends early when it is not wanted any more. ``for_sending``: see ``BlockLimits``.

    ``OffsetOutOfRange``, ``QueueNotFound``, ``InvalidValue``, and the errors of reading.
    """
    # A filter here reads the bytes, within this process.
    limits = replace(wanted.limits, for_sending=for_sending and wanted.texts is None)
    if not (0 < limits.rows <= _MOST_ROWS and 0 < limits.size <= _LARGEST and 0 < limits.span <= _LARGEST):
        raise InvalidValue(f"A block has at most {_MOST_ROWS} rows and {_LARGEST} bytes, and at least one of both.")
    if not wanted.ranges or (len(wanted.ranges) > 1 and not wanted.in_log_order):
        raise InvalidValue("Blocks are of one range of a queue, or of several in the order of the log.")
    blocks, ranges = reader.blocks_of(wanted.ranges)
    tags = _TagsOfUnits(wanted.tags) if wanted.tags else None
    pieces: Iterator[Block | Lost]
    if wanted.in_log_order:
        pieces = iter(blocks.of_ranges(ranges, limits, wanted=tags))
    else:
        (part,) = ranges
        pieces = blocks.of_queue(part, limits, wanted=tags, tolerant=wanted.tolerant)
    sent, budget = 0, min(wanted.budget, _MOST_BYTES)
    if wanted.texts is not None:
        pieces = map(_Matching(wanted, wanted.texts.parsed()), pieces)
    for piece in pieces:
        path, base = "", 0
        if isinstance(piece, Block) and len(piece):
            first = int(piece.messages.physical_offsets[0])
            path, within = blocks.place_of(first)
            base = first - within
        row = encode_piece(piece, path, base)
        sent += row.nbytes  # of a block whose records are far apart, less than the block has
        yield row
        # The next question would find the rest of these units again, so the answer ends after them if they are few.
        units_left = wanted.in_log_order and isinstance(piece, Block) and len(piece) > 0
        if sent >= budget * (2 if units_left else 1) or not is_wanted():
            break  # the client asks for the rest
    yield end_of_blocks()
