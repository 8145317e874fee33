"""Messages by key: the newest messages with one key, and for each of many keys the newest message that carries it.

One key is looked up in the index files, entry by entry. Many are hashed together, their chains followed side by side
(``index.many_keys``), and the records that these lead to are read, checked and compared in blocks. What is unusual
(damage, a chain that an owner is writing, one that is much longer than the others) is left to the look-up of a single
key: so both find the same, and raise the same errors. Without index files, one walk of the log finds the candidates of
all keys. docs/decisions/0017-lookup.md.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store.columnar.bodies import verify_crc
from commitlog_store.columnar.columns import arrow_schema
from commitlog_store.columnar.dispatch import index_entries
from commitlog_store.columnar.hash_codes import index_key_hashes
from commitlog_store.columnar.keyed_records import carry_keys
from commitlog_store.columnar.locate import RecordProblem
from commitlog_store.errors import CommitLogError, CorruptIndex, CorruptRecord, InvalidValue, MessageNotFound
from commitlog_store.format.arrays import BoolArray, Int64Array
from commitlog_store.format.java_hash import index_key_hash
from commitlog_store.format.properties import KEY_SEPARATOR, decode_utf8
from commitlog_store.format.single_record import message_of
from commitlog_store.index.many_keys import KeyIndex
from commitlog_store.index.service import IndexHit
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.past_damage import Gap, walk_past_damage
from commitlog_store.message import MessageExt
from commitlog_store.queue.block_reader import BlockDecoder
from commitlog_store.queue.log_blocks import NO_BLOCK, Block, BlockLimits, LogBlocks
from commitlog_store.queue.skipped import SkippedRange

_logger = logging.getLogger(__name__)

_NO_LIMIT = 2**62
_TEXT_TYPES = (pa.string(), pa.large_string(), pa.string_view(), pa.null())


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

    @property
    def end(self) -> int:
        """The physical offset of the last of the messages; -1 without any."""
        return int(self.offsets.max(initial=-1))

    def __getitem__(self, rows: slice | Int64Array) -> NewestPlaces:
        return NewestPlaces(self.offsets[rows], self.sizes[rows])


def _as_texts(keys: object) -> pa.StringArray:
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


class WantedKeys:
    """Keys to look up: ``possible`` are those that a message can have, each once."""

    def __init__(self, keys: object) -> None:
        """Texts in any sequence, or an Arrow array of them. ``InvalidValue``."""
        try:
            distinct = _as_texts(keys).dictionary_encode()
        except (TypeError, UnicodeEncodeError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InvalidValue(f"Keys are a sequence or an Arrow array of texts: {error}") from error
        texts = distinct.dictionary.to_pylist()
        self._rows = np.array([index for index, text in enumerate(texts) if could_be_key(text)], np.int64)
        self._distinct = distinct
        self.possible: pa.StringArray = distinct.dictionary.take(pa.array(self._rows))

    @property
    def all(self) -> pa.StringArray:
        """The keys as they were given."""
        return self._distinct.dictionary.take(self._distinct.indices)

    def of_all(self, possible: NewestPlaces) -> NewestPlaces:
        """The place for each key that was given, from those of the possible ones."""
        count = len(self._distinct.dictionary)
        places = NewestPlaces.none(count + 1)  # one more, for NULL
        places.offsets[self._rows], places.sizes[self._rows] = possible.offsets, possible.sizes
        which = self._distinct.indices.fill_null(count).to_numpy(zero_copy_only=False)
        return places[which.astype(np.int64)]


class KeyLookup:
    """The messages of a store that carry a key or unique key."""

    def __init__(
        self,
        commit_log: CommitLog,
        index: KeyIndex,
        blocks: LogBlocks,
        *,
        log_end: int | None,
        is_aborted: Callable[[], bool],
        skipped: list[SkippedRange] | None,
    ) -> None:
        """With ``log_end``, the log is searched up to there, without index files. Damaged records go to ``skipped``;
        None: they are raised."""
        self._commit_log = commit_log
        self._index = index
        self._blocks = blocks
        self._log_end = log_end
        self._is_aborted = is_aborted
        self._skipped = skipped

    def query(
        self,
        topic: str,
        key: str,
        begin: int,
        end: int,
        limit: int,
        *,
        below: int | None = None,
        verify_crc: bool = True,
        most_bytes: int = MAX_LONG,
    ) -> list[MessageExt]:
        """The newest ``limit`` messages stored within ``[begin, end]``, in the order of the log.

        With ``below``, of those that begin before that physical offset. The one whose body makes them more than
        ``most_bytes`` is the last that is read. ``CorruptIndex``, ``CorruptRecord``.
        """
        if self._log_end is not None:
            wanted = index_key_hash(f"{topic}#{key}")
            places = self._places_in_log(np.array([wanted]), begin, end)
            return self._newest_of(
                places.get(wanted, []), topic, key, limit, verify_crc=verify_crc, most_bytes=most_bytes
            )
        self._commit_log.refresh()
        found: dict[int, MessageExt] = {}
        size = 0
        clean = not self._is_aborted()
        for hit in self._index.candidates(topic, key, begin, end, strict=clean):
            offset = hit.physical_offset
            if offset in found or (below is not None and offset >= below) or 0 <= offset < self._commit_log.min_offset:
                continue
            message = self._message_of(hit, clean=clean, verify_crc=verify_crc)
            if message is not None and _has_key(message, topic, key) and begin <= message.store_timestamp <= end:
                found[offset] = message
                size += len(message.body)
                if len(found) == limit or size > most_bytes:
                    break
        return [found[offset] for offset in sorted(found)]

    def _message_of(self, hit: IndexHit, *, clean: bool, verify_crc: bool) -> MessageExt | None:
        """The message that an index entry names; None where it is lost, or damaged and skipped. Errors of ``query``."""
        offset = hit.physical_offset
        try:
            return self._message_at(offset, verify_crc=verify_crc)
        except MessageNotFound as error:
            # A crash may keep the index and lose the end of the log; retention may just have removed the head.
            if 0 <= offset < self._commit_log.min_offset or not clean:
                return None
            self._index.refuse_damaged_index(hit)
            raise CorruptIndex(
                "Physical offset of an entry",
                path=hit.path,
                offset=hit.position,
                expected="the place of a message",
                found=offset,
                advice="The index can be rebuilt from the CommitLog; the messages themselves are not affected.",
            ) from error
        except CorruptRecord as error:
            self._index.refuse_damaged_index(hit)
            self._refuse_or_skip(offset, error)
            return None

    def newest(
        self, topic: str, keys: pa.StringArray, below: int = MAX_LONG, *, check_crc: bool = True
    ) -> NewestPlaces:
        """The newest message of each key that begins before the physical offset ``below``.

        ``keys`` are distinct, and each could be one. ``check_crc=False`` takes messages whose bodies do not match their
        CRC, too. The errors of ``query``, and those of the index files.
        """
        places = NewestPlaces.none(len(keys))
        hashes = index_key_hashes([topic], np.zeros(len(keys), np.int8), keys)
        if self._log_end is not None:
            in_log = self._places_in_log(hashes)
            for row, (key, key_hash) in enumerate(zip(keys.to_pylist(), hashes.tolist(), strict=True)):
                found = self._newest_of(in_log.get(key_hash, []), topic, key, 1, verify_crc=check_crc)
                places.put(row, _place_of(found))
            return places
        self._commit_log.refresh()
        unusual = np.zeros(len(keys), np.bool_)
        for hits in self._index.hits_of(hashes):
            rows = np.flatnonzero((places.offsets < 0) & ~unusual)
            while len(rows):
                rows, offsets = hits.next_hits(rows)
                # Expired, or part of a batch that is being dispatched.
                passed = ((offsets >= 0) & (offsets < self._commit_log.min_offset)) | (offsets >= below)
                wanted = np.flatnonzero(~passed)
                _compare(self._blocks, topic, keys, rows[wanted], offsets[wanted], places, unusual, check_crc)
                rows = rows[(places.offsets[rows] < 0) & ~unusual[rows]]
            # A key that another file has answered, or that is unusual already, stays so.
            unusual |= hits.given_up & (places.offsets < 0)
            hits.release()
            if ((places.offsets >= 0) | unusual).all():
                break
        for row in np.flatnonzero(unusual).tolist():
            places.put(row, self._newest_alone(topic, keys[row].as_py(), below, check_crc))
        return places

    def batches(
        self,
        topic: str,
        keys: WantedKeys,
        places: NewestPlaces,
        columns: list[str],
        limits: BlockLimits,
        below: int,
        *,
        check_crc: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """The messages at ``places`` of the possible keys, one row for each key, in order; NULL in all columns for one
        that does not exist.

        A message whose body cannot be unpacked is looked up alone again, by its key. ``CorruptRecord``.
        """
        texts, places = keys.all, keys.of_all(places)
        decoder = BlockDecoder(topic, None, columns, limits, verify_crc=False)
        at = looked_up_again = 0
        while at < len(texts):
            ends = np.cumsum(places.sizes[at : at + limits.rows])
            stop = at + max(int(np.searchsorted(ends, limits.size, side="right")), 1)
            block = _in_key_order(self._blocks, places[at:stop])
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
                        raise _corrupt(self._blocks, int(part.messages.physical_offsets[0]), batch) from batch
                    for row in (at + np.flatnonzero(places.offsets[at:stop] >= 0)).tolist():
                        places.put(row, self._newest_alone(topic, texts[row].as_py(), below, check_crc))
                    looked_up_again = stop
                    break
                assert batch is not None  # every message is wanted
                decoded += len(part)
                end = stop if decoded == len(block) else int(rows[-1]) + 1
                yield _with_nulls(batch, rows - at, end - at)
                at = end

    def _newest_alone(self, topic: str, key: str, below: int, check_crc: bool) -> tuple[int, int] | None:
        """Physical offset and size of the newest message with a key; None without one."""
        return _place_of(self.query(topic, key, 0, MAX_LONG, 1, below=below, verify_crc=check_crc))

    def _places_in_log(
        self, wanted: npt.NDArray[np.integer[Any]], begin: int = 0, end: int = MAX_LONG
    ) -> dict[int, list[int]]:
        """The physical offsets of messages stored within ``[begin, end]`` that may have a key, by the key's hash."""
        assert self._log_end is not None
        log, places = self._commit_log, dict[int, list[int]]()
        for scan in walk_past_damage(log, log.min_offset, self._log_end, check_crc=False):
            if isinstance(scan, Gap):
                continue
            hashes, rows = index_entries(scan)
            times = scan.field("store_timestamp")[rows]
            hits = np.flatnonzero(np.isin(hashes, wanted) & (times >= begin) & (times <= end))
            found = (scan.positions[rows[hits]] + scan.physical_offset).tolist()
            for key_hash, place in zip(hashes[hits].tolist(), found, strict=True):
                places.setdefault(key_hash, []).append(place)
        return places

    def _newest_of(
        self,
        places: Sequence[int],
        topic: str,
        key: str,
        limit: int,
        *,
        verify_crc: bool,
        most_bytes: int = MAX_LONG,
    ) -> list[MessageExt]:
        """Of the messages at ``places`` of the log, in its order, the last ``limit`` that have the key.

        ``most_bytes`` is that of ``query``.
        """
        found: dict[int, MessageExt] = {}
        size = 0
        for place in reversed(places):
            if place in found:
                continue  # a key and a unique key may have the same hash
            record = self._commit_log.whole_record(place, verify_crc=verify_crc)
            if record is None:
                continue  # one of the log's gaps, which were reported
            try:
                message = message_of(record, self._commit_log.body(record))
            except CorruptRecord as error:
                self._refuse_or_skip(place, error)
                continue
            if _has_key(message, topic, key):
                found[place] = message
                size += len(message.body)
                if len(found) == limit or size > most_bytes:
                    break
        return list(found.values())[::-1]

    def _message_at(self, physical_offset: int, *, verify_crc: bool) -> MessageExt:
        record = self._commit_log.read_record(physical_offset, check_crc=verify_crc)
        return message_of(record, self._commit_log.body(record))

    def _refuse_or_skip(self, physical_offset: int, error: CorruptRecord) -> None:
        """Raise the damage of a record that may have the key; or log it, and report its message as skipped."""
        if self._skipped is None:
            raise error
        _logger.warning("A query skipped a record, which may have the key: %s", error)
        # Only a record whose body alone is damaged says which message it is.
        with contextlib.suppress(CorruptRecord, MessageNotFound):
            record = self._commit_log.read_without_body(physical_offset)
            skipped = SkippedRange(
                topic=decode_utf8(record.topic),
                queue_id=record.queue_id,
                start=record.queue_offset,
                stop=record.queue_offset + 1,
                physical_start=physical_offset,
                physical_stop=physical_offset + record.total_size,
                reason=str(error),
            )
            if skipped not in self._skipped:
                self._skipped.append(skipped)


def _has_key(message: MessageExt, topic: str, key: str) -> bool:
    return message.topic == topic and (key in message.keys or message.unique_key == key)


def _place_of(newest: list[MessageExt]) -> tuple[int, int] | None:
    return (newest[-1].physical_offset, newest[-1].store_size) if newest else None


def _compare(
    blocks: LogBlocks,
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
    limits = BlockLimits()
    decoder = BlockDecoder(topic, None, (), limits, verify_crc=True)
    for block in blocks.at_places(offsets, None, limits):
        messages = block.messages
        read[messages.ranges] = True
        block_rows = rows[messages.ranges]
        try:
            records = decoder.located(block)
            if check_crc:
                verify_crc(records)
        except RecordProblem:
            unusual[block_rows] = True
            continue
        match = carry_keys(records, topic, keys.take(pa.array(block_rows)))
        places.offsets[block_rows[match]] = messages.physical_offsets[match]
        places.sizes[block_rows[match]] = messages.sizes[match]
    unusual[rows[~read]] = True


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


def _corrupt(blocks: LogBlocks, physical_offset: int, problem: RecordProblem) -> CommitLogError:
    path, position = blocks.place_of(physical_offset)
    error = CorruptRecord(
        f"{problem.field} of the record at physical offset {physical_offset}",
        path=path,
        offset=position + problem.within,
        expected=problem.expected,
        found=problem.found,
    )
    return blocks.error_of_damaged_part(error, None, -1)
