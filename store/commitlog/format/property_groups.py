"""Property strings of records in log order, where different producers' shapes stand mixed: taken apart shape by shape.

``PropertyRows`` is fast where all rows have one shape, as stretches of a queue mostly have. In the log the messages of
all queues alternate. Rows with equally many separators and as long a first name mostly are of one producer, so they are
put together, and each group is taken apart on its own; when its rows are of several shapes after all, that costs time
and nothing else.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa

from commitlog.format.arrays import BoolArray, ByteArray, Int64Array
from commitlog.format.binary_gather import all_equal
from commitlog.format.property_columns import PropertyRows

__all__ = ["PropertyGroups"]

# The bytes that end a name and an entry, and zero, which no producer writes.
_LAST_SEPARATOR = 2
# A row's shape: how many separators it has and how long its first name is, numbers above these counting as these.
_MOST_SEPARATORS = 63
_LONGEST_NAME = 255
# Each group costs something, whatever its size: neither few rows nor rows of all kinds are worth while to part.
_FEW_ROWS = 256
_MOST_GROUPS = 64


class PropertyGroups:
    """The property strings of many records, one row a record, as ``binary``. Values are those of ``PropertyRows``."""

    def __init__(self, properties: pa.BinaryArray) -> None:
        order = _order_by_shape(properties)
        if order is None:
            self._groups = [PropertyRows(properties)]
            self._place_of = None
            return
        rows, bounds = order
        place_of = np.empty(len(rows), np.int64)
        place_of[rows] = np.arange(len(rows))
        self._place_of = pa.array(place_of)
        grouped = properties.take(pa.array(rows))
        self._groups = [PropertyRows(grouped.slice(start, stop - start)) for start, stop in pairwise(bounds)]

    def text(self, name: str) -> pa.StringArray:
        """The value of one property in every row, null where a row has none."""
        texts = [group.text(name) for group in self._groups]
        if self._place_of is None:
            return texts[0]
        if all(values.null_count == len(values) for values in texts):
            return pa.nulls(len(self._place_of), pa.string())
        return pa.concat_arrays(texts).take(self._place_of)


def _order_by_shape(properties: pa.BinaryArray) -> tuple[Int64Array, list[int]] | None:
    """The rows by shape, and where the rows of each shape begin and end; None when they are to stay together."""
    if len(properties) < _FEW_ROWS:
        return None
    _, offsets, data = properties.buffers()
    bounds = np.frombuffer(offsets, np.int32)[properties.offset : properties.offset + len(properties) + 1]
    raw = np.frombuffer(data, np.uint8)[: bounds[-1]] if data is not None else np.zeros(0, np.uint8)
    found = raw <= _LAST_SEPARATOR
    if _nearly_certainly_even(raw, found, bounds.astype(np.int64)):
        return None
    places = np.append(np.flatnonzero(found), len(raw))
    firsts = np.searchsorted(places, bounds)
    counts = np.minimum(np.diff(firsts), _MOST_SEPARATORS)
    name_lengths = np.minimum(places[firsts[:-1]] - bounds[:-1], _LONGEST_NAME)
    shapes = (counts * (_LONGEST_NAME + 1) + name_lengths).astype(np.uint16)
    rows = np.argsort(shapes, kind="stable")
    inner = np.flatnonzero(np.diff(shapes[rows])) + 1
    return None if len(inner) >= _MOST_GROUPS else (rows, [0, *inner.tolist(), len(rows)])


def _nearly_certainly_even(raw: ByteArray, found: BoolArray, bounds: Int64Array) -> bool:
    """Whether all rows begin with the same name, and have as many separators as if each had those of the first."""
    first = found[bounds[0] : bounds[1]]
    name_length = int(np.argmax(first)) if first.any() else 0
    name = raw[bounds[0] : bounds[0] + name_length].tobytes()
    alike = np.count_nonzero(found[bounds[0] :]) == np.count_nonzero(first) * (len(bounds) - 1)
    return alike and all_equal(raw, bounds[:-1], name)
