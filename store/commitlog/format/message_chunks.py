"""Tables of messages cut into chunks: what is encoded at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlog.format.arrays import Int64Array
from commitlog.format.message_columns import Rows

__all__ = ["message_chunks"]

# Rows and bytes of one chunk: its bytes stay in the processor's cache from one step to the next.
_CHUNK_ROWS = 16_384
_CHUNK_SIZE = 16 << 20


def message_chunks(table: Rows) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Slices of at most so many rows and bytes of body (or of one row), each with its first row's number."""
    ends = np.cumsum(_body_sizes(table))
    first = done = 0
    while first < table.num_rows:
        stop = int(np.searchsorted(ends, done + _CHUNK_SIZE, side="right"))
        stop = min(max(stop, first + 1), first + _CHUNK_ROWS, table.num_rows)
        piece = table.slice(first, stop - first)
        # A column of more than 2 GiB stays in several pieces, and so are the batches then.
        for batch in piece.combine_chunks().to_batches() if isinstance(piece, pa.Table) else (piece,):
            yield first, batch
            first += batch.num_rows
        done = int(ends[stop - 1])


def _body_sizes(table: Rows) -> Int64Array:
    """Bytes of every row's body, 0 for null."""
    column = table.column("body" if "body" in table.schema.names else "value")
    kind = column.type
    if pa.types.is_fixed_size_binary(kind):
        return np.full(len(column), kind.byte_width, np.int64)
    sizes = [np.zeros(0, np.int64)]
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else (column,):
        if pa.types.is_dictionary(kind):
            lengths = pc.binary_length(chunk.dictionary).take(chunk.indices)
        else:
            lengths = pc.binary_length(chunk)
        sizes.append(lengths.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64))
    return np.concatenate(sizes)
