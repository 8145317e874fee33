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

from commitlog_store.format.arrays import ByteArray, Int64Array
from commitlog_store.format.properties import decode_utf8

_INLINE = 12
_VIEW = np.dtype("V16")
_BEFORE = _VIEW.itemsize - _INLINE
# A value at an end of the data, with the bytes around it, is in so many bytes there.
_END = 32
# From this byte on, ASCII and UTF-8 differ.
_FIRST_NON_ASCII = 0x80


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
    if not len(starts) or int(starts.min()) < 0 or int(starts.max()) + len(wanted) > len(data):
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
    short = lengths <= _INLINE
    if short.all():
        views = _inline(data, starts, lengths)
    else:
        # Two 64-bit words a view: the length with no prefix, and the offset above buffer index zero.
        words = np.empty((count, 2), np.int64)
        words[:, 0] = lengths
        words[:, 1] = starts << 32
        views = words.view(_VIEW).reshape(-1)
        if short.any():
            views[short] = _inline(data, starts[short], lengths[short])
    array = pa.Array.from_buffers(pa.binary_view(), count, [None, pa.py_buffer(views), pa.py_buffer(data)])
    return array.cast(pa.binary())


def _gather_even(data: ByteArray, starts: Int64Array, width: int) -> pa.BinaryArray:
    """Values that all have the same length need no views: they are gathered back to back."""
    count = len(starts)
    values = strided_view(data, width)[starts]
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(values)])


def _inline(data: ByteArray, starts: Int64Array, lengths: Int64Array) -> npt.NDArray[np.void]:
    """Views that hold the values, each with the bytes after it in ``data``, which the cast does not look at."""
    # The four bytes before each value give way to its length.
    if int(starts.min()) >= _BEFORE and int(starts.max()) + _INLINE <= len(data):
        views = strided_view(data, _VIEW.itemsize)[starts - _BEFORE]
    else:
        views = _views_at_ends(data, starts)
    views.view(np.int32)[::4] = lengths
    return views


def _views_at_ends(data: ByteArray, starts: Int64Array) -> npt.NDArray[np.void]:
    """Views without lengths, some of them at the ends of ``data``: only the ends are copied, to have bytes around."""
    first, last = np.zeros(_BEFORE, np.uint8), np.zeros(_INLINE, np.uint8)
    at_end = (starts < _BEFORE) | (starts + _INLINE > len(data))
    if len(data) <= 2 * _END:
        return strided_view(np.concatenate((first, data, last)), _VIEW.itemsize)[starts]
    views = np.empty(len(starts), _VIEW)
    views[~at_end] = strided_view(data, _VIEW.itemsize)[starts[~at_end] - _BEFORE]
    ends = np.concatenate((first, data[:_END], data[-_END:], last))
    near = starts[at_end]
    views[at_end] = strided_view(ends, _VIEW.itemsize)[np.where(near < _BEFORE, near, near - len(data) + 2 * _END)]
    return views


def to_text(values: pa.BinaryArray) -> pa.StringArray:
    """``binary`` to ``string``; bytes that are not UTF-8 become U+FFFD, as Java decodes them."""
    data = values.buffers()[2]
    if data is None or not data.size or np.frombuffer(data, np.uint8).max() < _FIRST_NON_ASCII:
        return pa.Array.from_buffers(pa.string(), len(values), values.buffers(), values.null_count, values.offset)
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if value is None else decode_utf8(value) for value in values.to_pylist()]
        return pa.array(texts, pa.string())
