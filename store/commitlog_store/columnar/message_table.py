"""MessageTable: the messages that a caller gives as rows, cut into chunks, each made into records.

A chunk becomes records in three steps, which need no store: its columns are parsed (``input.py``), each row gets a
queue (``queue_choice.py``), and the records are laid out (``encode.py``). Bulk puts and staging do the same here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from commitlog_store.columnar.encode import EncodedMessages, RecordSettings, encode_messages
from commitlog_store.columnar.input import MessageColumns, Rows, message_schema, parse_messages
from commitlog_store.columnar.message_rows import MessageRows, message_rows
from commitlog_store.columnar.queue_choice import choose_queues
from commitlog_store.format import arrow_compute as pc
from commitlog_store.format.arrays import Int32Array, Int64Array

# Rows and bytes of one chunk: its bytes stay in the processor's cache from one step to the next.
CHUNK_ROWS = 16_384
CHUNK_SIZE = 16 << 20


class MessageTable:
    """Rows with a checked schema. ``topic`` is that of rows without one; ``shown`` names columns in refusals."""

    def __init__(self, rows: MessageRows, *, topic: str | None, shown: Mapping[str, str] | None = None) -> None:
        """No row is read. ``InvalidValue`` for what is not a table of messages, and for wrong columns."""
        self._rows = message_rows(rows)
        self._schema = message_schema(self._rows, topic=topic, shown=shown)

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def chunks(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows in chunks, each with its first row's number."""
        return message_chunks(self._rows)

    def encoded(
        self,
        chunk: pa.RecordBatch,
        settings: RecordSettings,
        queue_count: Callable[[str], int],
        topic_fault: Callable[[str], str | None],
        *,
        first_row: int,
        first_turn: int,
        born_timestamp_ms: int,
        row_name: Callable[[int], str] = "row {}".format,
        unique_keys: pa.LargeBinaryArray | None = None,
    ) -> tuple[MessageColumns, Int32Array, EncodedMessages]:
        """A chunk's columns, the queue of each row (-1: refused because of its topic), and the records.

        ``first_row`` is its first row's number in refusals, ``first_turn`` that of the first row that takes the queues
        in turn. The other arguments, and the errors, are those of the three steps.
        """
        columns = parse_messages(
            chunk,
            self._schema,
            born_timestamp_ms=born_timestamp_ms,
            limits=settings.limits,
            first_row=first_row,
            row_name=row_name,
            topic_fault=topic_fault,
        )
        queue_ids = choose_queues(columns, queue_count, round_robin_start=first_turn)
        return columns, queue_ids, encode_messages(columns, queue_ids, settings, unique_keys=unique_keys)


def message_chunks(
    table: Rows, *, max_rows: int = CHUNK_ROWS, max_size: int = CHUNK_SIZE
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Slices of limited rows and bytes (or of one row), each with its first row's number."""
    # Where each row ends, computed only when needed: mostly a chunk has far fewer bytes than it may.
    ends: Int64Array | None = None
    may_repeat = any(pa.types.is_dictionary(kind) or pa.types.is_nested(kind) for kind in table.schema.types)
    first = 0
    while first < table.num_rows:
        piece = table.slice(first, max_rows)
        if may_repeat or piece.nbytes > max_size:
            ends = np.cumsum(_row_sizes(table)) if ends is None else ends
            done = int(ends[first - 1]) if first else 0
            stop = int(np.searchsorted(ends, done + max_size, side="right"))
            piece = piece.slice(0, max(stop - first, 1))
        # A column of more than 2 GiB stays in several pieces, and so are the batches then.
        for batch in piece.combine_chunks().to_batches() if isinstance(piece, pa.Table) else (piece,):
            yield first, batch
            first += batch.num_rows


def _row_sizes(table: Rows) -> Int64Array:
    """Bytes of every row's texts, bytes, lists and maps, 0 for null; numbers are few, and all rows have as many."""
    sizes = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        if not pa.types.is_primitive(column.type):
            chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
            sizes += np.concatenate([np.zeros(0, np.int64), *map(_value_sizes, chunks)])
    return sizes


def _value_sizes(values: pa.Array) -> Int64Array:
    kind = values.type
    if pa.types.is_nested(kind):
        # A slice has its own offsets, which point into the values of the whole array.
        parts = (values.keys, values.items) if pa.types.is_map(kind) else (values.values,)
        ends = np.append(0, np.cumsum(sum(map(_value_sizes, parts))))
        return np.asarray(np.diff(ends[values.offsets.to_numpy(zero_copy_only=False)]), np.int64)
    if pa.types.is_null(kind):
        return np.zeros(len(values), np.int64)
    if pa.types.is_fixed_size_binary(kind):
        return np.full(len(values), kind.byte_width, np.int64)
    if pa.types.is_dictionary(kind):
        lengths = pc.binary_length(values.dictionary).take(values.indices)
    else:
        lengths = pc.binary_length(values)
    return np.asarray(lengths.fill_null(0).to_numpy(zero_copy_only=False), np.int64)
