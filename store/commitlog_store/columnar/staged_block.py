"""Blocks of staged records: the content of a batch's files until the batch is committed.

A staged file is one block after the other. Big-endian; the numbers of the records are in the order of the processor
that wrote them, since the committer is of the same kind::

    0       4       8       12       16      24      28      32       36       40
    +-------+-------+-------+--------+-------+-------+-------+--------+--------+- - - - - +- - - - - - +- - - - -+
    | MAGIC | HOST  | ROWS  | QUEUES | BYTES | NAMES | KEYS  | CRC-32 | CRC-32 | NAMES,   | TAGS,      | the     |
    | "PYSC"| FLAGS |       |        |       | SIZE  |       | of     | of the | SIZES,   | HASHES,    | records |
    |       |       |       |        |       |       |       | numbers| records| CODES    | ROWS OF    |         |
    +-------+-------+-------+--------+-------+-------+-------+--------+--------+- - - - - +- - - - - - +- - - - -+

NAMES is a JSON list of [topic, queue id]; SIZES is each record's size, and CODES its place among the names. Then follow
the hints for dispatch: each record's tags code, and the hash of each of the KEYS index keys with the row that has it.
KEYS of 2**32 - 1 means no hints. All these numbers have four bytes. The records' late fields (queue offset,
physical offset, store time) are zero.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commitlog_store.columnar.arrow_bytes import strided_view
from commitlog_store.columnar.dispatch_keys import DispatchHints, IndexEntries
from commitlog_store.columnar.records import EncodedRecords, QueuedRecords
from commitlog_store.errors import InvalidValue
from commitlog_store.format.arrays import ByteArray, Int64Array
from commitlog_store.format.checksum import crc32
from commitlog_store.format.record import HOST_FLAGS, MIN_RECORD_SIZE, field_offset
from commitlog_store.paths import MAX_QUEUE_ID

_MAGIC = b"PYSC"
_HEAD = struct.Struct(">4sIIIQIIII")
BLOCK_HEAD_SIZE = _HEAD.size
assert BLOCK_HEAD_SIZE == 40

_NUMBER = np.dtype(np.uint32)
_NO_HINTS = 2**32 - 1
# Far above what a writer stages at once; a length that is read is trusted up to here (invariant 9).
_MOST_ROWS = 1 << 26
_MOST_BYTES = 1 << 33


@dataclass(frozen=True)
class StagedBlock(QueuedRecords):
    """Records of a batch. ``crc`` is the CRC-32 of their bytes."""

    crc: int


@dataclass(frozen=True)
class BlockHead:
    """The fields of a block's head; sizes in bytes."""

    host_flags: int
    rows: int
    queues: int
    records_size: int
    names_size: int
    keys: int
    meta_crc: int
    records_crc: int

    @property
    def meta_size(self) -> int:
        """The bytes between the head and the records."""
        hints = 0 if self.keys == _NO_HINTS else self.rows + 2 * self.keys
        return self.names_size + (2 * self.rows + hints) * _NUMBER.itemsize


def encode_block(block: StagedBlock) -> tuple[bytes, ByteArray]:
    """The bytes before the records, and the records."""
    names, keys = json.dumps(block.queues).encode(), _NO_HINTS
    numbers = [block.records.sizes.astype(_NUMBER), block.queue_codes.astype(_NUMBER)]
    if block.hints is not None:
        codes, (hashes, rows) = block.hints.tags_codes, block.hints.entries
        numbers += [codes.view(_NUMBER), hashes.view(_NUMBER), rows.astype(_NUMBER)]
        keys = len(hashes)
    meta = names + b"".join(array.tobytes() for array in numbers)
    data = block.records.data
    fields = (block.host_flags, len(block), len(block.queues), len(data), len(names), keys, crc32(meta), block.crc)
    return _HEAD.pack(_MAGIC, *fields) + meta, data


def decode_block_head(data: bytes) -> BlockHead:
    """The head at the start of ``data``. ``InvalidValue`` for other bytes."""
    if len(data) < BLOCK_HEAD_SIZE:
        raise InvalidValue(f"{len(data)} bytes where a block's head takes {BLOCK_HEAD_SIZE}")
    magic, *fields = _HEAD.unpack_from(data)
    head = BlockHead(*fields)
    sane = head.rows <= _MOST_ROWS and head.records_size <= _MOST_BYTES and head.names_size <= _MOST_BYTES
    sane &= head.keys <= _MOST_ROWS or head.keys == _NO_HINTS
    sane &= not head.host_flags & ~HOST_FLAGS
    if magic != _MAGIC or not sane:
        raise InvalidValue(f"{data[:BLOCK_HEAD_SIZE].hex()}, which is not a block's head")
    return head


def decode_block(head: BlockHead, meta: bytes, records: ByteArray) -> StagedBlock:
    """A block from its parts. ``InvalidValue`` for parts that disagree, with each other or with their checksums."""
    if crc32(meta) != head.meta_crc or len(meta) != head.meta_size:
        raise InvalidValue("another checksum of names and sizes")
    try:
        queues = [(str(topic), int(queue_id)) for topic, queue_id in json.loads(meta[: head.names_size])]
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidValue(f"names of queues that cannot be read ({error})") from error
    numbers = np.frombuffer(meta, _NUMBER, offset=head.names_size)
    starts = np.zeros(head.rows + 1, np.int64)
    np.cumsum(numbers[: head.rows], out=starts[1:])
    if int(starts[-1]) != len(records) or len(queues) != head.queues:
        raise InvalidValue(f"records of {int(starts[-1])} bytes, where {len(records)} are stored")
    if crc32(records.data) != head.records_crc:
        raise InvalidValue("records with another checksum")
    codes = numbers[head.rows : 2 * head.rows].astype(np.int64)
    if len(codes) and int(codes.max()) >= len(queues):
        raise InvalidValue(f"a record of queue number {int(codes.max())}, where {len(queues)} are named")
    _check_records(records, starts[:-1], numbers[: head.rows], codes, queues)
    hints = None if head.keys == _NO_HINTS else _hints(head, numbers[2 * head.rows :])
    encoded = EncodedRecords(records, starts)
    return StagedBlock(encoded, head.host_flags, queues, codes, hints, head.records_crc)


def _check_records(
    records: ByteArray,
    starts: Int64Array,
    sizes: npt.NDArray[np.uint32],
    codes: Int64Array,
    queues: list[tuple[str, int]],
) -> None:
    """Check that records begin where the sizes say and belong to their queues: later only their own fields count."""
    ids = np.array([queue_id for _, queue_id in queues], object)
    if not all(0 <= queue_id <= MAX_QUEUE_ID for queue_id in ids.tolist()):
        raise InvalidValue(f"queues {ids.tolist()}, where a queue is 0 to {MAX_QUEUE_ID}")
    if not len(starts):
        return
    if int(sizes.min()) < MIN_RECORD_SIZE:
        raise InvalidValue(f"a record of {int(sizes.min())} bytes")
    words = strided_view(records, 4)
    if (words[starts].view(">u4") != sizes).any():
        raise InvalidValue("records that are not where they should be")
    if (words[starts + field_offset("queue_id")].view(">i4") != ids.astype(np.int64)[codes]).any():
        raise InvalidValue("records of other queues")


def _hints(head: BlockHead, numbers: npt.NDArray[np.uint32]) -> DispatchHints:
    hashes = numbers[head.rows : head.rows + head.keys].view(np.int32)
    rows = numbers[head.rows + head.keys :]
    if head.keys and (int(hashes.min()) < 0 or int(rows[-1]) >= head.rows or (rows[1:] < rows[:-1]).any()):
        raise InvalidValue("keys of missing records, or keys out of order")
    return DispatchHints(numbers[: head.rows].view(np.int32), IndexEntries(hashes, rows))
