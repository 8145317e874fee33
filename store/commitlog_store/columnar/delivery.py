"""Delivered copies of delayed messages: from the records that wait in ``SCHEDULE_TOPIC_XXXX``, or for the timer in
``rmq_sys_wheel_timer``, to records of their real topics.

Copied are body, flag, system flag (compression and kinds of hosts included), born time and host, store host, reconsume
times and the property string, with DELAY, REAL_TOPIC and REAL_QID in it. Topic and queue are those of REAL_TOPIC and
REAL_QID; the prepared transaction offset is 0. ``__CRC32#``, a checksum of the waiting record, is left out.

A record that cannot be delivered is left out with its reason, and so blocks nothing.

Source: RocketMQ ``schedule/ScheduleMessageService.java`` (``messageTimeup``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store.columnar.arrow_bytes import gather_binary
from commitlog_store.columnar.byte_parts import large_binary_of
from commitlog_store.columnar.locate import QueuePlace, RecordBlock, RecordProblem, locate
from commitlog_store.columnar.records import EncodedRecords, TopicRows, encode_records
from commitlog_store.columnar.staged_block import StagedBlock
from commitlog_store.format.arrays import ByteArray, Int64Array
from commitlog_store.format.checksum import crc32
from commitlog_store.format.properties import CRC32, REAL_QID, REAL_TOPIC
from commitlog_store.format.record import HEADER_DTYPES, HOST_FLAGS
from commitlog_store.format.sys_flag import has_queue_unit
from commitlog_store.paths import MAX_QUEUE_ID

# Fields of the header that the copy has from the waiting record. All others are zero, or computed.
_COPIED = ("flag", "sys_flag", "born_timestamp", "born_ip", "born_port", "store_ip", "store_port", "reconsume_times")
_QUEUE_ID = re.compile(r"\+?[0-9]{1,10}", re.ASCII)
_CRC_ENTRY = re.compile(rb"(?:\A|(?<=\x02))" + CRC32.encode() + rb"\x01[^\x02]*(?:\x02|\Z)")


class WaitingRecords(NamedTuple):
    """Records of one queue in which messages wait: bytes that hold them, and where; one value a record."""

    data: ByteArray
    positions: Int64Array
    sizes: Int64Array
    physical_offsets: Int64Array
    queue_offsets: Int64Array


class Undeliverable(NamedTuple):
    """A message that waits and cannot be delivered, and why, as the end of a sentence."""

    queue_offset: int
    physical_offset: int
    reason: str


@dataclass
class Deliveries:
    """Copies ready to be appended, in the order in which they waited, and the messages that are left out."""

    blocks: list[StagedBlock] = field(default_factory=list)
    skipped: list[Undeliverable] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """The number of copies."""
        return sum(map(len, self.blocks))

    def by_topic(self) -> Counter[str]:
        """The number of copies for each topic."""
        found: Counter[str] = Counter()
        for block in self.blocks:
            counts = np.bincount(block.queue_codes, minlength=len(block.queues)).tolist()
            for (topic, _), count in zip(block.queues, counts, strict=True):
                found[topic] += count
        return found


class TopicRules(Protocol):
    """Which topics get messages."""

    def fault(self, topic: str, /) -> str | None:
        """Why no message may go to a topic, as the end of a sentence; None where it may."""

    def deleted_before(self, topic: str, /) -> int:
        """The physical offset before which the topic's messages are deleted, the waiting ones too."""


def deliver(waiting: WaitingRecords, queue: tuple[str, int], rules: TopicRules, largest_record: int) -> Deliveries:
    """The copies of records that wait in ``queue``, a topic and an id. ``largest_record`` in bytes."""
    found = Deliveries()
    for block, physical in whole_blocks(waiting, queue, found.skipped):
        _deliver_block(block, physical, rules, largest_record, found)
    found.skipped.sort()
    return found


def count_by_topic(waiting: WaitingRecords, queue: tuple[str, int], rules: TopicRules) -> Counter[str]:
    """The number of waiting records by the topic that they go to; without those that name none, and deleted ones."""
    found: Counter[str] = Counter()
    for block, physical in whole_blocks(waiting, queue, []):
        topics = block.properties.text(REAL_TOPIC).dictionary_encode()
        codes = _codes(topics)
        for code, topic in enumerate(topics.dictionary.to_pylist()):
            if count := int(np.count_nonzero((codes == code) & (physical >= rules.deleted_before(topic)))):
                found[topic] += count
    return found


def whole_blocks(
    waiting: WaitingRecords, queue: tuple[str, int], skipped: list[Undeliverable]
) -> Iterator[tuple[RecordBlock, Int64Array]]:
    """The records that agree with their units, and their physical offsets; damaged ones are found by halving."""
    return _whole_blocks(waiting, np.arange(len(waiting.sizes)), queue, skipped)


def _whole_blocks(
    waiting: WaitingRecords, rows: Int64Array, queue: tuple[str, int], skipped: list[Undeliverable]
) -> Iterator[tuple[RecordBlock, Int64Array]]:
    if not len(rows):
        return
    place = QueuePlace(topic=queue[0], queue_id=queue[1], queue_offsets=waiting.queue_offsets[rows])
    physical = waiting.physical_offsets[rows]
    try:
        yield locate(waiting.data, waiting.positions[rows], waiting.sizes[rows], physical, place), physical
    except RecordProblem as problem:
        if len(rows) == 1:
            reason = f"its record is damaged ({problem})"
            skipped.append(Undeliverable(int(waiting.queue_offsets[rows[0]]), int(physical[0]), reason))
            return
        half = len(rows) // 2
        yield from _whole_blocks(waiting, rows[:half], queue, skipped)
        yield from _whole_blocks(waiting, rows[half:], queue, skipped)


class _Targets(NamedTuple):
    """Where the records of a block go: distinct topics, each record's place among them, and queue ids."""

    names: list[str]
    codes: npt.NDArray[np.int32]
    queue_ids: Int64Array


def _deliver_block(
    block: RecordBlock, physical: Int64Array, rules: TopicRules, largest_record: int, found: Deliveries
) -> None:
    reasons: dict[int, str] = {}
    targets = _targets(block, physical, rules, reasons)
    flags = block.sys_flags & HOST_FLAGS
    rows = np.flatnonzero(~np.isin(np.arange(len(physical)), list(reasons)))
    # Records of one kind of hosts follow each other in a block of the log; nearly always they are all of one kind.
    cuts = (np.flatnonzero(np.diff(flags[rows])) + 1).tolist() if len(rows) else []
    for start, stop in pairwise([0, *cuts, len(rows)]):
        staged = _copies(block, rows[start:stop], targets, largest_record, reasons)
        if staged is not None:
            found.blocks.append(staged)
    offsets = block.place.queue_offsets
    found.skipped += [Undeliverable(int(offsets[row]), int(physical[row]), why) for row, why in reasons.items()]


def _targets(block: RecordBlock, physical: Int64Array, rules: TopicRules, reasons: dict[int, str]) -> _Targets:
    """Topics and queues by the properties of the records; ``reasons`` gets the rows that name none."""
    topics = block.properties.text(REAL_TOPIC).dictionary_encode()
    ids = block.properties.text(REAL_QID).dictionary_encode()
    names = topics.dictionary.to_pylist()
    faults = [rules.fault(name) for name in names]
    numbers = [_queue_id(text) for text in ids.dictionary.to_pylist()]
    topic_codes, id_codes = (_codes(column) for column in (topics, ids))
    bad_topics = np.array([fault is not None for fault in faults] + [True])
    bad_ids = np.array([number < 0 for number in numbers] + [True])
    unsent = ~has_queue_unit(block.sys_flags)
    deleted = physical < np.array([rules.deleted_before(name) for name in names] + [0])[topic_codes]
    for row in np.flatnonzero(bad_topics[topic_codes] | bad_ids[id_codes] | unsent | deleted).tolist():
        if topic_codes[row] < 0:
            reasons[row] = f"it has no {REAL_TOPIC}"
        elif faults[topic_codes[row]] is not None:
            reasons[row] = f"{faults[topic_codes[row]]}"
        elif id_codes[row] < 0:
            reasons[row] = f"it has no {REAL_QID}"
        elif bad_ids[id_codes[row]]:
            reasons[row] = f"its {REAL_QID} is {ids.dictionary[int(id_codes[row])].as_py()[:40]!r}"
        elif unsent[row]:
            reasons[row] = "it is a half message, or one that was rolled back"
        else:
            reasons[row] = f"its topic {names[topic_codes[row]]!r} was deleted after it was put"
    queue_ids = np.array([*numbers, -1], np.int64)[id_codes]
    # A name that no record has room for must not reach the encoder.
    usable = [name if fault is None else "-" for name, fault in zip(names, faults, strict=True)]
    return _Targets(usable, topic_codes, queue_ids)


def _codes(column: pa.DictionaryArray) -> npt.NDArray[np.int32]:
    """The place of each value among the distinct ones; -1 for a null."""
    return np.asarray(column.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int32)


def _queue_id(text: str) -> int:
    """The number of a queue as Java reads an int; -1 for a text that names no queue."""
    number = int(text) if _QUEUE_ID.fullmatch(text) else -1
    return number if number <= MAX_QUEUE_ID else -1


def _copies(
    block: RecordBlock, rows: Int64Array, targets: _Targets, largest_record: int, reasons: dict[int, str]
) -> StagedBlock | None:
    """The copies of ``rows``, which have hosts of one kind. None without any."""
    while len(rows):
        records, crcs = _encode(block, rows, targets)
        bad = crcs != block.field("body_crc")[rows]
        too_long = records.sizes > largest_record
        for row in rows[bad].tolist():
            reasons[row] = "its body does not have the CRC that its record holds"
        for row in rows[too_long & ~bad].tolist():
            reasons[row] = f"with the name of its topic it takes more than the {largest_record} bytes of a record"
        if not (bad | too_long).any():
            return _staged(records, rows, block, targets)
        rows = rows[~(bad | too_long)]
    return None


def _encode(block: RecordBlock, rows: Int64Array, targets: _Targets) -> tuple[EncodedRecords, Int64Array]:
    """The records, and the CRCs of their bodies."""
    host_flags = int(block.sys_flags[rows[0]]) & HOST_FLAGS
    headers = np.zeros(len(rows), HEADER_DTYPES[host_flags])
    given = block.headers[rows]
    for name in _COPIED:
        headers[name] = _narrowed(given[name], headers.dtype[name])
    headers["queue_id"] = targets.queue_ids[rows]
    bodies = large_binary_of(gather_binary(block.data, block.parts.body_starts[rows], block.parts.body_lengths[rows]))
    topics, properties = TopicRows(targets.names, targets.codes[rows]), large_binary_of(_properties(block, rows))
    return encode_records(headers, bodies, topics, [properties]), headers["body_crc"].astype(np.int64)


def _narrowed(values: npt.NDArray[np.generic], kind: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """Hosts as wide as ``kind``: beside records with IPv6 hosts, IPv4 ones were gathered with room for them."""
    if values.dtype.itemsize == kind.itemsize:
        return values
    wide = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
    return np.ascontiguousarray(wide[:, : kind.itemsize]).view(kind).reshape(-1)


def _properties(block: RecordBlock, rows: Int64Array) -> pa.Array:
    """The property strings as they are, without a checksum of the waiting record."""
    strings = gather_binary(block.data, block.parts.properties_starts[rows], block.parts.properties_lengths[rows])
    if block.properties.text(CRC32).null_count == len(block.sizes):
        return strings
    return pa.array([_CRC_ENTRY.sub(b"", text) for text in strings.to_pylist()], pa.binary())


def _staged(records: EncodedRecords, rows: Int64Array, block: RecordBlock, targets: _Targets) -> StagedBlock:
    host_flags = int(block.sys_flags[rows[0]]) & HOST_FLAGS
    pairs = targets.codes[rows].astype(np.int64) << 32 | targets.queue_ids[rows]
    used, codes = np.unique(pairs, return_inverse=True)
    queues = [(targets.names[pair >> 32], pair & 0xFFFF_FFFF) for pair in used.tolist()]
    crc = crc32(records.data.data)
    return StagedBlock(records, host_flags, queues, codes.astype(np.int64).reshape(-1), None, crc)
