"""Many records at once: locate and check them with numpy, hand their variable parts to Arrow.

The work goes in two steps, both without a loop per record:

1. ``locate`` gathers the fixed headers and follows the lengths to bodies, topics and properties, checking every
   length against the record's size before it is followed, and the record against what the consume queue says of it.
2. ``record_batch`` builds the columns that were asked for, and only those.

Variable parts become Arrow ``binary_view`` arrays over the very bytes that were handed in; the cast to ``binary``
copies each value once, in C++. Nothing that is returned refers to the input.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from commitlog.errors import InvalidValue
from commitlog.format import columns as column_table
from commitlog.format import compression, message_id, sys_flag
from commitlog.format.binary_gather import all_equal, gather_binary, strided_view
from commitlog.format.properties import KEYS, TAGS, UNIQ_KEY, decode_utf8
from commitlog.format.property_columns import PropertyRows
from commitlog.format.record import (
    HEADER_DTYPES,
    HEADER_SIZE,
    HOST_FLAGS,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_SIZE,
    MIN_RECORD_SIZE,
    header_size,
)

__all__ = [
    "MAX_DECOMPRESSED_SIZE",
    "BodiesTooLarge",
    "QueuePlace",
    "RecordBlock",
    "RecordProblem",
    "locate",
    "plain_body",
    "record_batch",
    "verify_crc",
]

Int64Array = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.uint8]

# A broker takes at most maxMessageSize (4 MiB unless raised) before compression; the bound keeps a hostile body from
# unpacking without end.
MAX_DECOMPRESSED_SIZE = 256 << 20

# By the host bits of the system flag.
_HEADER_SIZES = np.array([header_size(flags) for flags in range(HOST_FLAGS + 1)], np.int64)

# The largest number of milliseconds whose microseconds fit a 64-bit integer.
_MAX_TIME_MS = (2**63 - 1) // 1000


class RecordProblem(Exception):
    """A record contradicts the format or its unit. Pure code knows no path; the log adds it."""

    def __init__(self, field: str, *, index: int, position: int, expected: object, found: object) -> None:
        super().__init__(f"{field}: expected {expected}, found {found}")
        self.field = field
        self.index = index
        self.position = position
        self.expected = expected
        self.found = found


class BodiesTooLarge(Exception):
    """Bodies unpack to more bytes than a batch may hold. Those of the first ``rows`` records fit, or ``rows`` is 1."""

    def __init__(self, rows: int) -> None:
        super().__init__(f"only the bodies of the first {rows} records fit")
        self.rows = rows


@dataclass(frozen=True, kw_only=True)
class QueuePlace:
    """What the records must say of themselves: the queue that led to them, and the offsets of its units.

    ``shared`` queues (light queues, fed by multi-dispatch) point to records that belong to another queue, which name
    that one; then only the positions and sizes are checked, and the columns show the queue that was read.
    """

    topic: str
    queue_id: int
    queue_offsets: Int64Array
    shared: bool = False


@dataclass(frozen=True, kw_only=True)
class RecordBlock:
    """Checked records within one stretch of bytes; every array has one value per record, positions from its start."""

    data: ByteArray
    headers: npt.NDArray[np.void]
    sizes: Int64Array
    body_starts: Int64Array
    body_lengths: Int64Array
    properties_starts: Int64Array
    properties_lengths: Int64Array
    place: QueuePlace
    body_limit: int

    def field(self, name: str) -> npt.NDArray[Any]:
        """A header field in native byte order."""
        values = self.headers[name]
        return values.astype(values.dtype.newbyteorder("="))

    @cached_property
    def properties(self) -> PropertyRows:
        return PropertyRows(gather_binary(self.data, self.properties_starts, self.properties_lengths))

    @cached_property
    def stored_bodies(self) -> pa.BinaryArray:
        """The bodies as they stand in the log, perhaps compressed."""
        return gather_binary(self.data, self.body_starts, self.body_lengths)

    @cached_property
    def sys_flags(self) -> npt.NDArray[np.int32]:
        return self.field("sys_flag")


def _first(bad: npt.NDArray[np.bool_]) -> int:
    return int(np.argmax(bad))


def _require(
    ok: npt.NDArray[np.bool_],
    field: str,
    positions: Int64Array,
    expected: Callable[[int], object],
    found: npt.NDArray[Any],
) -> None:
    if not ok.all():
        index = _first(~ok)
        raise RecordProblem(
            field, index=index, position=int(positions[index]), expected=expected(index), found=found[index].item()
        )


def _gather_headers(
    data: ByteArray, positions: Int64Array, sizes: Int64Array
) -> tuple[npt.NDArray[np.void], Int64Array]:
    """The headers, in the layout that holds every host, and each one's size on disk."""
    headers = strided_view(data, HEADER_SIZE)[positions].view(HEADER_DTYPES[0])
    host_flags = headers["sys_flag"] & HOST_FLAGS
    if not host_flags.any():
        return headers, np.full(len(positions), HEADER_SIZE, np.int64)
    wide = np.zeros(len(positions), HEADER_DTYPES[HOST_FLAGS])
    head_sizes = _HEADER_SIZES[host_flags]
    least = head_sizes + MIN_RECORD_SIZE - HEADER_SIZE
    _require(sizes >= least, "TOTALSIZE", positions, lambda i: f"at least {int(least[i])} with these hosts", sizes)
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
    body_limit: int = 2**31 - 1,
) -> RecordBlock:
    """Check the records at ``positions`` of ``data``.

    ``sizes`` and ``physical_offsets`` are the consume queue's. Raises ``RecordProblem`` for the first record that
    contradicts its unit, the queue or itself; no length is followed before it was checked. ``body_limit`` is how many
    bytes of bodies, unpacked, a batch of the block may hold.
    """
    _require(sizes >= MIN_RECORD_SIZE, "SIZE of the unit", positions, lambda _: f"at least {MIN_RECORD_SIZE}", sizes)
    _require(
        (positions >= 0) & (positions + sizes <= len(data)),
        "SIZE of the unit",
        positions,
        lambda i: f"at most the {len(data) - int(positions[i])} bytes that are left of the file",
        sizes,
    )
    headers, head_sizes = _gather_headers(data, positions, sizes)
    _check_headers(headers, positions, sizes, physical_offsets, place)
    body_lengths = headers["body_length"].astype(np.int64)
    # What is left of each record for its body, its topic and its properties, after their lengths.
    room = sizes - head_sizes - np.where(headers["magic"] == MAGIC_V2, 4, 3)
    _require(
        (body_lengths >= 0) & (body_lengths <= room),
        "BODYLENGTH",
        positions,
        lambda i: f"0 to {int(room[i])}",
        body_lengths,
    )
    body_starts = positions + head_sizes
    tails = _Tails(data, positions, headers["magic"], body_starts + body_lengths, room - body_lengths)
    properties_starts, properties_lengths = tails.follow(None if place.shared else place.topic)
    return RecordBlock(
        data=data,
        headers=headers,
        sizes=sizes,
        body_starts=body_starts,
        body_lengths=body_lengths,
        properties_starts=properties_starts,
        properties_lengths=properties_lengths,
        place=place,
        body_limit=body_limit,
    )


def _check_headers(
    headers: npt.NDArray[np.void],
    positions: Int64Array,
    sizes: Int64Array,
    physical_offsets: Int64Array,
    place: QueuePlace,
) -> None:
    magic = headers["magic"]
    _require(
        (magic == MAGIC_V1) | (magic == MAGIC_V2), "MAGICCODE", positions, lambda _: f"{MAGIC_V1} or {MAGIC_V2}", magic
    )
    _require(headers["total_size"] == sizes, "TOTALSIZE", positions, lambda i: int(sizes[i]), headers["total_size"])
    own = physical_offsets
    _require(
        headers["physical_offset"] == own,
        "PHYSICALOFFSET",
        positions,
        lambda i: int(own[i]),
        headers["physical_offset"],
    )
    if not place.shared:
        expected = place.queue_offsets
        _require(
            headers["queue_offset"] == expected,
            "QUEUEOFFSET",
            positions,
            lambda i: int(expected[i]),
            headers["queue_offset"],
        )
        _require(
            headers["queue_id"] == place.queue_id, "QUEUEID", positions, lambda _: place.queue_id, headers["queue_id"]
        )


@dataclass(frozen=True)
class _Tails:
    """What follows the bodies: topic length, topic, properties length, properties.

    ``starts`` is where the topic lengths stand, ``left`` how many bytes of topic and properties there must be.
    """

    data: ByteArray
    positions: Int64Array
    magic: npt.NDArray[np.uint32]
    starts: Int64Array
    left: Int64Array

    def follow(self, topic: str | None) -> tuple[Int64Array, Int64Array]:
        """Starts and lengths of the properties; the records must name ``topic`` unless it is None."""
        wanted = None if topic is None else topic.encode("utf-8")
        if wanted is not None and self._all_name(wanted):
            lengths_at = self.starts + 1 + len(wanted)
            left = self.left - len(wanted)
        else:
            lengths_at, left = self._pass_topics(topic)
        lengths = strided_view(self.data, 2)[lengths_at].view(">i2").astype(np.int64)
        _require(lengths == left, "PROPERTIESLENGTH", self.positions, lambda i: int(left[i]), lengths)
        return lengths_at + 2, lengths

    def _all_name(self, topic: bytes) -> bool:
        """The common case in one comparison: v1 records, all with this very topic."""
        return (
            len(topic) < 128
            and bool((self.magic == MAGIC_V1).all())
            and bool((self.left >= len(topic)).all())
            and all_equal(self.data, self.starts, bytes([len(topic)]) + topic)
        )

    def _pass_topics(self, topic: str | None) -> tuple[Int64Array, Int64Array]:
        """Where the properties lengths stand, and what is left for the properties, topics read one length each."""
        wide = self.magic == MAGIC_V2
        lengths = self.data[self.starts].astype(np.int64)
        lengths = np.where(wide, lengths << 8 | self.data[self.starts + wide], lengths)
        longest = np.minimum(self.left, np.where(wide, MAX_TOPIC_SIZE[MAGIC_V2], MAX_TOPIC_SIZE[MAGIC_V1]))
        _require(lengths <= longest, "TOPICLENGTH", self.positions, lambda i: f"0 to {int(longest[i])}", lengths)
        topic_starts = self.starts + np.where(wide, 2, 1)
        if topic is not None:
            self._compare_topics(topic_starts, lengths, topic)
        return topic_starts + lengths, self.left - lengths

    def _compare_topics(self, starts: Int64Array, lengths: Int64Array, topic: str) -> None:
        found = gather_binary(self.data, starts, lengths)
        other = pc.not_equal(found, pa.scalar(topic.encode("utf-8"))).to_numpy(zero_copy_only=False)
        if other.any():
            index = _first(other)
            raise RecordProblem(
                "TOPIC",
                index=index,
                position=int(self.positions[index]),
                expected=repr(topic),
                found=repr(decode_utf8(found[index].as_py())),
            )


def verify_crc(block: RecordBlock) -> None:
    """Compare every body with its BODYCRC; ``RecordProblem`` for the first that differs.

    This is the one place that goes record by record: ``zlib.crc32`` takes one buffer a call. Arrow makes ``bytes`` of
    the bodies faster than Python makes slices of a view, which is most of the cost for small ones.
    """
    bodies = block.stored_bodies.to_numpy(zero_copy_only=False)
    computed = np.fromiter(map(zlib.crc32, bodies), np.uint32, len(bodies))
    stored = block.headers["body_crc"]
    bad = (computed & 0x7FFFFFFF) != stored
    if bad.any():
        index = _first(bad)
        raise RecordProblem(
            "BODYCRC",
            index=index,
            position=int(block.body_starts[index]),
            expected=int(stored[index]),
            found=int(computed[index]) & 0x7FFFFFFF,
        )


def plain_body(stored: bytes, flags: int) -> bytes:
    """The body as the application sent it, unpacked when the system flag says so.

    ``InvalidValue`` for a stream that is broken, of unknown type, or larger than ``MAX_DECOMPRESSED_SIZE``.
    """
    if not flags & sys_flag.COMPRESSED_FLAG:
        return stored
    return compression.decompress(stored, sys_flag.compression_type(flags), MAX_DECOMPRESSED_SIZE)


def _bodies(block: RecordBlock) -> pa.BinaryArray:
    """The bodies, unpacked. ``BodiesTooLarge`` when they take more than the limit, unless there is only one."""
    bodies = block.stored_bodies
    packed = (block.sys_flags & sys_flag.COMPRESSED_FLAG) != 0
    if not packed.any():
        return bodies
    plain: list[bytes] = []
    sizes = np.where(packed, 0, block.body_lengths)
    taken = 0
    for index in np.flatnonzero(packed).tolist():
        flags = int(block.sys_flags[index])
        try:
            plain.append(plain_body(bodies[index].as_py(), flags))
            sizes[index] = len(plain[-1])
            taken += len(plain[-1])
            if taken > block.body_limit:
                break
        except InvalidValue as error:
            raise RecordProblem(
                "BODY",
                index=index,
                position=int(block.body_starts[index]),
                expected=f"a compressed body as the system flag {flags:#x} says",
                found=str(error),
            ) from error
    fitting = int(np.searchsorted(np.cumsum(sizes), block.body_limit, side="right"))
    if fitting < len(sizes) > 1:
        raise BodiesTooLarge(max(fitting, 1))
    return pc.replace_with_mask(bodies, pa.array(packed), pa.array(plain, pa.binary()))


def _time(block: RecordBlock, name: str) -> pa.Array:
    values = block.field(name)
    bad = (values > _MAX_TIME_MS) | (values < -_MAX_TIME_MS)
    if bad.any():
        index = _first(bad)
        raise RecordProblem(
            name.replace("_", "").upper(),
            index=index,
            position=int(block.body_starts[index]),
            expected="milliseconds whose microseconds fit 64 bits",
            found=int(values[index]),
        )
    return pa.Array.from_buffers(
        column_table.column_type("storeTimestamp"), len(values), [None, pa.py_buffer(values * 1000)]
    )


def _hosts(block: RecordBlock, which: str) -> pa.Array:
    """``ip:port`` texts. Hosts repeat, so each different one is formatted once."""
    ips = np.ascontiguousarray(block.headers[f"{which}_ip"])
    ports = np.ascontiguousarray(block.headers[f"{which}_port"])
    width = ips.dtype.itemsize
    flag = sys_flag.BORNHOST_V6_FLAG if which == "born" else sys_flag.STOREHOSTADDRESS_V6_FLAG
    joined = np.empty((len(ips), width + 5), np.uint8)
    joined[:, :width] = ips.view(np.uint8).reshape(-1, width)
    joined[:, width : width + 4] = ports.view(np.uint8).reshape(-1, 4)
    joined[:, width + 4] = (block.sys_flags & flag) != 0
    unique, codes = np.unique(joined.view(f"V{width + 5}").reshape(-1), return_inverse=True)
    texts = []
    for host in unique:
        raw = host.tobytes()
        ip = raw[:16] if raw[-1] else raw[:4]
        texts.append(message_id.format_host(ip, int.from_bytes(raw[width : width + 4], "big", signed=True)))
    return pa.array(texts, pa.string()).take(pa.array(codes.reshape(-1)))


_HEX = np.frombuffer(b"".join(b"%02X" % value for value in range(256)), "V2")


def _message_ids(block: RecordBlock) -> pa.Array:
    """Offset message ids: store host, port and physical offset as upper-case hex."""
    width = block.headers["store_ip"].dtype.itemsize
    raw = np.empty((len(block.headers), width + 12), np.uint8)
    for name, start, size in (("store_ip", 0, width), ("store_port", width, 4), ("physical_offset", width + 4, 8)):
        raw[:, start : start + size] = np.ascontiguousarray(block.headers[name]).view(np.uint8).reshape(-1, size)
    wide = (block.sys_flags & sys_flag.STOREHOSTADDRESS_V6_FLAG) != 0
    if width == 4 or wide.all():
        return _hex_texts(raw)
    ids = np.empty(len(raw), object)
    ids[wide] = _hex_texts(raw[wide]).to_pylist()
    ids[~wide] = _hex_texts(np.delete(raw[~wide], np.s_[4:16], axis=1)).to_pylist()
    return pa.array(ids, pa.string())


def _hex_texts(raw: ByteArray) -> pa.Array:
    count, width = raw.shape
    digits = np.ascontiguousarray(_HEX[raw])
    offsets = np.arange(0, (count + 1) * width * 2, width * 2, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(digits.view(np.uint8))])


@lru_cache(maxsize=8)
def _constant(value: str | int, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def _numbers(field: str) -> Callable[[RecordBlock], pa.Array]:
    return lambda block: pa.array(block.field(field))


def _property_text(name: str) -> Callable[[RecordBlock], pa.Array]:
    return lambda block: block.properties.text(name)


# One line per column.
_BUILDERS: dict[str, Callable[[RecordBlock], pa.Array]] = {
    "topic": lambda block: _constant(block.place.topic, pa.string(), len(block.headers)),
    "tags": _property_text(TAGS),
    "keys": _property_text(KEYS),
    "queueId": lambda block: _constant(block.place.queue_id, pa.int32(), len(block.headers)),
    "queueOffset": lambda block: pa.array(block.place.queue_offsets),
    "body": _bodies,
    "bornTimestamp": lambda block: _time(block, "born_timestamp"),
    "storeTimestamp": lambda block: _time(block, "store_timestamp"),
    "properties": lambda block: block.properties.map(),
    "msgId": _message_ids,
    "uniqKey": _property_text(UNIQ_KEY),
    "bornHost": lambda block: _hosts(block, "born"),
    "storeHost": lambda block: _hosts(block, "store"),
    "physicalOffset": _numbers("physical_offset"),
    "preparedTransactionOffset": _numbers("prepared_transaction_offset"),
    "storeSize": lambda block: pa.array(block.sizes.astype(np.int32)),
    "flag": _numbers("flag"),
    "sysFlag": _numbers("sys_flag"),
    "bodyCrc": _numbers("body_crc"),
    "reconsumeTimes": _numbers("reconsume_times"),
}

assert set(_BUILDERS) == set(column_table.ALL_COLUMNS)


def record_batch(block: RecordBlock, columns: Sequence[str]) -> pa.RecordBatch:
    """The named columns of the block's records, in the order given. It refers to none of the block's bytes."""
    return pa.RecordBatch.from_arrays(
        [_BUILDERS[name](block) for name in columns], schema=column_table.arrow_schema(columns)
    )
