"""Gathers byte values of varying position and length into Arrow arrays, without a loop per value.

The means is Arrow's ``binary_view`` layout, 16 bytes a value::

    length <= 12:  | length 4 | the value's bytes, zero-padded to 12             |
    length  > 12:  | length 4 | prefix 4 | buffer index 4 | offset in buffer 4   |

The prefix only speeds up comparisons. The cast to ``binary`` ignores it and copies every value once, in C++.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog.format.arrays import ByteArray, Int64Array
from commitlog.format.properties import decode_utf8

__all__ = ["all_equal", "gather_binary", "strided_view", "to_text"]

_INLINE = 12
# For every length up to 12, the mask that keeps that many bytes.
_KEEP = (np.arange(_INLINE) < np.arange(_INLINE + 1)[:, None]).astype(np.uint8) * np.uint8(0xFF)
_KEEP_WORDS = _KEEP.view(f"V{_INLINE}").reshape(-1)


def strided_view(data: ByteArray, width: int) -> npt.NDArray[np.void]:
    """``data`` as overlapping ``width``-byte items, one at each byte: indexing it gathers ``width`` bytes a position.

    numpy copies a void item in one go, an order of magnitude faster than a two-dimensional index of bytes.
    """
    count = max(len(data) - width + 1, 0)
    return (
        np.ndarray((count,), dtype=f"V{width}", buffer=data.data, strides=(1,))
        if width
        else np.zeros(len(data) + 1, "V0")
    )


def all_equal(data: ByteArray, starts: Int64Array, wanted: bytes) -> bool:
    """Whether ``wanted`` stands at every start: one gather and one ``memcmp``."""
    if not len(starts) or int(starts.max()) + len(wanted) > len(data):
        return not len(starts)
    return strided_view(data, len(wanted))[starts].tobytes() == wanted * len(starts)


def gather_binary(data: ByteArray, starts: Int64Array, lengths: Int64Array) -> pa.BinaryArray:
    """The values ``data[start : start + length]`` as one ``binary`` array that owns its bytes.

    ``data`` is shorter than 2 GiB, and so are all the values together; the caller has checked that every value lies
    within it.
    """
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    width = int(lengths[0])
    if width and (lengths == width).all():
        return _gather_even(data, starts, width)
    # Two 64-bit words a view: the length with no prefix, and the offset above buffer index zero.
    words = np.empty((count, 2), np.int64)
    words[:, 0] = lengths
    words[:, 1] = starts << 32
    views = words.view(np.int32)
    short = lengths <= _INLINE
    if short.all():
        views[:, 1:] = _inline(data, starts, lengths)
    elif short.any():
        rows = np.flatnonzero(short)
        views[rows, 1:] = _inline(data, starts[rows], lengths[rows])
    array = pa.Array.from_buffers(pa.binary_view(), count, [None, pa.py_buffer(views), pa.py_buffer(data)])
    return array.cast(pa.binary())


def _gather_even(data: ByteArray, starts: Int64Array, width: int) -> pa.BinaryArray:
    """Values that all have the same length need no views: they are gathered back to back."""
    count = len(starts)
    values = strided_view(data, width)[starts]
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(values)])


def _inline(data: ByteArray, starts: Int64Array, lengths: Int64Array) -> npt.NDArray[np.int32]:
    """The values themselves, zero-padded to 12 bytes: three 32-bit integers each."""
    # Twelve bytes are fetched at each place. Where fewer are left, they are taken out of a copy of the data's end.
    last = len(data) - _INLINE
    late = starts > last
    fetched = np.zeros(len(starts), f"V{_INLINE}")
    if not late.any():
        fetched = strided_view(data, _INLINE)[starts]
    else:
        tail_at = max(last, 0)
        tail = np.concatenate((data[tail_at:], np.zeros(_INLINE, np.uint8)))
        fetched[late] = strided_view(tail, _INLINE)[starts[late] - tail_at]
        fetched[~late] = strided_view(data, _INLINE)[starts[~late]]
    return fetched.view(np.int32).reshape(-1, 3) & _KEEP_WORDS[lengths].view(np.int32).reshape(-1, 3)


def to_text(values: pa.BinaryArray) -> pa.StringArray:
    """``binary`` to ``string``; bytes that are not UTF-8 become U+FFFD, as Java decodes them."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if value is None else decode_utf8(value) for value in values.to_pylist()]
        return pa.array(texts, pa.string())
