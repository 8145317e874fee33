"""Joins columns of bytes row by row: many rows of several parts become one stretch of memory, without a loop a row.

A part is the same bytes in every row, or an Arrow array of ``large_binary`` without nulls. Arrow joins any parts, at
some 10 ns for each part of each row. numpy copies values of one length several times faster, each at its place in the
result; so neighbouring parts whose values have few different lengths are copied, and Arrow joins the others with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from commitlog.columnar.arrow_bytes import strided_view
from commitlog.format.arrays import ByteArray, Int64Array

__all__ = ["Part", "binary_parts", "fixed_width", "join_rows", "large_binary_of", "part_sizes"]

_BINARY = pa.large_binary()
Part: TypeAlias = "bytes | pa.LargeBinaryArray"

# Values of more different lengths, or longer ones, are left to Arrow.
_MOST_LENGTHS = 8
_LONGEST = 1 << 12
# For fewer rows one call of Arrow's is faster than several of numpy's.
_FEW_ROWS = 256


def large_binary_of(values: pa.Array | pa.ChunkedArray) -> pa.LargeBinaryArray:
    """Text or bytes of any Arrow type, in one piece or many, as one ``large_binary`` array; mostly without a copy."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if values.type != _BINARY:
        values = values.cast(_BINARY)
    if isinstance(values, pa.ChunkedArray):
        return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    return values


def binary_parts(values: pa.LargeBinaryArray) -> tuple[Int64Array, ByteArray]:
    """Where each value starts (one number more than there are values), and the bytes that the numbers point into."""
    if not len(values):
        # Arrow may leave even the one number out.
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    return bounds, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def fixed_width(items: npt.NDArray[np.generic]) -> pa.LargeBinaryArray:
    """The bytes of each item, without a copy."""
    width = items.dtype.itemsize
    offsets = np.arange(0, (len(items) + 1) * width, width, dtype=np.int64)
    return pa.Array.from_buffers(_BINARY, len(items), [None, pa.py_buffer(offsets), pa.py_buffer(items)])


def part_sizes(part: Part) -> Int64Array | int:
    """The bytes of a part in every row, one number where it is the same in all."""
    if isinstance(part, bytes):
        return len(part)
    bounds = binary_parts(part)[0]
    return bounds[1:] - bounds[:-1]


def join_rows(parts: Sequence[Part], count: int) -> tuple[Int64Array, ByteArray]:
    """The parts of each row behind each other, row after row: where each row starts, and the bytes (writable).

    There is one start more than there are rows.
    """
    columns = [_Column(part, count) for part in parts]
    if all(column.lengths is not None for column in columns) and count >= _FEW_ROWS:
        return _copied(columns, count)
    pieces: list[pa.LargeBinaryArray | pa.LargeBinaryScalar] = []
    run: list[_Column] = []
    for column in columns:
        if column.lengths is not None and count >= _FEW_ROWS:
            run.append(column)
            continue
        if run:
            pieces.append(_piece(run, count))
            run = []
        pieces.append(column.piece)
    if run:
        pieces.append(_piece(run, count))
    if not any(isinstance(piece, pa.Array) for piece in pieces):
        pieces.append(fixed_width(np.zeros(count, "V0")))
    joined = pc.binary_join_element_wise(*pieces, pa.scalar(b"", _BINARY))
    starts, data = binary_parts(joined)
    # Arrow may give a buffer that is longer than what stands in it.
    data = data[: starts[-1]]
    return starts, data if data.flags.writeable else data.copy()


class _Column:
    """One part, and the different lengths of its values; None when there are too many, or too long ones."""

    def __init__(self, part: Part, count: int) -> None:
        self.part = part
        self.lengths: list[int] | None = None
        # The length of every value, where all have the same; else ``sizes`` has them.
        self.width: int | None = None
        self.sizes: Int64Array = np.zeros(0, np.int64)
        if isinstance(part, bytes):
            self.width = len(part)
        elif count:
            bounds = binary_parts(part)[0]
            self.sizes = bounds[1:] - bounds[:-1]
            first = int(self.sizes[0])
            if (self.sizes == first).all():
                self.width = first
            elif int(self.sizes.max()) <= _LONGEST:
                lengths = np.flatnonzero(np.bincount(self.sizes))
                self.lengths = lengths.tolist() if len(lengths) <= _MOST_LENGTHS else None
        if self.width is not None:
            self.lengths = [self.width]

    @property
    def piece(self) -> pa.LargeBinaryArray | pa.LargeBinaryScalar:
        return pa.scalar(self.part, _BINARY) if isinstance(self.part, bytes) else self.part


def _piece(run: Sequence[_Column], count: int) -> pa.LargeBinaryArray | pa.LargeBinaryScalar:
    """Neighbouring parts as one."""
    if len(run) == 1:
        return run[0].piece
    starts, data = _copied(run, count)
    return pa.Array.from_buffers(_BINARY, count, [None, pa.py_buffer(starts), pa.py_buffer(data)])


def _copied(columns: Sequence[_Column], count: int) -> tuple[Int64Array, ByteArray]:
    """Join parts of few lengths: every value is copied to its place."""
    even = sum(column.width for column in columns if column.width is not None)
    uneven = [column for column in columns if column.width is None]
    starts = np.zeros(count + 1, np.int64)
    if uneven:
        np.cumsum(sum(column.sizes for column in uneven) + even, out=starts[1:])
    else:
        starts = np.arange(count + 1) * even
    data = np.empty(int(starts[-1]), np.uint8)
    # Where all rows are alike, a part's places lie evenly; else each row has its own.
    places = starts[:-1]
    at = 0
    for column in columns:
        if column.width is None:
            _scatter_by_length(data, places + at, column)
            places = places + column.sizes
            continue
        if column.width:
            values = _values_of(column.part, column.width, count)
            if uneven:
                strided_view(data, column.width)[places + at] = values
            else:
                np.ndarray((count,), f"V{column.width}", data.data, at, (even,))[...] = values
        at += column.width
    return starts, data


def _values_of(part: Part, width: int, count: int) -> npt.NDArray[np.void] | np.void:
    """The values of a part that all have one length."""
    if isinstance(part, bytes):
        return np.void(part)
    bounds, data = binary_parts(part)
    return np.ndarray((count,), f"V{width}", data.data, int(bounds[0]))


def _scatter_by_length(data: ByteArray, places: Int64Array, column: _Column) -> None:
    assert column.lengths is not None
    bounds, values = binary_parts(column.part)
    for length in column.lengths:
        if length:
            rows = np.flatnonzero(column.sizes == length)
            strided_view(data, length)[places[rows]] = strided_view(values, length)[bounds[:-1][rows]]
