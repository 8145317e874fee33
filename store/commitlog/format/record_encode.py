"""Many records at once: bodies, properties and numbers to record bytes, laid out by Arrow without a loop per record.

A record is joined from its fixed header, its body and its tail; the three fields that are known only when the records
have their place in the log (queue offset, physical offset, store time) can be patched afterwards.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from commitlog.errors import InvalidValue
from commitlog.format.binary_gather import strided_view
from commitlog.format.properties import MAX_PROPERTIES_SIZE
from commitlog.format.record import (
    CRC_MASK,
    HEADER_DTYPES,
    HOST_FLAGS,
    LATE_FIELDS,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_SIZE,
    PROPERTIES_LENGTH_SIZE,
    TOPIC_LENGTH_SIZE,
)

__all__ = ["EncodedRecords", "encode_records", "new_headers", "patch_late_fields"]


@dataclass(frozen=True)
class EncodedRecords:
    """Records back to back: their bytes (writable), and where each starts (one number more than there are records)."""

    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        return np.diff(self.starts)


def new_headers(count: int, host_flags: int = 0) -> npt.NDArray[np.void]:
    """``count`` zeroed headers, for hosts as the two IPv6 bits of the system flag say; the bits are set in them."""
    headers = np.zeros(count, HEADER_DTYPES[host_flags & HOST_FLAGS])
    headers["sys_flag"] = host_flags & HOST_FLAGS
    return headers


def encode_records(
    headers: npt.NDArray[np.void], bodies: pa.BinaryArray, topic: str, properties: pa.BinaryArray
) -> EncodedRecords:
    """Records of one topic. ``headers`` give all fields but sizes, magic code and CRC, which are computed into them.

    ``InvalidValue`` for a topic or properties that are too long, naming the first row.
    """
    topic_bytes = topic.encode("utf-8")
    if not 0 < len(topic_bytes) <= MAX_TOPIC_SIZE[MAGIC_V2]:
        raise InvalidValue(
            f"Topic {topic!r} has {len(topic_bytes)} bytes: 1 to {MAX_TOPIC_SIZE[MAGIC_V2]} fit a record."
        )
    magic = MAGIC_V1 if len(topic_bytes) <= MAX_TOPIC_SIZE[MAGIC_V1] else MAGIC_V2
    prefix = TOPIC_LENGTH_SIZE[magic]
    body_sizes = pc.binary_length(bodies).to_numpy(zero_copy_only=False).astype(np.int64)
    property_sizes = pc.binary_length(properties).to_numpy(zero_copy_only=False).astype(np.int64)
    if len(headers) and property_sizes.max() > MAX_PROPERTIES_SIZE:
        row = int(np.argmax(property_sizes > MAX_PROPERTIES_SIZE))
        raise InvalidValue(
            f"Properties of row {row} have {int(property_sizes[row])} bytes, at most {MAX_PROPERTIES_SIZE} fit."
        )
    sizes = headers.dtype.itemsize + body_sizes + prefix + len(topic_bytes) + PROPERTIES_LENGTH_SIZE + property_sizes
    headers["total_size"] = sizes
    headers["magic"] = magic
    headers["body_crc"] = _crcs(bodies)
    headers["body_length"] = body_sizes
    width = headers.dtype.itemsize
    header_array = pa.Array.from_buffers(pa.binary(width), len(headers), [None, pa.py_buffer(headers)])
    lengths = pa.Array.from_buffers(
        pa.binary(PROPERTIES_LENGTH_SIZE),
        len(headers),
        [None, pa.py_buffer(np.ascontiguousarray(property_sizes, dtype=">u2"))],
    )
    whole = pc.binary_join_element_wise(
        header_array.cast(pa.large_binary()),
        bodies.cast(pa.large_binary()),
        pa.scalar(len(topic_bytes).to_bytes(prefix, "big") + topic_bytes, pa.large_binary()),
        lengths.cast(pa.large_binary()),
        properties.cast(pa.large_binary()),
        pa.scalar(b"", pa.large_binary()),
    )
    starts = np.zeros(len(headers) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    data = whole.buffers()[2]
    # Arrow may give a buffer that is longer than what stands in it.
    raw = np.frombuffer(data, np.uint8)[: starts[-1]] if data is not None else np.zeros(0, np.uint8)
    return EncodedRecords(raw, starts)


def _crcs(bodies: pa.BinaryArray) -> npt.NDArray[np.int64]:
    _, offsets, data = bodies.buffers()
    bounds = np.frombuffer(offsets, np.int32)[bodies.offset : bodies.offset + len(bodies) + 1].tolist()
    view = memoryview(data) if data is not None else memoryview(b"")
    crc32 = zlib.crc32
    return np.fromiter(
        (crc32(view[start:end]) & CRC_MASK for start, end in pairwise(bounds)),
        np.int64,
        len(bodies),
    )


def patch_late_fields(
    records: EncodedRecords,
    *,
    host_flags: int,
    queue_offsets: npt.NDArray[np.int64],
    physical_offsets: npt.NDArray[np.int64],
    store_timestamps: npt.NDArray[np.int64],
) -> EncodedRecords:
    """The records with the fields that their place decides: one scatter a field."""
    data = records.data if records.data.flags.writeable else records.data.copy()
    layout = HEADER_DTYPES[host_flags & HOST_FLAGS]
    for name, values in zip(LATE_FIELDS, (queue_offsets, physical_offsets, store_timestamps), strict=True):
        kind, at = layout.fields[name][:2]  # type: ignore[index]
        items = strided_view(data, kind.itemsize)
        items[records.starts[:-1] + at] = values.astype(kind).view(f"V{kind.itemsize}")
    return EncodedRecords(data, records.starts)
