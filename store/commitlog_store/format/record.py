r"""CommitLog record, v1 and v2, and the blank filler: layout, one-record decode and encode.

All integers are big-endian. Bytes of a record with two IPv4 hosts::

    0          4          8          12         16         20                 28
    +----------+----------+----------+----------+----------+------------------+
    | TOTAL    | MAGIC    | BODY     | QUEUE    | FLAG     | QUEUE            |
    | SIZE     | CODE     | CRC      | ID       |          | OFFSET           |
    +----------+----------+----------+----------+----------+------------------+
    28                 36         40                 48                 56
    +------------------+----------+------------------+------------------+
    | PHYSICAL OFFSET  | SYSFLAG  | BORN TIMESTAMP   | BORN HOST ip+port|
    +------------------+----------+------------------+------------------+
    56                 64                 72         76                 84         88
    +------------------+------------------+----------+------------------+----------+
    | STORE TIMESTAMP  | STORE HOST       | RECONSUME| PREPARED TRANS-  | BODY     |
    |                  | ip + port        | TIMES    | ACTION OFFSET    | LENGTH   |
    +------------------+------------------+----------+------------------+----------+
    88
    +--------- - - --+--------------+------- - - -+------------+----------- - - -+
    | BODY           | TOPIC LENGTH | TOPIC       | PROPERTIES | PROPERTIES      |
    |                | 1 (v2: 2)    |             | LENGTH 2   | name\x01value\x02
    +--------- - - --+--------------+------- - - -+------------+----------- - - -+

A host takes 4 + 4 bytes, or 16 + 4 when SYSFLAG says IPv6 (bit 4: born host, bit 5: store host); what follows moves.
TOTAL SIZE is the whole record's. PHYSICAL OFFSET is the record's own position in the log. BODY CRC is
``crc32(body) & 0x7FFFFFFF`` over the stored (perhaps compressed) bytes.

The blank filler ends a file that has no room for the next record: total size (all that is left of the file, at
least 8), blank magic; the rest is undefined.

Source: RocketMQ ``store/CommitLog.java`` (``checkMessageAndReturnSize``), ``common/message/MessageDecoder.java``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from commitlog_store.errors import InvalidValue
from commitlog_store.format import sys_flag
from commitlog_store.format.checksum import crc32
from commitlog_store.java_numbers import MAX_INT

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
BLANK_MAGIC = 0xCBD43194
# Those of records, as they are stored.
RECORD_MAGICS = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))

MAX_TOPIC_SIZE = {MAGIC_V1: 127, MAGIC_V2: 32767}
# Bytes that the length of the topic takes, by version, and that of the properties.
TOPIC_LENGTH_SIZE = {MAGIC_V1: 1, MAGIC_V2: 2}
PROPERTIES_LENGTH_SIZE = 2
# The CRC is stored without its top bit, so that Java's signed int stays positive.
CRC_MASK = 0x7FFFFFFF

HOST_FLAGS = sys_flag.BORNHOST_V6_FLAG | sys_flag.STOREHOSTADDRESS_V6_FLAG

# One line per field: name and numpy type. "ip" stands for 4 or 16 bytes, as the system flag says.
_HEADER_FIELDS: tuple[tuple[str, str], ...] = (
    ("total_size", ">i4"),
    ("magic", ">u4"),
    ("body_crc", ">i4"),
    ("queue_id", ">i4"),
    ("flag", ">i4"),
    ("queue_offset", ">i8"),
    ("physical_offset", ">i8"),
    ("sys_flag", ">i4"),
    ("born_timestamp", ">i8"),
    ("born_ip", "ip"),
    ("born_port", ">i4"),
    ("store_timestamp", ">i8"),
    ("store_ip", "ip"),
    ("store_port", ">i4"),
    ("reconsume_times", ">i4"),
    ("prepared_transaction_offset", ">i8"),
    ("body_length", ">i4"),
)

_V6_FLAG_OF = {"born_ip": sys_flag.BORNHOST_V6_FLAG, "store_ip": sys_flag.STOREHOSTADDRESS_V6_FLAG}
_STRUCT_CODE = {">i4": "i", ">u4": "I", ">i8": "q"}


def _ip_size(field: str, flags: int) -> int:
    return 16 if flags & _V6_FLAG_OF[field] else 4


def _header_dtype(flags: int) -> np.dtype[np.void]:
    return np.dtype([(n, f"V{_ip_size(n, flags)}" if t == "ip" else t) for n, t in _HEADER_FIELDS])


def _header_struct(flags: int) -> struct.Struct:
    return struct.Struct(
        ">" + "".join(f"{_ip_size(n, flags)}s" if t == "ip" else _STRUCT_CODE[t] for n, t in _HEADER_FIELDS)
    )


_ALL_HOST_FLAGS = (0, sys_flag.BORNHOST_V6_FLAG, sys_flag.STOREHOSTADDRESS_V6_FLAG, HOST_FLAGS)
HEADER_DTYPES: dict[int, np.dtype[np.void]] = {flags: _header_dtype(flags) for flags in _ALL_HOST_FLAGS}
HEADER_STRUCTS = {flags: _header_struct(flags) for flags in _ALL_HOST_FLAGS}

HEADER_SIZE = HEADER_DTYPES[0].itemsize
# Topic length and properties length, both of empty values, end the shortest record.
MIN_RECORD_SIZE = HEADER_SIZE + TOPIC_LENGTH_SIZE[MAGIC_V1] + PROPERTIES_LENGTH_SIZE
# TOTALSIZE and MAGICCODE, with which a record and a filler begin: zeros where nothing was written.
RECORD_PREFIX = struct.Struct(">iI")
RECORD_PREFIX_SIZE = RECORD_PREFIX.size
FILLER_SIZE = RECORD_PREFIX_SIZE
_SYS_FLAG = struct.Struct(">i")

assert HEADER_SIZE == 88
assert MIN_RECORD_SIZE == 91
assert all(s.size == HEADER_DTYPES[flags].itemsize for flags, s in HEADER_STRUCTS.items())


def field_offset(name: str, flags: int = 0) -> int:
    """Where a header field stands in a record with these host flags."""
    fields = HEADER_DTYPES[flags & HOST_FLAGS].fields
    assert fields is not None
    return int(fields[name][1])


_SYS_FLAG_OFFSET = field_offset("sys_flag")
_PHYSICAL_OFFSET = field_offset("physical_offset")

_QUEUE_ID_OFFSET = field_offset("queue_id")
_QUEUE_OFFSET = field_offset("queue_offset")

assert _SYS_FLAG_OFFSET == 36


def own_position(head: bytes) -> int:
    """PHYSICALOFFSET of a record, from its first bytes."""
    return int.from_bytes(head[_PHYSICAL_OFFSET : _PHYSICAL_OFFSET + 8], "big", signed=True)


def own_queue_place(head: bytes) -> tuple[int, int]:
    """QUEUEID and QUEUEOFFSET of a record, from its first bytes."""
    queue_id = int.from_bytes(head[_QUEUE_ID_OFFSET : _QUEUE_ID_OFFSET + 4], "big", signed=True)
    return queue_id, int.from_bytes(head[_QUEUE_OFFSET : _QUEUE_OFFSET + 8], "big", signed=True)


def own_sys_flag(head: bytes | bytearray | memoryview) -> int:
    """SYSFLAG of a record, from its first bytes."""
    flags: int = _SYS_FLAG.unpack_from(head, _SYS_FLAG_OFFSET)[0]
    return flags


def header_size(flags: int) -> int:
    """Bytes before the body: 88, 100 or 112, by the host bits of the system flag."""
    return HEADER_DTYPES[flags & HOST_FLAGS].itemsize


def body_crc(body: bytes | memoryview) -> int:
    """The CRC as records hold it: CRC-32 without its top bit."""
    return crc32(body) & CRC_MASK


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A whole record. ``body``, ``topic`` and ``properties`` are the stored bytes; times are milliseconds."""

    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_ip: bytes
    born_port: int
    store_timestamp: int
    store_ip: bytes
    store_port: int
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: bytes
    properties: bytes


@dataclass(frozen=True, slots=True)
class Filler:
    """The end of a file: ``size`` bytes up to its end hold no record."""

    size: int


@dataclass(frozen=True, slots=True)
class Unwritten:
    """Eight zero bytes where a record would start: unwritten space."""


@dataclass(frozen=True, slots=True)
class Torn:
    """The record's total size is larger than the bytes to read."""

    needed: int
    available: int


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Bytes that contradict the format: the field, its distance from the record's start, expected and found value."""

    field: str
    offset: int
    expected: str
    found: str


Decoded: TypeAlias = Record | Filler | Unwritten | Torn | Corrupt


def decode_record(data: bytes | memoryview, *, physical_offset: int | None = None, check_crc: bool = True) -> Decoded:
    """The record, filler, unwritten, torn or corrupt bytes that ``data`` starts with.

    ``physical_offset`` is where ``data`` starts in the log; when it is given, a record with another physical offset
    is corrupt. With ``check_crc`` a body that does not match its CRC is corrupt too.
    """
    data = memoryview(data)
    other = _not_a_record(data, len(data))
    return _decode_whole(data, physical_offset, check_crc) if other is None else other


def decode_without_body(
    head: bytes, available: int, read: Callable[[int, int], bytes], *, physical_offset: int | None = None
) -> Decoded:
    """``decode_record`` of a record of which no more is read than is needed: its body is left out, and is ``b""``.

    ``head`` is the start of ``available`` bytes, at least the longest header where there are so many. ``read`` gives so
    many bytes from a place of them on; fewer are torn. All fields are checked but the body's CRC.
    """
    other = _not_a_record(memoryview(head), available)
    return _decode_whole(memoryview(head), physical_offset, check_crc=False, read=read) if other is None else other


def _not_a_record(data: memoryview, available: int) -> Filler | Unwritten | Torn | Corrupt | None:
    """What the first bytes say that so many begin with; None for a record that fits in them."""
    if len(data) < FILLER_SIZE:
        return Torn(FILLER_SIZE, len(data))
    total_size, magic = RECORD_PREFIX.unpack_from(data)
    if magic == 0 and total_size == 0:
        return Unwritten()
    if magic == BLANK_MAGIC:
        if total_size < FILLER_SIZE:
            return Corrupt("TOTALSIZE", 0, f"a filler of at least {FILLER_SIZE} bytes", str(total_size))
        return Filler(total_size)
    if magic not in MAX_TOPIC_SIZE:
        return Corrupt(
            "MAGICCODE", field_offset("magic"), f"{MAGIC_V1:#x}, {MAGIC_V2:#x} or {BLANK_MAGIC:#x}", f"{magic:#x}"
        )
    if total_size < MIN_RECORD_SIZE:
        return Corrupt("TOTALSIZE", 0, f"at least {MIN_RECORD_SIZE}", str(total_size))
    return Torn(total_size, available) if total_size > available else None


def _decode_whole(
    data: memoryview,
    physical_offset: int | None,
    check_crc: bool,
    read: Callable[[int, int], bytes] | None = None,
) -> Decoded:
    """With ``read``, ``data`` need not have more than the header."""
    total_size, magic = RECORD_PREFIX.unpack_from(data)
    flags = own_sys_flag(data) & HOST_FLAGS
    head = header_size(flags)
    topic_prefix = TOPIC_LENGTH_SIZE[magic]
    room = total_size - head - topic_prefix - 2
    if room < 0:
        return Corrupt("TOTALSIZE", 0, f"at least {head + topic_prefix + 2} with these hosts", str(total_size))
    values = HEADER_STRUCTS[flags].unpack_from(data)
    fields = dict(zip((name for name, _ in _HEADER_FIELDS), values, strict=True))
    body_length = fields.pop("body_length")
    if not 0 <= body_length <= room:
        return Corrupt("BODYLENGTH", field_offset("body_length", flags), f"0 to {room}", str(body_length))
    if physical_offset is not None and fields["physical_offset"] != physical_offset:
        return Corrupt("PHYSICALOFFSET", _PHYSICAL_OFFSET, str(physical_offset), str(fields["physical_offset"]))
    at = head + body_length
    if read is None or total_size <= len(data):
        tail = data[at:total_size]
    else:
        tail = memoryview(read(at, total_size - at))
        if len(tail) < total_size - at:
            return Torn(total_size, at + len(tail))
    topic_length = int.from_bytes(tail[:topic_prefix], "big")
    rest = room - body_length - topic_length
    longest = min(room - body_length, MAX_TOPIC_SIZE[magic])
    if topic_length > longest:
        return Corrupt("TOPICLENGTH", at, f"0 to {longest}", str(topic_length))
    topic_end = topic_prefix + topic_length
    properties_length = int.from_bytes(tail[topic_end : topic_end + 2], "big", signed=True)
    if properties_length != rest:
        return Corrupt("PROPERTIESLENGTH", at + topic_end, str(rest), str(properties_length))
    body = bytes(data[head:at]) if read is None else b""
    if check_crc and body_crc(body) != fields["body_crc"]:
        return Corrupt("BODYCRC", field_offset("body_crc", flags), str(body_crc(body)), str(fields["body_crc"]))
    topic = bytes(tail[topic_prefix:topic_end])
    return Record(**fields, body=body, topic=topic, properties=bytes(tail[topic_end + 2 :]))


def encode_filler(size: int) -> bytes:
    """The eight bytes that mark ``size`` bytes up to a file's end as holding no record."""
    if not FILLER_SIZE <= size < 2**31:
        raise InvalidValue(f"A blank filler takes {FILLER_SIZE} to {MAX_INT} bytes, not {size}.")
    return RECORD_PREFIX.pack(size, BLANK_MAGIC)
