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
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store.columnar.bodies import BodiesTooLarge, verify_crc
from commitlog_store.columnar.columns import arrow_schema
from commitlog_store.columnar.decode import record_batch
from commitlog_store.columnar.dispatch import dispatch_requests, index_entries
from commitlog_store.columnar.hash_codes import index_key_hashes
from commitlog_store.columnar.keyed_records import carry_keys
from commitlog_store.columnar.locate import QueuePlace, RecordBlock, RecordProblem, locate
from commitlog_store.errors import CorruptRecord
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.format.arrays import BoolArray, Int64Array
from commitlog_store.format.properties import KEY_SEPARATOR
from commitlog_store.format.record import MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE
from commitlog_store.index.many_keys import KeyChains
from commitlog_store.index.service import IndexService
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.past_damage import Gap, walk_past_damage
from commitlog_store.queue.block_reader import BlockLimits

__all__ = [
    "LookUpAlone",
    "NewestPlaces",
    "as_texts",
    "could_be_key",
    "newest_batches",
    "newest_places",
    "places_in_log",
]

# Bytes of a record that are read before its size is known; most records fit.
_FIRST_READ = 1024
_NO_LIMIT = 2**62
# After every store time.
_AFTER_ALL = 2**63 - 1
_TEXT_TYPES = (pa.string(), pa.large_string(), pa.string_view(), pa.null())
_MAGICS = frozenset(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))

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


class _Records(NamedTuple):
    """Bytes of records, where each starts in them, its size, and which of the wanted ones they are."""

    data: bytes
    starts: Int64Array
    sizes: Int64Array
    rows: Int64Array


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
    *,
    check_crc: bool = True,
) -> NewestPlaces:
    """The newest message of each key in the topic that begins before the physical offset ``below``.

    ``keys`` are distinct, and each could be one. ``check_crc=False`` takes messages whose bodies do not match their
    CRC, too. Raises what ``alone`` raises, and the errors of the index files.
    """
    places = NewestPlaces.none(len(keys))
    hashes = index_key_hashes([topic], np.zeros(len(keys), np.int8), keys)
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
            _compare(commit_log, topic, keys, rows[wanted], offsets[wanted], places, unusual, check_crc)
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
    commit_log: CommitLog,
    topic: str,
    keys: pa.StringArray,
    rows: Int64Array,
    offsets: Int64Array,
    places: NewestPlaces,
    unusual: BoolArray,
    check_crc: bool,
) -> None:
    """Read the records at ``offsets``, one for each of the keys ``rows``; note places that match and unusual keys."""
    order = np.argsort(offsets, kind="stable")
    rows, offsets = rows[order], offsets[order]
    read = np.zeros(len(rows), np.bool_)
    for records in _read_records(commit_log, offsets, None, BlockLimits()):
        read[records.rows] = True
        block_rows = rows[records.rows]
        try:
            block = _block(records, offsets[records.rows], topic, BlockLimits().size)
            if check_crc:
                verify_crc(block)
        except RecordProblem:
            unusual[block_rows] = True
            continue
        match = carry_keys(block, topic, keys.take(pa.array(block_rows)))
        places.offsets[block_rows[match]] = offsets[records.rows][match]
        places.sizes[block_rows[match]] = records.sizes[match]
    unusual[rows[~read]] = True


def _read_records(
    commit_log: CommitLog, offsets: Int64Array, sizes: Int64Array | None, limits: BlockLimits
) -> Iterator[_Records]:
    """The records at ascending physical offsets, in blocks within the limits; what is not a whole record is left out.

    They lie far apart, so each is read by itself. ``sizes`` are those that are known already, None for none.
    """
    parts: list[bytes] = []
    rows: list[int] = []
    taken = 0
    file: MappedFile | None = None
    file_end = -1
    for row, offset in enumerate(offsets.tolist()):
        # In ascending order, so that each file is looked for once.
        if offset >= file_end:
            file = commit_log.find(offset) if offset >= 0 else None
            file_end = -1 if file is None else file.base + file.size
        part = None if file is None else _read_record(file, offset, _FIRST_READ if sizes is None else int(sizes[row]))
        if part is None:
            continue
        if parts and (taken + len(part) > limits.size or len(parts) == limits.rows):
            yield _joined(parts, rows)
            parts, rows, taken = [], [], 0
        parts.append(part)
        rows.append(row)
        taken += len(part)
    if parts:
        yield _joined(parts, rows)


def _joined(parts: list[bytes], rows: list[int]) -> _Records:
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    return _Records(b"".join(parts), np.cumsum(sizes) - sizes, sizes, np.array(rows, np.int64))


def _read_record(file: MappedFile, offset: int, guess: int) -> bytes | None:
    """The bytes that begin at an offset of the log and are as many as they say; None where no record can be."""
    at = offset - file.base
    data = file.read(at, guess)
    size = int.from_bytes(data[:4], "big", signed=True)
    if data[4:8] not in _MAGICS or size < MIN_RECORD_SIZE:
        return None
    if size > len(data):
        if size > file.size - at:
            return None
        data = file.read(at, size)
    return data[:size] if len(data) >= size else None


def _block(records: _Records, offsets: Int64Array, topic: str, body_limit: int) -> RecordBlock:
    """The records checked, and named after the queues that they name themselves. ``RecordProblem``."""
    data = np.frombuffer(records.data, np.uint8)
    # No queue led to the records, so there is none to compare them with.
    place = QueuePlace(topic=topic, queue_id=0, queue_offsets=np.zeros(0, np.int64), shared=True)
    block = locate(data, records.starts, records.sizes, offsets, place, body_limit=body_limit)
    own = replace(place, queue_id=block.field("queue_id"), queue_offsets=block.field("queue_offset"), shared=False)
    return replace(block, place=own)


def newest_batches(
    commit_log: CommitLog,
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
    at = 0
    while at < len(keys):
        ends = np.cumsum(places.sizes[at : at + limits.rows])
        stop = at + max(int(np.searchsorted(ends, limits.size, side="right")), 1)
        looked_up_again = False
        while True:
            try:
                yield _decoded(commit_log, topic, places[at:stop], columns, limits)
                break
            except BodiesTooLarge as full:
                stop = at + int(np.flatnonzero(places.offsets[at:stop] >= 0)[full.rows])
            except CorruptRecord:
                if looked_up_again:
                    raise
                looked_up_again = True
                for row in (at + np.flatnonzero(places.offsets[at:stop] >= 0)).tolist():
                    places.put(row, alone(keys[row].as_py()))
        at = stop


def _decoded(
    commit_log: CommitLog, topic: str, places: NewestPlaces, columns: list[str], limits: BlockLimits
) -> pa.RecordBatch:
    """One row for each place. ``CorruptRecord``; ``BodiesTooLarge`` counts the places that have a message."""
    rows = np.flatnonzero(places.offsets >= 0)
    order = np.argsort(places.offsets[rows], kind="stable")
    wanted = places[rows[order]]
    whole = BlockLimits(rows=len(rows) + 1, size=_NO_LIMIT)
    read = next(_read_records(commit_log, wanted.offsets, wanted.sizes, whole), None)
    if read is None:
        schema = arrow_schema(columns)
        return pa.RecordBatch.from_arrays([pa.nulls(len(places.offsets), kind) for kind in schema.types], schema=schema)
    # Back into the order of the keys. Retention may have removed some messages since.
    rows = rows[order][read.rows]
    back = np.argsort(rows, kind="stable")
    records = _Records(read.data, read.starts[back], read.sizes[back], rows[back])
    offsets = places.offsets[records.rows]
    try:
        batch = record_batch(_block(records, offsets, topic, limits.size), columns)
    except RecordProblem as problem:
        raise _corrupt(commit_log, int(offsets[problem.index]), problem) from problem
    if len(records.rows) == len(places.offsets):
        return batch
    taken = np.full(len(places.offsets), -1, np.int64)
    taken[records.rows] = np.arange(len(records.rows))
    return batch.take(pa.array(taken, mask=taken < 0))


def _corrupt(commit_log: CommitLog, offset: int, problem: RecordProblem) -> CorruptRecord:
    file = commit_log.find(offset)
    return CorruptRecord(
        f"{problem.field} of the record at physical offset {offset}",
        path=commit_log.path if file is None else file.path,
        offset=offset - (0 if file is None else file.base) + problem.within,
        expected=problem.expected,
        found=problem.found,
    )
