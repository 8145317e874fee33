"""Record layout in bulk: bodies, properties and numbers to record bytes, joined by Arrow without a loop per record.

A record is joined from its fixed header, its body and its tail; the three fields that are known only when the records
have their place in the log (queue offset, physical offset, store time) can be patched afterwards.

Only the CRC takes a call per record: Arrow and numpy have no kernel for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store.columnar.arrow_bytes import strided_view
from commitlog_store.columnar.byte_parts import Part, binary_parts, crcs_of, fixed_width, join_rows, part_sizes
from commitlog_store.columnar.dispatch_keys import Hints
from commitlog_store.errors import InvalidValue
from commitlog_store.format.arrays import ByteArray, Int64Array
from commitlog_store.format.record import (
    CRC_MASK,
    HEADER_DTYPES,
    HOST_FLAGS,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_SIZE,
    PROPERTIES_LENGTH_SIZE,
    TOPIC_LENGTH_SIZE,
    field_offset,
)

_BINARY = pa.large_binary()
_OFFSETS = np.dtype([("queue_offset", ">i8"), ("physical_offset", ">i8")])
_STORED = np.dtype(">i8")
assert field_offset("physical_offset") == field_offset("queue_offset") + _STORED.itemsize


class TopicRows(NamedTuple):
    """A topic for each record: the distinct names, and which of them each row has."""

    names: Sequence[str]
    codes: npt.NDArray[np.int32]


@dataclass(frozen=True)
class EncodedRecords:
    """Records back to back: their bytes (writable), and where each starts (one number more than records)."""

    data: ByteArray
    starts: Int64Array

    @property
    def sizes(self) -> Int64Array:
        return np.diff(self.starts)


def new_headers(count: int, host_flags: int = 0) -> npt.NDArray[np.void]:
    """``count`` zeroed headers for hosts of the kinds in ``host_flags``, the two IPv6 bits, which are set in them."""
    headers = np.zeros(count, HEADER_DTYPES[host_flags & HOST_FLAGS])
    headers["sys_flag"] = host_flags & HOST_FLAGS
    return headers


def record_sizes(
    header_size: int, bodies: pa.LargeBinaryArray, topics: TopicRows, properties: Int64Array | int
) -> Int64Array:
    """The bytes of every record; ``properties`` are the bytes of its properties."""
    bounds = binary_parts(bodies)[0]
    sizes = bounds[1:] - bounds[:-1] + (header_size + PROPERTIES_LENGTH_SIZE)
    sizes += properties
    fields = np.array([len(_topic_field(name)[1]) for name in topics.names], np.int64)
    if len(fields):
        sizes += fields[0] if len(fields) == 1 else fields[topics.codes]
    return sizes


def encode_records(
    headers: npt.NDArray[np.void], bodies: pa.LargeBinaryArray, topics: TopicRows, properties: Sequence[Part]
) -> EncodedRecords:
    """Records whose properties are joined from parts; topics of more than 127 bytes make records of version 2.

    ``headers`` give all fields but sizes, magic code and CRC, which are computed into them. Nothing is null, and no
    record has more properties than fit. ``InvalidValue`` for a topic that fits no record.
    """
    encoded_topics = [_topic_field(name) for name in topics.names]
    magics = np.array([magic for magic, _ in encoded_topics], np.uint32)
    fields = [field for _, field in encoded_topics]
    is_one = len(fields) == 1
    property_sizes = sum(map(part_sizes, properties))
    headers["total_size"] = record_sizes(headers.dtype.itemsize, bodies, topics, property_sizes)
    headers["magic"] = magics[0] if is_one else magics[topics.codes]
    headers["body_crc"] = crcs_of(bodies) & CRC_MASK
    headers["body_length"] = part_sizes(bodies)
    property_lengths = np.empty(len(headers), ">u2")
    property_lengths[:] = property_sizes
    parts: list[Part] = [
        fixed_width(headers),
        bodies,
        fields[0] if is_one else pa.array(fields, _BINARY).take(pa.array(topics.codes)),
        fixed_width(property_lengths),
        *properties,
    ]
    starts, data = join_rows(parts, len(headers))
    return EncodedRecords(data, starts)


def _topic_field(topic: str) -> tuple[int, bytes]:
    """The magic code of a topic's records, and their topic with its length before it."""
    data = topic.encode("utf-8")
    if not 0 < len(data) <= MAX_TOPIC_SIZE[MAGIC_V2]:
        raise InvalidValue(f"Topic {topic!r} has {len(data)} bytes: 1 to {MAX_TOPIC_SIZE[MAGIC_V2]} fit a record.")
    magic = MAGIC_V1 if len(data) <= MAX_TOPIC_SIZE[MAGIC_V1] else MAGIC_V2
    return magic, len(data).to_bytes(TOPIC_LENGTH_SIZE[magic], "big") + data


def patch_late_fields(
    records: EncodedRecords,
    *,
    host_flags: int,
    queue_offsets: Int64Array,
    physical_offsets: Int64Array,
    store_timestamps: Int64Array | int,
) -> EncodedRecords:
    """The records with the late fields, which are known only under the put lock, when their place is decided.

    ``store_timestamps`` may be one for all.
    The physical offsets are each row's own: records may be placed apart, as where a file ends between them.
    """
    data = records.data if records.data.flags.writeable else records.data.copy()
    # The two offsets stand side by side, so one scatter writes both.
    pairs = np.empty(len(queue_offsets), _OFFSETS)
    pairs["queue_offset"], pairs["physical_offset"] = queue_offsets, physical_offsets
    starts = records.starts[:-1]
    stride = int(starts[1] - starts[0]) if len(starts) > 1 else 0
    if not (stride and (starts[1:] - starts[:-1] == stride).all()):
        stride = 0
    _scatter(data, starts, stride, field_offset("queue_offset"), pairs)
    stored = np.asarray(store_timestamps, _STORED)
    _scatter(data, starts, stride, field_offset("store_timestamp", host_flags), stored)
    return EncodedRecords(data, records.starts)


def move_records(data: ByteArray, starts: Int64Array, queue_offsets: Int64Array, physical_offsets: Int64Array) -> None:
    """Give whole records other places: QUEUEOFFSET and PHYSICALOFFSET are written into ``data``.

    ``starts`` is where each record starts in ``data``.
    """
    pairs = np.empty(len(starts), _OFFSETS)
    pairs["queue_offset"], pairs["physical_offset"] = queue_offsets, physical_offsets
    _scatter(data, starts, 0, field_offset("queue_offset"), pairs)


def _scatter(data: ByteArray, starts: Int64Array, stride: int, offset: int, values: npt.NDArray[np.generic]) -> None:
    """Write the bytes of each value at ``offset`` after each start; one value may be for all.

    ``stride`` is the distance between the starts, 0 where it varies.
    """
    width = values.dtype.itemsize
    raw = values.view(f"V{width}")
    if stride:
        # Several times faster than a place for each row.
        np.ndarray((len(starts),), f"V{width}", data.data, int(starts[0]) + offset, (stride,))[...] = raw
    else:
        strided_view(data, width)[starts + offset] = raw


@dataclass(frozen=True)
class QueuedRecords:
    """Records whose late fields are zero. ``queue_codes`` is each record's place in ``queues``: topic and queue id.

    With ``hints`` dispatch need not read the records; None for records that it has to read.
    """

    records: EncodedRecords
    host_flags: int
    queues: list[tuple[str, int]]
    queue_codes: Int64Array
    hints: Hints | None

    def __len__(self) -> int:
        """The number of records."""
        return len(self.queue_codes)
