"""Look-up of many keys in an index file at once: their chains are followed side by side, with numpy.

A chain that contradicts the format, or that a live owner is writing, is given up: the caller looks that key up alone,
with ``IndexService.candidates``, which knows what to skip and what to report.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from commitlog_store.format.arrays import BoolArray, Int32Array, Int64Array
from commitlog_store.index.service import IndexFile, IndexHit, IndexService

# A step of all chains costs as much as following some ten of them alone. So the last of many chains are given up when
# they turn out to be long: one slot may hold any number of entries.
_LONG_CHAIN = 64
_FEW_CHAINS = 16


class KeyHits(Protocol):
    """Where, in one part of an index, the messages of many keys may be, from new to old.

    Keys are numbered in the order of the hashes that were asked for.
    """

    @property
    def given_up(self) -> BoolArray:
        """The keys that are to be looked up alone: what was found of them is not all."""

    def next_hits(self, keys: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Of each of these keys, the next place: the keys that have one, and its physical offset."""

    def release(self) -> None:
        """Give back what the look-ups brought into memory."""


class KeyIndex(Protocol):
    """An index of a log's messages by key, whatever holds it."""

    def candidates(self, topic: str, key: str, begin: int, end: int, *, strict: bool) -> Iterator[IndexHit]:
        """The places of messages that may carry the key, newest first, stored (roughly) within ``[begin, end]`` ms."""

    def hits_of(self, key_hashes: Int32Array) -> Iterator[KeyHits]:
        """The hits of many keys, part by part of the index, the newest first."""

    def refuse_damaged_index(self, hit: IndexHit) -> None:
        """Raise what is known to be wrong with the part of the index that has this place, where no record is."""


class KeyChains:
    """The chains of many key hashes in one file, from new to old. Keys are numbered in the order of ``key_hashes``."""

    def __init__(self, file: IndexFile, key_hashes: Int32Array) -> None:
        """The file has entries. ``CorruptIndex``, ``UnsupportedStore``, ``FileChanged``, ``ReadFailed``."""
        sizes = file.sizes()
        assert sizes is not None
        self._slot_count, capacity = sizes
        self._file = file
        self._hashes = key_hashes
        self._slots = key_hashes % self._slot_count
        # The entry that comes next in each key's chain; 0 at its end.
        self._numbers = file.slots_at(self._slots.astype(np.int64)).astype(np.int64)
        # After the slots: a live owner writes entry and slot before it counts them.
        highest = min(file.header().index_count, capacity - 1)
        self.given_up: BoolArray = (self._numbers < 0) | (self._numbers > highest)
        self._steps = 0

    def release(self) -> None:
        """Give back the pages of the look-ups."""
        self._file.release()

    def next_hits(self, keys: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Of each of these keys, the next entry with its hash: the keys that have one, and its physical offset.

        Keys at their chain's end are left out, and so are those in ``given_up``. ``FileChanged``, ``ReadFailed``.
        """
        found_keys: list[Int64Array] = []
        found_offsets: list[Int64Array] = []
        keys = keys[(self._numbers[keys] > 0) & ~self.given_up[keys]]
        while len(keys):
            self._steps += 1
            if self._steps > _LONG_CHAIN and len(keys) <= _FEW_CHAINS:
                self.given_up[keys] = True
                break
            entries = self._file.entries_at(self._numbers[keys], self._slot_count)
            hashes = entries["key_hash"].astype(np.int32)
            previous = entries["previous"].astype(np.int64)
            # Chains strictly descend, so following them ends.
            good = (hashes >= 0) & (hashes % self._slot_count == self._slots[keys]) & (entries["seconds"] >= 0)
            good &= (previous >= 0) & (previous < self._numbers[keys])
            self.given_up[keys[~good]] = True
            self._numbers[keys] = previous
            hit = good & (hashes == self._hashes[keys])
            found_keys.append(keys[hit])
            found_offsets.append(entries["physical_offset"][hit].astype(np.int64))
            keys = keys[good & ~hit & (previous > 0)]
        if not found_keys:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return np.concatenate(found_keys), np.concatenate(found_offsets)


class SearchedIndex(IndexService):
    """The index files of a store, in which one key is looked up, or many. A ``KeyIndex``."""

    def hits_of(self, key_hashes: Int32Array) -> Iterator[KeyHits]:
        """See ``KeyIndex``. The errors of ``KeyChains``."""
        return (KeyChains(file, key_hashes) for file in self.newest_first())

    def refuse_damaged_index(self, hit: IndexHit) -> None:
        """Nothing: index files have no checksums."""
