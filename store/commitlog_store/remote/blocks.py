"""RemoteBlocks: the blocks of records that a server sends, where ``LogBlocks`` has those of the local log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import numpy as np
import pyarrow.flight as flight

from commitlog_store.errors import RemoteFailed
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.queue.log_blocks import Block, BlockLimits, BlockSource, Lost, QueueRange, UnitFilter
from commitlog_store.remote.block_wire import BlocksWanted, decode_piece
from commitlog_store.remote.connection import Connection
from commitlog_store.remote.wire import FilterTexts, encode

# An answer is bounded, so that no call is long; the next one continues.
_BUDGET = 64 << 20


class RemoteBlocks(BlockSource):
    """Blocks by the questions of one connection."""

    def __init__(self, connection: Connection, *, filter_at_server: bool = False) -> None:
        self._connection = connection
        self._filter_at_server = filter_at_server
        self._path, self._base = "", 0

    def of_queue(
        self, part: QueueRange, limits: BlockLimits, *, wanted: UnitFilter | None = None, tolerant: bool = False
    ) -> Iterator[Block | Lost]:
        """See ``LogBlocks.of_queue``. ``RemoteFailed``."""
        queue, position, stop = part

        def question() -> BlocksWanted | None:
            ranges = [(queue.topic, queue.queue_id, position, stop)]
            return self._wanted(ranges, limits, wanted, tolerant=tolerant) if position < stop else None

        for value in self._pieces(question):
            if isinstance(value, Lost):
                position = value.stop
                yield value
                continue
            for block in value.cut(limits, np.array([position])):
                position = int(block.positions[0])
                yield block

    def of_ranges(
        self, ranges: Sequence[QueueRange], limits: BlockLimits, *, wanted: UnitFilter | None = None
    ) -> Iterator[Block]:
        """See ``LogBlocks.of_ranges``. ``RemoteFailed``."""
        positions = [start for _, start, _ in ranges]
        stops = [stop for _, _, stop in ranges]

        def question() -> BlocksWanted | None:
            if positions == stops:
                return None
            left = [
                (queue.topic, queue.queue_id, at, stop) for (queue, _, stop), at in zip(ranges, positions, strict=True)
            ]
            return self._wanted(left, limits, wanted, in_log_order=True)

        for value in self._pieces(question):
            assert isinstance(value, Block)
            for block in value.cut(limits, np.array(positions, np.int64)):
                positions[:] = block.positions.tolist()
                yield block

    def place_of(self, physical_offset: int) -> tuple[str, int]:
        """See ``LogBlocks.place_of``: by the file of the last block."""
        return (self._path, physical_offset - self._base) if self._path else ("the server's log", physical_offset)

    def _wanted(
        self,
        ranges: list[tuple[str, int, int, int]],
        limits: BlockLimits,
        wanted: UnitFilter | None,
        *,
        tolerant: bool = False,
        in_log_order: bool = False,
    ) -> BlocksWanted:
        tags = [] if wanted is None else [list(one) for one in wanted.tags_of_units]
        texts = None
        if self._filter_at_server and isinstance(wanted, MessageFilter):
            texts = FilterTexts.of(wanted)
        return BlocksWanted(
            store=self._connection.address.store,
            ranges=ranges,
            in_log_order=in_log_order,
            tags=tags,
            tolerant=tolerant,
            rows=limits.rows,
            size=limits.size,
            span=limits.span,
            budget=_BUDGET,
            texts=texts,
        )

    def _pieces(self, question: Callable[[], BlocksWanted | None]) -> Iterator[Block | Lost]:
        """The values of as many answers as there are to a question, which is another one after each value.

        An answer that ends early, by its budget or with its connection, is continued; one that gives nothing twice in
        a row is not.
        """
        silent = 0
        while (wanted := question()) is not None:
            stream = self._connection.stream(encode(wanted))
            failure: Exception | None = None
            got = complete = False
            try:
                for chunk in stream:
                    value, self._path, self._base = decode_piece(chunk.data)
                    if value is None:
                        complete = True
                        break
                    got = True
                    yield value
            except flight.FlightError as error:
                failure = self._connection.named(error, "read", self._connection.address.timeout_s)
                if not isinstance(failure, RemoteFailed):
                    raise failure from error
            finally:
                with suppress(flight.FlightError):
                    stream.cancel()
            if complete and wanted.in_log_order and question() == wanted:
                return  # the server can go no further side by side
            silent = 0 if got else silent + 1
            if silent == 2:
                raise failure or RemoteFailed(
                    f"The server at {self._connection.address} sent nothing of what was asked."
                )
