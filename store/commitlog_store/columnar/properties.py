r"""Decodes many property strings at once: single properties as text columns, or all of them as a map column.

A property string is ``name\x01value\x02name\x01value\x02...``; the last ``\x02`` may be missing. The rules are those
of ``properties.decode_properties``, which tests hold against these functions: an entry counts when its name and its
value are not empty, the name ends at the entry's first ``\x01``, and of equal names the last one wins.

Producers write the same properties in the same order into all their messages, so most stretches of a queue have one
shape. Such *even* rows are parsed by following the first row's shape and proving that every row has it; any
others by a search that fits them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store.columnar.arrow_bytes import all_equal, gather_binary, strided_view, to_text
from commitlog_store.format.arrays import BoolArray, ByteArray, Int64Array, sorted_distinct

_NAME_END = 1
_ENTRY_END = 2


# Values up to this many bytes are found by their end; longer ones only when all rows have the same length.
_SHORT_VALUE = 32


class _EvenEntry(NamedTuple):
    """One property of even rows: its name, and where its value starts and ends in every row."""

    name: bytes
    starts: Int64Array
    ends: Int64Array


class PropertyRows:
    """The property strings of many records, one row a record, as ``binary``."""

    def __init__(self, properties: pa.BinaryArray) -> None:
        _, offsets, data = properties.buffers()
        first = properties.offset
        bounds = np.frombuffer(offsets, np.int32)[first : first + len(properties) + 1].astype(np.int64)
        raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        # All rows back to back, and where each one starts: one number more than rows.
        self._data = raw[bounds[0] : bounds[-1]]
        self._offsets = bounds - bounds[0]
        self._count = len(properties)

    def __len__(self) -> int:
        return self._count

    @cached_property
    def _separators(self) -> Int64Array:
        # Bytes of zero are found along with the separators; their kind distinguishes them.
        return np.flatnonzero(self._data <= _ENTRY_END)

    @cached_property
    def _kinds(self) -> ByteArray:
        return self._data[self._separators]

    @cached_property
    def _even(self) -> list[_EvenEntry] | None:
        """The entries of rows that all have the same names in the same order; None for rows of any other shape.

        Their places are guessed from the first row's, from both ends of the rows, and checked in all rows: one value
        may have any length then. The number of separators in the data proves in the end that nothing was skipped.
        """
        if not self._count or self._offsets[1] == 0:
            return None
        first = self._data[: self._offsets[1]].tobytes()
        closed = first.endswith(b"\x02")
        parts = [part.partition(b"\x01") for part in (first[:-1] if closed else first).split(b"\x02")]
        heads = [name + mark for name, mark, _ in parts]
        row_ends = self._offsets[1:] - closed
        if not all(mark for _, mark, _ in parts) or not all_equal(self._data, self._offsets[:-1], heads[0]):
            return None
        if closed and not all_equal(self._data, row_ends, b"\x02"):
            return None
        values = [value for _, _, value in parts]
        found = self._places(self._offsets[:-1] + len(heads[0]), row_ends, values, [b"\x02" + head for head in heads])
        if found is None or not all((starts <= ends).all() for starts, ends in found):
            return None
        separators = self._count * (2 * len(parts) - (not closed))
        if np.count_nonzero(self._data <= _ENTRY_END) != separators:
            return None
        return [_EvenEntry(name, *place) for (name, _, _), place in zip(parts, found, strict=True)]

    def _places(
        self, start: Int64Array, end: Int64Array, values: Sequence[bytes], heads: Sequence[bytes]
    ) -> list[tuple[Int64Array, Int64Array]] | None:
        """Starts and ends of the values between ``start`` and ``end``; ``heads`` stand before them, separator included.

        The values are as long as the first row's, one of them has any length, and others are short; None otherwise.
        """
        front: list[tuple[Int64Array, Int64Array]] = []
        back: list[tuple[Int64Array, Int64Array]] = []
        forward = backward = True
        while len(front) + len(back) < len(values) - 1:
            following, last = heads[len(front) + 1], heads[-1 - len(back)]
            ends = start + len(values[len(front)])
            starts = end - len(values[-1 - len(back)])
            if forward and not all_equal(self._data, ends, following):
                forward = False
            if not forward and backward:
                if all_equal(self._data, starts - len(last), last):
                    back.append((starts, end))
                    end = starts - len(last)
                    continue
                backward = False
            if not forward:
                found = self._value_ends(start, following)
                if found is None:
                    return None
                ends, forward = found, True
            front.append((start, ends))
            start = ends + len(following)
        return [*front, (start, end), *reversed(back)]

    def _value_ends(self, starts: Int64Array, following: bytes) -> Int64Array | None:
        """Where the short values end that begin at ``starts``, each with ``following`` after it; None for others."""
        ends = np.full(len(starts), -1, np.int64)
        open_rows = np.arange(len(starts))
        for word_at in range(0, _SHORT_VALUE, 8):
            places = starts[open_rows] + word_at
            if int(places.max()) + 8 > len(self._data):
                return None
            found = _first_entry_end(strided_view(self._data, 8)[places].view("<u8"))
            hit = found < 8
            ends[open_rows[hit]] = places[hit] + found[hit]
            open_rows = open_rows[~hit]
            if not len(open_rows):
                return ends if all_equal(self._data, ends, following) else None
        return None

    def text(self, name: str) -> pa.StringArray:
        """The value of one property in every row, null where a row has none."""
        wanted = name.encode("utf-8")
        if self._even is None:
            return self._search(wanted)
        named = [entry for entry in self._even if entry.name == wanted]
        if not named:
            return pa.nulls(self._count, pa.string())
        lengths = named[-1].ends - named[-1].starts
        if len(named) > 1 or not lengths.all():
            return self._search(wanted)  # an empty value counts as none, and does not hide an earlier one
        return to_text(gather_binary(self._data, named[-1].starts, lengths))

    def _equals(self, starts: Int64Array, wanted: bytes) -> BoolArray:
        """At which places ``wanted`` stands; compared in words of eight, four or single bytes."""
        same = np.ones(len(starts), np.bool_)
        at = 0
        while at < len(wanted):
            width = 8 if len(wanted) - at >= 8 else 4 if len(wanted) - at >= 4 else 1
            word = np.frombuffer(wanted, f"u{width}", 1, at)[0]
            same &= strided_view(self._data, width)[starts + at].view(f"u{width}") == word
            at += width
        return same

    def _row_of(self, positions: Int64Array) -> Int64Array:
        return np.searchsorted(self._offsets, positions, side="right").astype(np.int64) - 1

    @cached_property
    def _entries(self) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        """Start, name end, end and row of every entry that counts, in order."""
        data = self._data
        entry_ends = self._separators[self._kinds == _ENTRY_END]
        starts = sorted_distinct(np.concatenate((entry_ends + 1, self._offsets[:-1])))
        starts = starts[starts < len(data)]
        owner = self._row_of(starts)
        following = np.append(entry_ends, len(data))[np.searchsorted(entry_ends, starts)]
        ends = np.minimum(following, self._offsets[owner + 1])
        name_ends = np.append(self._separators[self._kinds == _NAME_END], len(data))
        at = name_ends[np.searchsorted(name_ends, starts)]
        counts = (at > starts) & (at < ends - 1)
        return starts[counts], at[counts], ends[counts], owner[counts]

    def _search(self, wanted: bytes) -> pa.StringArray:
        starts, name_ends, ends, owner = self._entries
        named = np.flatnonzero(name_ends - starts == len(wanted))
        named = named[self._equals(starts[named], wanted)]
        # Later entries overwrite earlier ones of the same row: the last wins.
        place_of = np.full(self._count, -1, np.int64)
        place_of[owner[named]] = np.arange(len(named))
        value_starts = name_ends[named] + 1
        values = to_text(gather_binary(self._data, value_starts, ends[named] - value_starts))
        return values.take(pa.array(place_of, mask=place_of < 0))

    def map(self) -> pa.MapArray:
        """All properties of every row as ``map<string, string>``; of equal names in a row the last one is kept."""
        starts, name_ends, ends, owner = self._entries
        names = to_text(gather_binary(self._data, starts, name_ends - starts))
        keep = _last_of_each(owner, names)
        if keep is not None:
            starts, name_ends, ends, owner = starts[keep], name_ends[keep], ends[keep], owner[keep]
            names = names.take(pa.array(keep))
        values = to_text(gather_binary(self._data, name_ends + 1, ends - name_ends - 1))
        offsets = np.searchsorted(owner, np.arange(self._count + 1)).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(offsets), names, values)


def _first_entry_end(words: npt.NDArray[np.uint64]) -> Int64Array:
    """For eight bytes in a little-endian word, which of them is the first ``\\x02``; a number above 7 for none.

    The usual trick for finding a zero byte: subtract one from each and see where it borrows.
    """
    low, high = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
    other = words ^ np.uint64(0x0202020202020202)
    marks = (other - low) & ~other & high
    lowest = marks & (~marks + np.uint64(1))
    # The place of a single bit is the exponent of its value as a floating-point number; without a bit, it is negative.
    places = ((lowest.astype(np.float64).view(np.int64) >> 52) - 1023) >> 3
    return np.where(lowest == 0, 8, places)


def _last_of_each(owner: Int64Array, names: pa.StringArray) -> Int64Array | None:
    """Positions of the last entry of each name in each row; None when no row has a name twice."""
    codes = names.dictionary_encode()
    distinct = max(len(codes.dictionary), 1)
    identity = owner * distinct + codes.indices.to_numpy(zero_copy_only=False)
    _, last_from_behind = np.unique(identity[::-1], return_index=True)
    if len(last_from_behind) == len(identity):
        return None
    return np.sort(len(identity) - 1 - last_from_behind)


# The bytes that end a name and an entry, and zero, which no producer writes.
_LAST_SEPARATOR = 2
# A row's shape: its number of separators and the length of its first name, each capped at these.
_MOST_SEPARATORS = 63
_LONGEST_NAME = 255
# Each group has a fixed cost: splitting few rows, or rows of many kinds, does not pay.
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
