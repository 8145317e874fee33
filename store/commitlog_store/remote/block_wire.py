"""Blocks of records as they travel: what a client asks for, and one Arrow row for each block or loss.

The bytes of the records are one value, sent from where they lie. The places of the records are numbers beside them,
each in as few bytes as the largest of its kind takes, since a small record is not much longer than they are. Those that
follow from others are left out: where a record lies, when it begins where the one before it ends; where it starts in
the bytes, when the block is a stretch of the log; queue offsets, when they follow each other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from commitlog_store.columnar.arrow_bytes import gather_binary
from commitlog_store.columnar.byte_parts import binary_parts
from commitlog_store.errors import CommitLogError, InvalidValue, RemoteFailed
from commitlog_store.format.arrays import ByteArray, Int32Array, Int64Array
from commitlog_store.queue.log_blocks import NO_BLOCK, Block, BlockLimits, Lost, Messages
from commitlog_store.remote.wire import FilterTexts, decode_error, encode_error

# Below this part of a stretch of the log, gathering the records costs less than sending what lies between them.
_DENSE = 0.5

BLOCK_SCHEMA = pa.schema(
    [
        ("data", pa.large_binary()),
        ("places", pa.binary()),
        ("path", pa.string()),
        ("base", pa.int64()),
    ]
)


class BlocksWanted(msgspec.Struct, frozen=True, array_like=True):
    """A question for blocks: of one queue's range, or of ranges ``(topic, queue id, start, stop)`` in the log's order.

    ``tags`` has the tags of each subscription that decides about units. The answer ends after ``budget`` bytes, and is
    asked for again from there. ``texts`` is the filter whose properties the server compares, if it does.
    """

    store: str
    ranges: list[tuple[str, int, int, int]]
    in_log_order: bool
    tags: list[list[str]]
    tolerant: bool
    rows: int
    size: int
    span: int
    budget: int
    texts: FilterTexts | None = None

    @property
    def limits(self) -> BlockLimits:
        return BlockLimits(rows=self.rows, size=self.size, span=self.span)


def decode_wanted(ticket: bytes) -> BlocksWanted:
    """``InvalidValue``."""
    try:
        return msgspec.msgpack.decode(ticket, type=BlocksWanted)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidValue(f"This is no question for blocks: {error}.") from error


class _Places(msgspec.Struct, array_like=True, omit_defaults=True):
    """Numbers of a block: see ``_compact``. ``shift``: physical offset minus start."""

    count: int = 0
    sizes: bytes = b""
    positions: bytes = b""  # 8 bytes each
    first: int = 0
    physical: bytes = b""  # after the first one; empty: each record begins where the one before it ends
    first_offset: int = 0
    offsets: bytes = b""  # after the first one, which is the least; empty: they follow each other
    shift: int = 0
    starts: bytes = b""  # empty: physical offset minus shift
    packed: bool = False  # each record starts where the one before it ends
    ranges: bytes = b""  # empty: all of them 0
    lost: tuple[int, int, int, int] | None = None
    error: bytes = b""
    reason: str = ""
    last: bool = False


class Piece(NamedTuple):
    """What one row says: a block or a loss, and the file that the block is of; None at the end of the answer."""

    value: Block | Lost | None
    path: str
    base: int


def encode_piece(value: Block | Lost, path: str, base: int) -> pa.RecordBatch:
    """One row of ``BLOCK_SCHEMA``."""
    if isinstance(value, Lost):
        error = encode_error(value.error) if isinstance(value.error, CommitLogError) else b""
        reason = "" if error else str(value.error)
        return _row(_Places(lost=(value.start, value.stop, *value.physical), error=error, reason=reason), path, base)
    data, packed = _packed(value)
    places = _Places(count=len(value), positions=value.positions.tobytes(), packed=packed)
    if len(value):
        messages, starts = value.messages, value.starts
        physical, offsets = messages.physical_offsets, messages.queue_offsets
        places.sizes = _compact(messages.sizes)
        places.first, places.shift = int(physical[0]), int(physical[0] - starts[0])
        if not _follow(physical, messages.sizes):
            places.physical = _compact(physical - places.first)
        if not packed and not (physical - starts == places.shift).all():
            places.starts = _compact(starts)
        places.first_offset = int(offsets.min())
        if not _follow(offsets, 1):
            places.offsets = _compact(offsets - places.first_offset)
        if messages.ranges.any():
            places.ranges = _compact(messages.ranges)
    return _row(places, path, base, data)


def _follow(values: Int64Array, steps: Int64Array | int) -> bool:
    """Whether each value is the one before it and its step."""
    before = steps if isinstance(steps, int) else steps[:-1]
    length = before * (len(values) - 1) if isinstance(before, int) else int(before.sum())
    # Most often the sum decides.
    return int(values[-1] - values[0]) == length and bool((values[1:] - values[:-1] == before).all())


# A reader sees from the length which one it is.
_WIDTHS: dict[int, np.dtype[Any]] = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<i4"), 8: np.dtype("<i8")}


def _compact(values: Int64Array | Int32Array) -> bytes:
    """Numbers, little-endian, of the fewest bytes each in which all of them fit."""
    least, most = int(values.min()), int(values.max())
    for kind in _WIDTHS.values():
        limits = np.iinfo(kind)
        if limits.min <= least and most <= limits.max:
            return values.astype(kind).tobytes()
    raise AssertionError(values.dtype)


def _numbers(data: bytes, count: int) -> Int64Array:
    """What ``_compact`` made. ``ValueError`` for bytes that are not so many numbers."""
    width = len(data) // count if count else 0
    if width not in _WIDTHS or width * count != len(data):
        raise ValueError("its numbers are not as many as its records")
    return np.frombuffer(data, _WIDTHS[width]).astype(np.int64)


def _packed(block: Block) -> tuple[ByteArray, bool]:
    """The bytes to send: only those of the records, back to back, where they are a small part of the block."""
    sizes = block.messages.sizes
    if not len(block):
        return NO_BLOCK.data, False
    if int(sizes.sum()) > len(block.data) * _DENSE:
        return block.data, False
    if int(block.starts.min()) < 0 or int((block.starts + sizes).max()) > len(block.data) or int(sizes.min()) < 0:
        return block.data, False  # damaged: the reader says how
    gathered = gather_binary(block.data, block.starts, sizes)
    return np.frombuffer(gathered.buffers()[2], np.uint8, int(sizes.sum())), True


def end_of_blocks() -> pa.RecordBatch:
    """The row that ends an answer which is complete: a stream that breaks off has none."""
    return _row(_Places(last=True), "", 0)


def _row(places: _Places, path: str, base: int, data: ByteArray = NO_BLOCK.data) -> pa.RecordBatch:
    encoded = np.frombuffer(_ENCODER.encode(places), np.uint8)
    arrays = [
        _one_value(pa.large_binary(), np.ascontiguousarray(data), np.int64),
        _one_value(pa.binary(), encoded, np.int32),
        pa.array([path], pa.string()),
        pa.array([base], pa.int64()),
    ]
    return pa.record_batch(arrays, schema=BLOCK_SCHEMA)


def _one_value(kind: pa.DataType, data: ByteArray, offset: type[np.int32 | np.int64]) -> pa.Array:
    """An array of these bytes, which it does not copy."""
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(np.array([0, len(data)], offset)), pa.py_buffer(data)])


def decode_piece(row: pa.RecordBatch) -> Piece:
    """``RemoteFailed`` for any other row."""
    try:
        places = _DECODER.decode(row.column(1)[0].as_buffer())
        path, base = row.column(2)[0].as_py(), row.column(3)[0].as_py()
        return Piece(_value(row, places), path, base)
    except (msgspec.MsgspecError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise RemoteFailed(f"The server sent a block that is not one: {error}.") from error


def _value(row: pa.RecordBatch, places: _Places) -> Block | Lost | None:
    if places.last:
        return None
    if places.lost is not None:
        start, stop, *physical = places.lost
        error: Any = decode_error(places.error) if places.error else places.reason
        return Lost(start, stop, error, (physical[0], physical[1]))
    count = places.count
    sizes = _numbers(places.sizes, count) if count else np.empty(0, np.int64)
    follow = np.cumsum(sizes) - sizes
    physical_offsets = places.first + (_numbers(places.physical, count) if places.physical else follow)
    if places.packed:
        starts = follow
    else:
        starts = _numbers(places.starts, count) if places.starts else physical_offsets - places.shift
    offsets = places.first_offset + (_numbers(places.offsets, count) if places.offsets else np.arange(count))
    ranges = _numbers(places.ranges, count).astype(np.int32) if places.ranges else np.zeros(count, np.int32)
    # Where it lies: a scalar of Arrow would have a copy of it.
    (start, stop), values = binary_parts(row.column(0))
    data = values[start:stop]
    # A record that ends after the block's bytes is damaged; ``locate`` says how, as it does for local blocks.
    if count and (starts.min() < 0 or sizes.min() < 0 or int(starts.max()) > max(len(data), 1 << 40)):
        raise ValueError("its records lie outside of its bytes")
    positions = np.frombuffer(places.positions, np.int64).copy()
    return Block(data, starts, Messages(physical_offsets, sizes, ranges, offsets), positions)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Places)
