"""Tags codes and index key hashes of messages, for dispatch.

The properties may come from the log (``dispatch``), or from the columns that the records were just made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store.columnar.byte_parts import binary_parts
from commitlog_store.columnar.hash_codes import index_key_hashes, tags_codes
from commitlog_store.format import arrow_compute as pc
from commitlog_store.format.arrays import BoolArray, Int32Array, Int64Array
from commitlog_store.format.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQ_KEY

# With its type: see ``put_table``.
_EMPTY = pa.scalar("", pa.string())


class IndexEntries(NamedTuple):
    """The keys of records, in the order RocketMQ puts them into the index: hash, and index of the record."""

    key_hashes: Int32Array
    rows: npt.NDArray[np.integer[Any]]


class DispatchHints(NamedTuple):
    """The tags codes of records in log order, and the entries of all their keys."""

    tags_codes: Int32Array
    entries: IndexEntries

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return self.tags_codes.nbytes + self.entries.key_hashes.nbytes + self.entries.rows.nbytes

    def part(self, first: int, stop: int) -> DispatchHints:
        """The hints of the records ``[first, stop)``, whose numbers begin at 0 again."""
        if first == 0 and stop == len(self.tags_codes):
            return self
        hashes, rows = self.entries
        lowest, highest = np.searchsorted(rows, (first, stop)).tolist()
        entries = IndexEntries(hashes[lowest:highest], rows[lowest:highest] - first)
        return DispatchHints(self.tags_codes[first:stop], entries)


@dataclass(frozen=True)
class ColumnHints:
    """Dispatch hints computed on demand, of records in log order with these tags and keys.

    All of them are dispatched, and none is delayed. None stands for a column of nulls.
    """

    topics: Sequence[str]
    topic_codes: npt.NDArray[np.integer[Any]]
    texts: Mapping[str, pa.StringArray | None]

    @classmethod
    def of(
        cls,
        topics: Sequence[str],
        topic_codes: npt.NDArray[np.integer[Any]],
        *,
        tags: pa.LargeBinaryArray | None,
        unique_keys: pa.LargeBinaryArray | None,
        keys: pa.LargeBinaryArray | None,
    ) -> ColumnHints:
        """Hints of columns whose memory may be reused as soon as this returns: they are copied."""
        columns = {TAGS: tags, UNIQ_KEY: unique_keys, KEYS: keys}
        texts = {name: None if values is None else _copied_text(values) for name, values in columns.items()}
        return cls(topics, topic_codes, texts)

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return self.topic_codes.nbytes + sum(int(text.nbytes) for text in self.texts.values() if text is not None)

    def part(self, first: int, stop: int) -> ColumnHints:
        """The hints of the records ``[first, stop)``."""
        if first == 0 and stop == len(self.topic_codes):
            return self
        texts = {name: None if text is None else text[first:stop] for name, text in self.texts.items()}
        return ColumnHints(self.topics, self.topic_codes[first:stop], texts)

    def text(self, name: str, /) -> pa.StringArray:
        """TAGS, UNIQ_KEY or KEYS of every record."""
        text = self.texts[name]
        return pa.nulls(len(self.topic_codes), pa.string()) if text is None else text

    @cached_property
    def tags_codes(self) -> Int32Array:
        """A tags code of each record."""
        if self.texts[TAGS] is None:
            return np.zeros(len(self.topic_codes), np.int32)
        return tags_codes(self.text(TAGS)).astype(np.int32)

    @cached_property
    def entries(self) -> IndexEntries:
        """The entries of all their keys."""
        return key_entries(self, self.topics, self.topic_codes, np.ones(len(self.topic_codes), np.bool_))


def _copied_text(values: pa.LargeBinaryArray) -> pa.StringArray:
    bounds, data = binary_parts(values)
    offsets = (bounds - bounds[0]).astype(np.int32)
    valid = None
    if values.null_count:
        valid = pa.py_buffer(np.packbits(values.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))
    copied = pa.py_buffer(data[bounds[0] : bounds[-1]].tobytes())
    return pa.Array.from_buffers(pa.string(), len(values), [valid, pa.py_buffer(offsets), copied])


Hints: TypeAlias = DispatchHints | ColumnHints


class Properties(Protocol):
    """The properties of many records."""

    def text(self, name: str, /) -> pa.StringArray:
        """The value of one property in every row, null where a row has none."""


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
    # A record's unique key comes after all keys of earlier records, its keys after its unique key.
    key_places = np.arange(len(keys)) + np.searchsorted(unique_rows, key_rows, side="right")
    unique_places = np.arange(len(unique)) + np.searchsorted(key_rows, unique_rows, side="left")
    for places, of_rows, texts in ((unique_places, unique_rows, unique), (key_places, key_rows, keys)):
        hashes[places] = index_key_hashes(topics, topic_codes[of_rows], texts)
        rows[places] = of_rows
    return IndexEntries(hashes, rows)


def _present(texts: pa.StringArray, wanted: BoolArray) -> tuple[pa.StringArray, Int64Array]:
    """The texts of ``wanted`` rows that are not null, and which rows these are."""
    if texts.null_count == len(texts):
        return texts[:0], np.zeros(0, np.int64)
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
    keep = pc.not_equal(keys, _EMPTY)
    return keys.filter(keep), owner[keep.to_numpy(zero_copy_only=False)]
