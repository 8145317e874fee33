"""Locates and checks many records at once, the first step of reading: gathers headers and follows lengths.

``gather_headers`` and ``follow_lengths`` find the parts of records whose places and sizes are known, without a loop per
record; every length is checked against the record's size before it is followed. ``locate`` does so for records that a
consume queue names, and checks them against its units. The result, a ``RecordBlock``, is the input of ``decode``.
``scan`` does so for the records of a stretch of the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store.columnar.arrow_bytes import all_equal, gather_binary, strided_view
from commitlog_store.columnar.properties import PropertyRows
from commitlog_store.format import arrow_compute as pc
from commitlog_store.format.arrays import BoolArray, ByteArray, Int32Array, Int64Array
from commitlog_store.format.properties import decode_utf8
from commitlog_store.format.record import (
    HEADER_DTYPES,
    HEADER_SIZE,
    HOST_FLAGS,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_SIZE,
    MIN_RECORD_SIZE,
    PROPERTIES_LENGTH_SIZE,
    TOPIC_LENGTH_SIZE,
    field_offset,
    header_size,
)
from commitlog_store.java_numbers import MAX_INT

# By the host bits of the system flag.
_HEADER_SIZES = np.array([header_size(flags) for flags in range(HOST_FLAGS + 1)], np.int64)


class RecordProblem(Exception):
    """A record contradicts the format or its unit: record ``index`` of the block, ``within`` bytes from its start.

    Pure code has no path. The log adds it and raises ``CorruptRecord``; this one never leaves the package.
    """

    def __init__(self, field: str, *, index: int, within: int, expected: object, found: object) -> None:
        super().__init__(f"{field}: expected {expected}, found {found}")
        self.field = field
        self.index = index
        self.within = within
        self.expected = expected
        self.found = found


@dataclass(frozen=True, kw_only=True)
class QueuePlace:
    """The queue that led to records, and the offsets of its units: the records must agree with them. Records of several
    queues have a ``queue_id`` each, those of several topics a ``topic`` each.

    ``shared`` queues (light queues, fed by multi-dispatch) point to records that belong to another queue and name
    that one; then only the positions and sizes are checked, and the columns show the queue that was read.
    """

    topic: str | pa.StringArray
    queue_id: int | Int32Array
    queue_offsets: Int64Array
    shared: bool = False

    def take(self, rows: Int64Array) -> QueuePlace:
        """The place of some of the records, in the order given."""
        return QueuePlace(
            topic=self.topic if isinstance(self.topic, str) else self.topic.take(pa.array(rows)),
            queue_id=self.queue_id if isinstance(self.queue_id, int) else self.queue_id[rows],
            queue_offsets=self.queue_offsets[rows],
            shared=self.shared,
        )

    @property
    def encoded_topic(self) -> bytes | pa.BinaryArray | None:
        """What the records name as their topic; None where they may name another."""
        if self.shared:
            return None
        return self.topic.encode("utf-8") if isinstance(self.topic, str) else self.topic.cast(pa.binary())


class RecordParts(NamedTuple):
    """Starts (within the bytes of a scan or block) and lengths of the parts of records; one value a record."""

    body_starts: Int64Array
    body_lengths: Int64Array
    topic_starts: Int64Array
    topic_lengths: Int64Array
    properties_starts: Int64Array
    properties_lengths: Int64Array

    def take(self, rows: Int64Array) -> RecordParts:
        """The parts of some of the records, in the order given."""
        return RecordParts(*(values[rows] for values in self))


@dataclass(frozen=True, kw_only=True)
class LocatedRecords:
    """Checked records within one stretch of bytes; every array has one value a record.

    ``headers`` has the layout of ``record.HEADER_DTYPES``: that of IPv4 hosts when all records have these, else the
    widest.
    """

    data: ByteArray
    headers: npt.NDArray[np.void]
    sizes: Int64Array
    parts: RecordParts

    def field(self, name: str) -> npt.NDArray[Any]:
        """A header field of every record, in native byte order."""
        values = self.headers[name]
        return values.astype(values.dtype.newbyteorder("="))


@dataclass(frozen=True, kw_only=True)
class RecordBlock(LocatedRecords):
    """Records of a queue, or of several."""

    place: QueuePlace
    body_limit: int

    def take(self, rows: Int64Array) -> RecordBlock:
        """Some of the records, in the order given."""
        return replace(
            self,
            headers=self.headers[rows],
            sizes=self.sizes[rows],
            parts=self.parts.take(rows),
            place=self.place.take(rows),
        )

    @cached_property
    def properties(self) -> PropertyRows:
        return PropertyRows(gather_binary(self.data, self.parts.properties_starts, self.parts.properties_lengths))

    @cached_property
    def stored_bodies(self) -> pa.BinaryArray:
        """The bodies as stored in the log, perhaps compressed."""
        return gather_binary(self.data, self.parts.body_starts, self.parts.body_lengths)

    def where(self, field: str, index: int) -> int:
        """The distance of a header field from its record's start."""
        return field_offset(field, int(self.sys_flags[index]))

    @cached_property
    def sys_flags(self) -> npt.NDArray[np.int32]:
        return self.field("sys_flag")


def _first(bad: BoolArray) -> int:
    return int(np.argmax(bad))


def require(
    ok: BoolArray, field: str, within: int | Int64Array, expected: Callable[[int], object], found: npt.NDArray[Any]
) -> None:
    """Every value must be ``ok``. ``within`` is the field's distance from its record's start, in all or in each."""
    if not ok.all():
        index = _first(~ok)
        raise RecordProblem(
            field,
            index=index,
            within=within if isinstance(within, int) else int(within[index]),
            expected=expected(index),
            found=found[index].item(),
        )


def gather_headers(
    data: ByteArray, positions: Int64Array, sizes: Int64Array
) -> tuple[npt.NDArray[np.void], Int64Array]:
    """The headers, and each one's size on disk.

    Their layout is that of IPv4 hosts when all have these, else the one with room for every host. The records lie
    within ``data`` and take at least ``MIN_RECORD_SIZE``; ``RecordProblem`` for one too short for its IPv6 hosts.
    """
    headers = strided_view(data, HEADER_SIZE)[positions].view(HEADER_DTYPES[0])
    host_flags = headers["sys_flag"] & HOST_FLAGS
    if not host_flags.any():
        return headers, np.full(len(positions), HEADER_SIZE, np.int64)
    wide = np.zeros(len(positions), HEADER_DTYPES[HOST_FLAGS])
    head_sizes = _HEADER_SIZES[host_flags]
    least = head_sizes + MIN_RECORD_SIZE - HEADER_SIZE
    require(sizes >= least, "TOTALSIZE", 0, lambda i: f"at least {int(least[i])} with these hosts", sizes)
    for flags in np.unique(host_flags).tolist():
        rows = np.flatnonzero(host_flags == flags)
        part = strided_view(data, header_size(flags))[positions[rows]].view(HEADER_DTYPES[flags])
        for name in part.dtype.names or ():
            if name.endswith("_ip"):
                narrow = part[name].dtype.itemsize
                target = np.zeros((len(rows), 16), np.uint8)
                target[:, :narrow] = np.ascontiguousarray(part[name]).view(np.uint8).reshape(-1, narrow)
                wide[name][rows] = target.view("V16").reshape(-1)
            else:
                wide[name][rows] = part[name]
    return wide, head_sizes


def locate(
    data: ByteArray,
    positions: Int64Array,
    sizes: Int64Array,
    physical_offsets: Int64Array,
    place: QueuePlace,
    *,
    body_limit: int = MAX_INT,
) -> RecordBlock:
    """Check the records at ``positions`` of ``data``.

    ``sizes`` and ``physical_offsets`` are the consume queue's. Raises ``RecordProblem`` for the first record that
    contradicts its unit, the queue or itself; no length is followed before it was checked. ``body_limit`` is the most
    bytes of unpacked bodies that a batch of the block may hold.
    """
    require(sizes >= MIN_RECORD_SIZE, "SIZE of the unit", 0, lambda _: f"at least {MIN_RECORD_SIZE}", sizes)
    require(
        (positions >= 0) & (positions + sizes <= len(data)),
        "SIZE of the unit",
        0,
        lambda i: f"at most the {len(data) - int(positions[i])} bytes that are left of the file",
        sizes,
    )
    headers, head_sizes = gather_headers(data, positions, sizes)
    _check_headers(headers, sizes, physical_offsets, place)
    parts = follow_lengths(data, positions, sizes, headers, head_sizes, topic=place.encoded_topic)
    return RecordBlock(data=data, headers=headers, sizes=sizes, parts=parts, place=place, body_limit=body_limit)


def follow_lengths(
    data: ByteArray,
    positions: Int64Array,
    sizes: Int64Array,
    headers: npt.NDArray[np.void],
    head_sizes: Int64Array,
    *,
    topic: bytes | pa.BinaryArray | None,
) -> RecordParts:
    """Follow the lengths from the headers to the ends of the records, of v1 or v2, whose sizes have been checked.

    The records must name ``topic``, that of all or one each, unless it is None. Raises ``RecordProblem``. Fields are
    checked one after another: an earlier record may be wrong in a later field.
    """
    body_lengths = headers["body_length"].astype(np.int64)
    # The bytes left in each record for its body, its topic and its properties, after their lengths.
    room = sizes - head_sizes - PROPERTIES_LENGTH_SIZE - _topic_length_sizes(headers["magic"])
    require(
        (body_lengths >= 0) & (body_lengths <= room),
        "BODYLENGTH",
        head_sizes - headers["body_length"].dtype.itemsize,
        lambda i: f"0 to {int(room[i])}",
        body_lengths,
    )
    body_starts = positions + head_sizes
    tails = _Tails(data, positions, headers["magic"], body_starts + body_lengths, room - body_lengths)
    return RecordParts(body_starts, body_lengths, *tails.follow(topic))


def _check_headers(
    headers: npt.NDArray[np.void],
    sizes: Int64Array,
    physical_offsets: Int64Array,
    place: QueuePlace,
) -> None:
    magic = headers["magic"]
    known = (magic == MAGIC_V1) | (magic == MAGIC_V2)
    require(known, "MAGICCODE", field_offset("magic"), lambda _: f"{MAGIC_V1} or {MAGIC_V2}", magic)
    own: list[tuple[str, Int64Array | Int32Array | int]] = [
        ("total_size", sizes),
        ("physical_offset", physical_offsets),
    ]
    if not place.shared:
        own += [("queue_offset", place.queue_offsets), ("queue_id", place.queue_id)]
    for name, wanted in own:
        found = headers[name]
        label = name.replace("_", "").upper()
        require(found == wanted, label, field_offset(name), partial(_wanted_at, wanted), found)


def _wanted_at(wanted: Int64Array | Int32Array | int, index: int) -> int:
    return wanted if isinstance(wanted, int) else int(wanted[index])


def _topic_length_sizes(magic: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    return np.where(magic == MAGIC_V2, TOPIC_LENGTH_SIZE[MAGIC_V2], TOPIC_LENGTH_SIZE[MAGIC_V1])


@dataclass(frozen=True)
class _Tails:
    """The parts after the bodies: topic length, topic, properties length, properties.

    ``starts`` is where the topic lengths stand, ``left`` the required bytes of topic and properties.
    """

    data: ByteArray
    positions: Int64Array
    magic: npt.NDArray[np.uint32]
    starts: Int64Array
    left: Int64Array

    def follow(self, topic: bytes | pa.BinaryArray | None) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        """Starts and lengths of topics and properties; the records must name ``topic`` unless it is None."""
        likely = topic if isinstance(topic, bytes) else self._first_topic() if topic is None else None
        if likely is not None and self._all_name(likely):
            topic_starts = self.starts + TOPIC_LENGTH_SIZE[MAGIC_V1]
            topic_lengths = np.full(len(self.starts), len(likely), np.int64)
        else:
            topic_starts, topic_lengths = self._pass_topics(topic)
        lengths_at, left = topic_starts + topic_lengths, self.left - topic_lengths
        lengths = strided_view(self.data, PROPERTIES_LENGTH_SIZE)[lengths_at].view(">i2").astype(np.int64)
        self._require_at(lengths == left, "PROPERTIESLENGTH", lengths_at, lambda i: int(left[i]), lengths)
        return topic_starts, topic_lengths, lengths_at + PROPERTIES_LENGTH_SIZE, lengths

    def _first_topic(self) -> bytes | None:
        """The first record's topic if it is v1: neighbours often share it."""
        if not len(self.starts):
            return None
        start = int(self.starts[0])
        # A wrong length gives other bytes, which are then not found everywhere.
        return self.data[start + 1 : start + 1 + int(self.data[start])].tobytes()

    def _require_at(
        self, ok: BoolArray, field: str, at: Int64Array, expected: Callable[[int], object], found: Int64Array
    ) -> None:
        if not ok.all():
            require(ok, field, at - self.positions, expected, found)

    def _all_name(self, topic: bytes) -> bool:
        """The common case in one comparison: v1 records, all with this very topic."""
        return (
            len(topic) <= MAX_TOPIC_SIZE[MAGIC_V1]
            and bool((self.magic == MAGIC_V1).all())
            and bool((self.left >= len(topic)).all())
            and all_equal(self.data, self.starts, bytes([len(topic)]) + topic)
        )

    def _pass_topics(self, topic: bytes | pa.BinaryArray | None) -> tuple[Int64Array, Int64Array]:
        """Starts and lengths of the topics, read one length each."""
        wide = self.magic == MAGIC_V2
        lengths = self.data[self.starts].astype(np.int64)
        lengths = np.where(wide, lengths << 8 | self.data[self.starts + wide], lengths)
        longest = np.minimum(self.left, np.where(wide, MAX_TOPIC_SIZE[MAGIC_V2], MAX_TOPIC_SIZE[MAGIC_V1]))
        self._require_at(lengths <= longest, "TOPICLENGTH", self.starts, lambda i: f"0 to {int(longest[i])}", lengths)
        topic_starts = self.starts + _topic_length_sizes(self.magic)
        if topic is not None:
            self._compare_topics(topic_starts, lengths, topic)
        return topic_starts, lengths

    def _compare_topics(self, starts: Int64Array, lengths: Int64Array, topic: bytes | pa.BinaryArray) -> None:
        found = gather_binary(self.data, starts, lengths)
        wanted = pa.scalar(topic, pa.binary()) if isinstance(topic, bytes) else topic
        other = pc.not_equal(found, wanted).to_numpy(zero_copy_only=False)
        if other.any():
            index = _first(other)
            raise RecordProblem(
                "TOPIC",
                index=index,
                within=int(starts[index] - self.positions[index]),
                expected=repr(decode_utf8(topic if isinstance(topic, bytes) else topic[index].as_py())),
                found=repr(decode_utf8(found[index].as_py())),
            )
