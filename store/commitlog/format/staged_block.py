"""Blocks of staged records: what a batch's files hold until the batch is committed.

A staged file is one block after the other. Big-endian; the numbers of the records are in the order of the processor
that wrote them, since the committer is of the same kind::

    0          4          8          12         16         24         28         32         36
    +----------+----------+----------+----------+----------+----------+----------+----------+- - - - -+- - - - -+
    | MAGIC    | HOST     | ROWS     | QUEUES   | BYTES    | NAMES    | CRC-32   | CRC-32   | NAMES,  | the     |
    | "PYSB"   | FLAGS    |          |          |          | SIZE     | of names | of the   | SIZES,  | records |
    |          |          |          |          |          |          | to codes | records  | CODES   |         |
    +----------+----------+----------+----------+----------+----------+----------+----------+- - - - -+- - - - -+

NAMES is a JSON list of [topic, queue id]; SIZES is each record's size, and CODES its place among the names, four bytes
each. The records' late fields (queue offset, physical offset, store time) are zero.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

import numpy as np

from commitlog.errors import InvalidValue
from commitlog.format.arrays import ByteArray, Int64Array
from commitlog.format.checksum import crc32
from commitlog.format.record_encode import EncodedRecords

__all__ = ["BLOCK_HEAD_SIZE", "BlockHead", "StagedBlock", "decode_block", "decode_block_head", "encode_block"]

_MAGIC = b"PYSB"
_HEAD = struct.Struct(">4sIIIQIII")
BLOCK_HEAD_SIZE = _HEAD.size
assert BLOCK_HEAD_SIZE == 36

_NUMBER = np.dtype(np.uint32)
# Far above what a writer stages at once; a length that is read is believed up to here (invariant 9).
_MOST_ROWS = 1 << 26
_MOST_BYTES = 1 << 33


@dataclass(frozen=True)
class StagedBlock:
    """Records without their place. ``queue_codes`` is each record's place in ``queues``, pairs of topic and queue id.

    ``crc`` is the CRC-32 of the records' bytes.
    """

    records: EncodedRecords
    host_flags: int
    queues: list[tuple[str, int]]
    queue_codes: Int64Array
    crc: int

    def __len__(self) -> int:
        """How many records there are."""
        return len(self.queue_codes)


@dataclass(frozen=True)
class BlockHead:
    """The fields of a block's head; sizes in bytes."""

    host_flags: int
    rows: int
    queues: int
    records_size: int
    names_size: int
    meta_crc: int
    records_crc: int

    @property
    def meta_size(self) -> int:
        """The bytes between the head and the records."""
        return self.names_size + 2 * self.rows * _NUMBER.itemsize


def encode_block(block: StagedBlock) -> tuple[bytes, ByteArray]:
    """The bytes before the records, and the records."""
    names = json.dumps(block.queues).encode()
    sizes, codes = block.records.sizes.astype(_NUMBER), block.queue_codes.astype(_NUMBER)
    meta = names + sizes.tobytes() + codes.tobytes()
    data = block.records.data
    head = _HEAD.pack(
        _MAGIC,
        block.host_flags,
        len(block),
        len(block.queues),
        len(data),
        len(names),
        crc32(meta),
        block.crc,
    )
    return head + meta, data


def decode_block_head(data: bytes) -> BlockHead:
    """The head at the start of ``data``. ``InvalidValue`` for what cannot be one."""
    if len(data) < BLOCK_HEAD_SIZE:
        raise InvalidValue(f"{len(data)} bytes where a block's head takes {BLOCK_HEAD_SIZE}")
    magic, *fields = _HEAD.unpack_from(data)
    head = BlockHead(fields[0], fields[1], fields[2], fields[3], fields[4], fields[5], fields[6])
    sane = head.rows <= _MOST_ROWS and head.records_size <= _MOST_BYTES and head.names_size <= _MOST_BYTES
    if magic != _MAGIC or not sane:
        raise InvalidValue(f"{data[:BLOCK_HEAD_SIZE].hex()}, which is no block's head")
    return head


def decode_block(head: BlockHead, meta: bytes, records: ByteArray) -> StagedBlock:
    """A block of its parts. ``InvalidValue`` for parts that disagree, with each other or with their checksums."""
    if crc32(meta) != head.meta_crc or len(meta) != head.meta_size:
        raise InvalidValue("another checksum of names and sizes")
    try:
        queues = [(str(topic), int(queue_id)) for topic, queue_id in json.loads(meta[: head.names_size])]
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(f"names of queues that cannot be read ({error})") from error
    numbers = np.frombuffer(meta, _NUMBER, offset=head.names_size).astype(np.int64)
    starts = np.zeros(head.rows + 1, np.int64)
    np.cumsum(numbers[: head.rows], out=starts[1:])
    if int(starts[-1]) != len(records) or len(queues) != head.queues:
        raise InvalidValue(f"records of {int(starts[-1])} bytes, where {len(records)} are there")
    if crc32(records.data) != head.records_crc:
        raise InvalidValue("records with another checksum")
    codes = numbers[head.rows :]
    if len(codes) and int(codes.max()) >= len(queues):
        raise InvalidValue(f"a record of queue number {int(codes.max())}, where {len(queues)} are named")
    return StagedBlock(EncodedRecords(records, starts), head.host_flags, queues, codes, head.records_crc)
