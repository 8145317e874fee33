"""Cuts tables of messages into chunks, the unit of encoding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlog_store.columnar.input import Rows
from commitlog_store.format.arrays import Int64Array

__all__ = ["CHUNK_ROWS", "CHUNK_SIZE", "message_chunks"]

# Rows and bytes of one chunk: its bytes stay in the processor's cache from one step to the next.
CHUNK_ROWS = 16_384
CHUNK_SIZE = 16 << 20


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
