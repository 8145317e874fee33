"""Look-up of many keys at once: for each key the newest message that carries it, found through the index files.

The keys are hashed together, their chains followed side by side (``index.many_keys``), and the records that these lead
to are read, checked and compared in blocks. What is unusual (damage, a chain that an owner is writing, one that is much
longer than the others) is left to the look-up of a single key, which ``StoreReader.query`` does: so both find the same,
and raise the same errors. Without index files, one walk of the log finds candidates for all keys (``places_in_log``).
docs/decisions/0017-lookup.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store.columnar.bodies import verify_crc
from commitlog_store.columnar.columns import arrow_schema
from commitlog_store.columnar.dispatch import dispatch_requests, index_entries
from commitlog_store.columnar.hash_codes import index_key_hashes
from commitlog_store.columnar.keyed_records import carry_keys
from commitlog_store.columnar.locate import RecordProblem
from commitlog_store.errors import CorruptRecord
from commitlog_store.format.arrays import BoolArray, Int64Array
from commitlog_store.format.properties import KEY_SEPARATOR
from commitlog_store.index.many_keys import KeyChains
from commitlog_store.index.service import IndexService
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.past_damage import Gap, walk_past_damage
from commitlog_store.queue.block_reader import BlockDecoder
from commitlog_store.queue.log_blocks import NO_BLOCK, Block, BlockLimits, LogBlocks

__all__ = [
    "LookUpAlone",
    "NewestPlaces",
    "as_texts",
    "could_be_key",
    "newest_batches",
    "newest_places",
    "places_in_log",
]

_NO_LIMIT = 2**62
# After every store time.
_AFTER_ALL = 2**63 - 1
_TEXT_TYPES = (pa.string(), pa.large_string(), pa.string_view(), pa.null())

LookUpAlone: TypeAlias = "Callable[[str], tuple[int, int] | None]"
"""The physical offset and size of the newest message with a key, looked up alone; None without one."""


@dataclass(frozen=True)
class NewestPlaces:
    """Physical offset and size of the newest message of each key; -1 for a key that no message has."""

    offsets: Int64Array
    sizes: Int64Array

    @classmethod
    def none(cls, count: int) -> NewestPlaces:
        """No message for any of that many keys, to be filled in."""
        return cls(np.full(count, -1, np.int64), np.zeros(count, np.int64))

    def put(self, index: int, place: tuple[int, int] | None) -> None:
        """The place of one key's message."""
        self.offsets[index], self.sizes[index] = (-1, 0) if place is None else place

    def __getitem__(self, rows: slice | Int64Array) -> NewestPlaces:
        return NewestPlaces(self.offsets[rows], self.sizes[rows])


def as_texts(keys: object) -> pa.StringArray:
    """Keys of any text type of Arrow, or texts in any sequence, as one array. ``TypeError``, ``ArrowInvalid``."""
    array = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    if not isinstance(array, pa.Array):
        return pa.array(array, pa.string())
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if kind not in _TEXT_TYPES:
        raise TypeError(f"they are {kind}")
    return array.cast(pa.string())


def could_be_key(key: object) -> bool:
    """Whether a message can have that key: a text that is not empty, and has no space, which separates keys."""
    return isinstance(key, str) and bool(key) and KEY_SEPARATOR not in key


def newest_places(
    commit_log: CommitLog,
    index: IndexService,
    topic: str,
    keys: pa.StringArray,
    below: int,
    alone: LookUpAlone,
) -> NewestPlaces:
    """The newest message of each key in the topic that begins before the physical offset ``below``.

    ``keys`` are distinct, and each could be one. Raises what ``alone`` raises, and the errors of the index files.
    """
    places = NewestPlaces.none(len(keys))
    hashes = index_key_hashes([topic], np.zeros(len(keys), np.int8), keys)
    blocks = LogBlocks(commit_log)
    unusual = np.zeros(len(keys), np.bool_)
    for file in index.newest_first():
        rows = np.flatnonzero((places.offsets < 0) & ~unusual)
        if not len(rows):
            break
        chains = KeyChains(file, hashes)
        while len(rows):
            rows, offsets = chains.next_hits(rows)
            # Expired, or part of a batch that is being dispatched.
            passed = ((offsets >= 0) & (offsets < commit_log.min_offset)) | (offsets >= below)
            wanted = np.flatnonzero(~passed)
            _compare(blocks, topic, keys, rows[wanted], offsets[wanted], places, unusual)
            rows = rows[(places.offsets[rows] < 0) & ~unusual[rows]]
        # A key that another file has answered, or that is unusual already, stays so.
        unusual |= chains.given_up & (places.offsets < 0)
        file.release()
    for row in np.flatnonzero(unusual).tolist():
        places.put(row, alone(keys[row].as_py()))
    return places


def places_in_log(
    commit_log: CommitLog, log_end: int, wanted: npt.NDArray[np.integer[Any]], begin: int = 0, end: int = _AFTER_ALL
) -> dict[int, list[int]]:
    """The physical offsets of messages stored within ``[begin, end]`` that may have a key, by the key's hash."""
    places: dict[int, list[int]] = {}
    for scan in walk_past_damage(commit_log, commit_log.min_offset, log_end, check_crc=False):
        if isinstance(scan, Gap):
            continue
        requests = dispatch_requests(scan, ())
        hashes, rows = index_entries(scan, requests)
        times = requests.store_timestamps[rows]
        hits = np.flatnonzero(np.isin(hashes, wanted) & (times >= begin) & (times <= end))
        found = requests.physical_offsets[rows[hits]].tolist()
        for key_hash, place in zip(hashes[hits].tolist(), found, strict=True):
            places.setdefault(key_hash, []).append(place)
    return places


def _compare(
    blocks: LogBlocks,
    topic: str,
    keys: pa.StringArray,
    rows: Int64Array,
    offsets: Int64Array,
    places: NewestPlaces,
    unusual: BoolArray,
) -> None:
    """Read the records at ``offsets``, one for each of the keys ``rows``; note places that match and unusual keys."""
    order = np.argsort(offsets, kind="stable")
    rows, offsets = rows[order], offsets[order]
    read = np.zeros(len(rows), np.bool_)
    limits = BlockLimits()
    decoder = BlockDecoder(topic, None, (), limits, verify_crc=True)
    for block in blocks.at_places(offsets, None, limits):
        messages = block.messages
        read[messages.ranges] = True
        block_rows = rows[messages.ranges]
        try:
            records = decoder.located(block)
            verify_crc(records)
        except RecordProblem:
            unusual[block_rows] = True
            continue
        match = carry_keys(records, topic, keys.take(pa.array(block_rows)))
        places.offsets[block_rows[match]] = messages.physical_offsets[match]
        places.sizes[block_rows[match]] = messages.sizes[match]
    unusual[rows[~read]] = True


def newest_batches(
    blocks: LogBlocks,
    topic: str,
    keys: pa.StringArray,
    places: NewestPlaces,
    columns: list[str],
    limits: BlockLimits,
    alone: LookUpAlone,
) -> Iterator[pa.RecordBatch]:
    """The messages at ``places``, one row for each, in order; NULL in all columns for one that is not there.

    A message whose body cannot be unpacked is looked up alone again, by its key. ``CorruptRecord``.
    """
    decoder = BlockDecoder(topic, None, columns, limits, verify_crc=False)
    at = looked_up_again = 0
    while at < len(keys):
        ends = np.cumsum(places.sizes[at : at + limits.rows])
        stop = at + max(int(np.searchsorted(ends, limits.size, side="right")), 1)
        block = _in_key_order(blocks, places[at:stop])
        if not len(block):
            schema = arrow_schema(columns)
            nulls = [pa.nulls(stop - at, kind) for kind in schema.types]
            yield pa.RecordBatch.from_arrays(nulls, schema=schema)
            at = stop
        begin, decoded = at, 0
        for part, batch in decoder.batches(block):
            rows = begin + part.messages.ranges.astype(np.int64)
            if isinstance(batch, RecordProblem):
                if rows[0] < looked_up_again:
                    raise _corrupt(blocks, int(part.messages.physical_offsets[0]), batch) from batch
                for row in (at + np.flatnonzero(places.offsets[at:stop] >= 0)).tolist():
                    places.put(row, alone(keys[row].as_py()))
                looked_up_again = stop
                break
            assert batch is not None  # every message is wanted
            decoded += len(part)
            end = stop if decoded == len(block) else int(rows[-1]) + 1
            yield _with_nulls(batch, rows - at, end - at)
            at = end


def _in_key_order(blocks: LogBlocks, places: NewestPlaces) -> Block:
    """The records at ``places``, without those that retention has removed since they were found."""
    rows = np.flatnonzero(places.offsets >= 0)
    rows = rows[np.argsort(places.offsets[rows], kind="stable")]
    wanted = places[rows]
    whole = BlockLimits(rows=len(rows) + 1, size=_NO_LIMIT)
    block = next(blocks.at_places(wanted.offsets, wanted.sizes, whole), NO_BLOCK)
    block = replace(block, messages=replace(block.messages, ranges=rows[block.messages.ranges].astype(np.int32)))
    return block.take(np.argsort(block.messages.ranges, kind="stable"))


def _with_nulls(batch: pa.RecordBatch, rows: Int64Array, count: int) -> pa.RecordBatch:
    """The batch with its rows at ``rows`` of ``count``, and NULLs in the others."""
    if len(rows) == count:
        return batch
    taken = np.full(count, -1, np.int64)
    taken[rows] = np.arange(len(rows))
    return batch.take(pa.array(taken, mask=taken < 0))


def _corrupt(blocks: LogBlocks, physical_offset: int, problem: RecordProblem) -> CorruptRecord:
    path, position = blocks.place_of(physical_offset)
    return CorruptRecord(
        f"{problem.field} of the record at physical offset {physical_offset}",
        path=path,
        offset=position + problem.within,
        expected=problem.expected,
        found=problem.found,
    )
