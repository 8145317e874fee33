"""Joins columns of bytes row by row: many rows of several parts become one stretch of memory, without a loop a row.

A part is the same bytes in every row, or an Arrow array of ``large_binary`` without nulls. Arrow joins any parts, at
some 10 ns for each part of each row. numpy copies values of one length several times faster; so neighbouring parts
whose values all have one length are copied into one first, which is mostly the whole work.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store.format import arrow_compute as pc
from commitlog_store.format.arrays import ByteArray, Int64Array
from commitlog_store.format.checksum import crc32

_BINARY = pa.large_binary()
# Copying longer values twice costs more than one part less saves.
_LARGE = 256
# Bytes of values that are made into ``bytes`` together for their CRCs; a mean size from which on none are.
_CRC_SIZE = 256 << 10
_LONG_VALUE = 3 << 10
Part: TypeAlias = "bytes | pa.LargeBinaryArray"


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
    """Where each value starts (one number more than values), and the bytes that the numbers point into."""
    if not len(values):
        # Arrow may leave even the one number out.
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    return bounds, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def crcs_of(values: pa.BinaryArray | pa.LargeBinaryArray) -> npt.NDArray[np.uint32]:
    """The CRC-32 of each value; none is null. Only this step loops over the values: ``crc32`` takes one buffer a call.

    Arrow makes ``bytes`` of short values faster than Python makes slices of a view (measured at 100 B and 1 KiB: 200
    and 450 ns a value, against 310 and 495). Made part by part, they stay in the processor's caches and take the memory
    of those before them. Long values are not copied.
    """
    count, size = len(values), values.nbytes
    crcs = np.empty(count, np.uint32)
    if count and size >= count * _LONG_VALUE:
        bounds, data = binary_parts(large_binary_of(values))
        ends = bounds.tolist()
        crcs[:] = np.fromiter(map(crc32, map(data.data.__getitem__, map(slice, ends, ends[1:]))), np.uint32, count)
        return crcs
    rows = min(max(_CRC_SIZE * count // max(size, 1), 1), 1 << 12)
    for start in range(0, count, rows):
        part = values.slice(start, rows).to_numpy(zero_copy_only=False)
        crcs[start : start + rows] = np.fromiter(map(crc32, part), np.uint32, len(part))
    return crcs


def fixed_width(items: npt.NDArray[np.generic]) -> pa.LargeBinaryArray:
    """The bytes of each item, without a copy."""
    width = items.dtype.itemsize
    offsets = np.arange(0, (len(items) + 1) * width, width, dtype=np.int64)
    return pa.Array.from_buffers(_BINARY, len(items), [None, pa.py_buffer(offsets), pa.py_buffer(items)])


def new_bytes(size: int) -> ByteArray:
    """Memory for that many bytes, of Arrow's pool: it keeps what is freed, where numpy gives large pieces back.

    A page that is touched for the first time costs several times what copying into it does.
    """
    return np.frombuffer(pa.allocate_buffer(size), np.uint8)


def part_sizes(part: Part) -> Int64Array | int:
    """The bytes of a part in every row, one number where it is the same in all."""
    if isinstance(part, bytes):
        return len(part)
    bounds = binary_parts(part)[0]
    return bounds[1:] - bounds[:-1]


def join_rows(parts: Sequence[Part], count: int) -> tuple[Int64Array, ByteArray]:
    """The parts of each row one after the other, row after row: where each row starts, and the bytes (writable).

    The starts are one more than the rows.
    """
    if not count:
        return np.zeros(1, np.int64), new_bytes(0)
    widths = [_width_of(part) for part in parts]
    if None not in widths:
        data, width = _joined_evenly(list(zip(parts, widths, strict=True)), count)
        return np.arange(count + 1) * width, data
    pieces: list[pa.LargeBinaryArray | pa.LargeBinaryScalar] = []
    for is_copied, group in groupby(
        zip(parts, widths, strict=True), lambda part: part[1] is not None and part[1] <= _LARGE
    ):
        run = list(group)
        pieces += [_even_piece(run, count)] if is_copied else [_even_piece([one], count) for one in run]
    starts, data = binary_parts(pc.binary_join_element_wise(*pieces, pa.scalar(b"", _BINARY)))
    # Arrow may give a buffer that is longer than its content.
    data = data[: starts[-1]]
    return starts, data if data.flags.writeable else data.copy()


def _width_of(part: Part) -> int | None:
    """The bytes of a part in every row; None where that varies."""
    sizes = part_sizes(part)
    if isinstance(sizes, int):
        return sizes
    return int(sizes[0]) if (sizes == sizes[0]).all() else None


def _even_piece(run: Sequence[tuple[Part, int | None]], count: int) -> pa.LargeBinaryArray | pa.LargeBinaryScalar:
    """Neighbouring parts that do not vary in length, each with its width, as one."""
    constants = [part for part, _ in run if isinstance(part, bytes)]
    if len(constants) == len(run):
        return pa.scalar(b"".join(constants), _BINARY)
    if len(run) == 1:
        return run[0][0]
    data, width = _joined_evenly(run, count)
    return fixed_width(data.view(f"V{width}")) if width else pa.scalar(b"", _BINARY)


def _joined_evenly(run: Sequence[tuple[Part, int | None]], count: int) -> tuple[ByteArray, int]:
    """Parts that do not vary in length, joined, and how many bytes that makes in each row."""
    row_width = sum(width or 0 for _, width in run)
    data = new_bytes(count * row_width)
    at = 0
    for part, width in run:
        if width:
            np.ndarray((count,), f"V{width}", data.data, at, (row_width,))[...] = _values_of(part, width, count)
            at += width
    return data, row_width


def _values_of(part: Part, width: int, count: int) -> npt.NDArray[np.void] | np.void:
    if isinstance(part, bytes):
        return np.void(part)
    bounds, data = binary_parts(part)
    return np.ndarray((count,), f"V{width}", data.data, int(bounds[0]))
