r"""Many property strings at once: single properties as text columns, or all of them as a map column.

A property string is ``name\x01value\x02name\x01value\x02...``; the last ``\x02`` may be missing. The rules are those
of ``properties.decode_properties``, which tests hold against these functions: an entry counts when its name and its
value are not empty, the name ends at the entry's first ``\x01``, and of equal names the last one wins.

Producers write the same properties in the same order into all their messages, so most stretches of a queue have one
shape. Such *even* rows are taken apart by columns of separators; any others by a search that fits them all.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog.format.binary_gather import gather_binary, strided_view, to_text

__all__ = ["PropertyRows"]

_NAME_END = 1
_ENTRY_END = 2

Int64Array = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.uint8]


class PropertyRows:
    """The property strings of many records, one row a record, as ``binary``."""

    def __init__(self, properties: pa.BinaryArray) -> None:
        _, offsets, data = properties.buffers()
        first = properties.offset
        bounds = np.frombuffer(offsets, np.int32)[first : first + len(properties) + 1].astype(np.int64)
        raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        # All rows back to back, and where each one starts: one number more than there are rows.
        self._data = raw[bounds[0] : bounds[-1]]
        self._offsets = bounds - bounds[0]
        self._count = len(properties)

    @cached_property
    def _separators(self) -> Int64Array:
        # Bytes of zero are found along with the separators; their kind tells them apart.
        return np.flatnonzero(self._data <= _ENTRY_END)

    @cached_property
    def _kinds(self) -> ByteArray:
        return self._data[self._separators]

    @cached_property
    def _even(self) -> tuple[Int64Array, tuple[bytes, ...]] | None:
        """For rows that all have the same names in the same order: where each entry's name and value end, one row a
        record (a missing last separator is put in), and the names. None for rows of any other shape."""
        count = self._count
        separators = self._separators
        if not count or not len(separators) or len(separators) % count:
            return None
        table = separators.reshape(count, -1)
        pattern = np.resize(np.array([_NAME_END, _ENTRY_END], np.uint8), table.shape[1])
        if not (self._kinds.reshape(count, -1) == pattern).all():
            return None
        starts, ends = self._offsets[:-1], self._offsets[1:]
        if not ((table[:, 0] >= starts).all() and (table[:, -1] < ends).all()):
            return None
        if table.shape[1] % 2:
            table = np.column_stack((table, ends))
        elif not (table[:, -1] == ends - 1).all():
            return None
        names = self._common_names(table)
        return None if names is None else (table, names)

    def _common_names(self, table: Int64Array) -> tuple[bytes, ...] | None:
        """The names of the entries, if they are the same in every row."""
        names = []
        for column in range(0, table.shape[1], 2):
            starts = self._offsets[:-1] if column == 0 else table[:, column - 1] + 1
            name = self._data[starts[0] : table[0, column]].tobytes()
            if not (table[:, column] - starts == len(name)).all() or not self._equals(starts, name).all():
                return None
            names.append(name)
        return tuple(names)

    def text(self, name: str) -> pa.StringArray:
        """The value of one property in every row, null where a row has none."""
        wanted = name.encode("utf-8")
        if self._even is None:
            return self._search(wanted)
        table, names = self._even
        if wanted not in names:
            return pa.nulls(self._count, pa.string())
        if names.count(wanted) > 1:
            return self._search(wanted)
        column = 2 * names.index(wanted)
        starts = table[:, column] + 1
        lengths = table[:, column + 1] - starts
        if not lengths.all():
            return self._search(wanted)  # an empty value counts as none
        return to_text(gather_binary(self._data, starts, lengths))

    def _equals(self, starts: Int64Array, wanted: bytes) -> npt.NDArray[np.bool_]:
        """At which places ``wanted`` stands; compared in words of eight, four or single bytes."""
        same = np.ones(len(starts), np.bool_)
        at = 0
        while at < len(wanted):
            width = 8 if len(wanted) - at >= 8 else 4 if len(wanted) - at >= 4 else 1
            word = np.frombuffer(wanted, f"u{width}", 1, at)[0]
            same &= strided_view(self._data, width)[starts + at].view(f"u{width}") == word
            at += width
        return same

    # -- rows of any shape -----------------------------------------------------------------------------------------

    def _row_of(self, positions: Int64Array) -> Int64Array:
        return np.searchsorted(self._offsets, positions, side="right").astype(np.int64) - 1

    @cached_property
    def _entries(self) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        """Start, name end, end and row of every entry that counts, in order."""
        data = self._data
        entry_ends = self._separators[self._kinds == _ENTRY_END]
        starts = np.union1d(entry_ends + 1, self._offsets[:-1])
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


def _last_of_each(owner: Int64Array, names: pa.StringArray) -> Int64Array | None:
    """Positions of the last entry of each name in each row; None when no name comes twice in a row."""
    codes = names.dictionary_encode()
    distinct = max(len(codes.dictionary), 1)
    identity = owner * distinct + codes.indices.to_numpy(zero_copy_only=False)
    _, last_from_behind = np.unique(identity[::-1], return_index=True)
    if len(last_from_behind) == len(identity):
        return None
    return np.sort(len(identity) - 1 - last_from_behind)
