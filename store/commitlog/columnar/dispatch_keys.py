"""What dispatch asks of messages' properties: tags codes, and the hashes of their index keys.

The properties may come from the log (``dispatch_request``), or straight from whoever joined them a moment ago.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from commitlog.columnar.hash_codes import index_key_hashes, tags_codes
from commitlog.columnar.properties import PropertyGroups
from commitlog.format.arrays import BoolArray, Int32Array, Int64Array
from commitlog.format.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQ_KEY

__all__ = ["DispatchHints", "Hints", "IndexEntries", "PropertyHints", "key_entries"]


class IndexEntries(NamedTuple):
    """The keys of records, in the order RocketMQ puts them into the index: hash, and index of the record."""

    key_hashes: Int32Array
    rows: npt.NDArray[np.integer[Any]]


class DispatchHints(NamedTuple):
    """Of records in log order: a tags code each, and the entries of all their keys."""

    tags_codes: Int32Array
    entries: IndexEntries

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return self.tags_codes.nbytes + self.entries.key_hashes.nbytes + self.entries.rows.nbytes

    def part(self, first: int, stop: int) -> DispatchHints:
        """Those of the records ``[first, stop)``, whose numbers begin at 0 again."""
        if first == 0 and stop == len(self.tags_codes):
            return self
        hashes, rows = self.entries
        lowest, highest = np.searchsorted(rows, (first, stop)).tolist()
        entries = IndexEntries(hashes[lowest:highest], rows[lowest:highest] - first)
        return DispatchHints(self.tags_codes[first:stop], entries)


@dataclass(frozen=True)
class PropertyHints:
    """Hints that are worked out when they are asked for, of records with these property strings, in log order.

    All of them are dispatched, and none is delayed.
    """

    properties: pa.LargeBinaryArray
    topics: Sequence[str]
    topic_codes: npt.NDArray[np.integer[Any]]

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return int(self.properties.nbytes) + self.topic_codes.nbytes

    def part(self, first: int, stop: int) -> PropertyHints:
        """Those of the records ``[first, stop)``."""
        return PropertyHints(self.properties[first:stop], self.topics, self.topic_codes[first:stop])

    @cached_property
    def _groups(self) -> PropertyGroups:
        return PropertyGroups(self.properties.cast(pa.binary()))

    @cached_property
    def tags_codes(self) -> Int32Array:
        """A tags code of each record."""
        if not len(self.properties):
            return np.zeros(0, np.int32)
        return tags_codes(self._groups.text(TAGS)).astype(np.int32)

    @cached_property
    def entries(self) -> IndexEntries:
        """The entries of all their keys."""
        if not len(self.properties):
            return IndexEntries(np.zeros(0, np.int32), np.zeros(0, np.int64))
        everyone = np.ones(len(self.properties), np.bool_)
        return key_entries(self._groups, self.topics, self.topic_codes, everyone)


Hints: TypeAlias = DispatchHints | PropertyHints


class Properties(Protocol):
    """The properties of many records."""

    def text(self, name: str, /) -> pa.StringArray:
        """The value of one property in every row, null where a row has none."""
        ...


def key_entries(
    properties: Properties, topics: Sequence[str], topic_codes: npt.NDArray[np.integer[Any]], indexed: BoolArray
) -> IndexEntries:
    """The index entries of the ``indexed`` records: UNIQ_KEY, then each of KEYS, of every record."""
    unique, unique_rows = _present(properties.text(UNIQ_KEY), indexed)
    keys, key_rows = _split_keys(*_present(properties.text(KEYS), indexed))
    if not len(keys):
        return IndexEntries(index_key_hashes(topics, topic_codes[unique_rows], unique), unique_rows)
    total = len(unique) + len(keys)
    hashes = np.empty(total, np.int32)
    rows = np.empty(total, np.int64)
    # A record's unique key comes behind all keys of earlier records, its keys behind its unique key.
    key_places = np.arange(len(keys)) + np.searchsorted(unique_rows, key_rows, side="right")
    unique_places = np.arange(len(unique)) + np.searchsorted(key_rows, unique_rows, side="left")
    for places, of_rows, texts in ((unique_places, unique_rows, unique), (key_places, key_rows, keys)):
        hashes[places] = index_key_hashes(topics, topic_codes[of_rows], texts)
        rows[places] = of_rows
    return IndexEntries(hashes, rows)


def _present(texts: pa.StringArray, wanted: BoolArray) -> tuple[pa.StringArray, Int64Array]:
    """The texts of ``wanted`` rows that are not null, and which rows these are."""
    if not texts.null_count and wanted.all():
        return texts, np.arange(len(texts))
    keep = wanted & texts.is_valid().to_numpy(zero_copy_only=False)
    return texts.filter(pa.array(keep)), np.flatnonzero(keep)


def _split_keys(texts: pa.StringArray, rows: Int64Array) -> tuple[pa.StringArray, Int64Array]:
    """Every key of every text, and the row it belongs to."""
    data = texts.buffers()[2]
    if data is None or KEY_SEPARATOR.encode() not in memoryview(data).tobytes():
        return texts, rows
    lists = pc.split_pattern(texts, KEY_SEPARATOR)
    keys = lists.flatten()
    owner = np.repeat(rows, pc.list_value_length(lists).to_numpy(zero_copy_only=False))
    keep = pc.not_equal(keys, "")
    return keys.filter(keep), owner[keep.to_numpy(zero_copy_only=False)]
