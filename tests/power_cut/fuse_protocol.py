"""The few structures of the kernel's FUSE protocol (little-endian) that ``traced_device`` needs.

Source: Linux ``include/uapi/linux/fuse.h``, version 7.31.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

MAX_WRITE = 128 << 10

_IN_HEADER = struct.Struct("<IIQQIIIHH")  # length, opcode, unique, node, user, group, process, extensions, padding
_OUT_HEADER = struct.Struct("<IiQ")  # length, error, unique
_ATTRIBUTES = struct.Struct("<6Q10I")
# Major and minor version, read-ahead, flags, background requests and congestion, largest write, granularity of times.
_INIT = struct.Struct("<IIIIHHIIHHII24x")
_BIG_WRITES, _MAX_PAGES = 1 << 5, 1 << 22
# Every read and write reaches the server at once, and none is answered from the kernel's memory.
_DIRECT_IO = 1 << 0
_PAGE = 4096


class Opcode(IntEnum):
    """What the kernel asks for."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    OPEN = 14
    READ = 15
    WRITE = 16
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    DESTROY = 38
    BATCH_FORGET = 42
    FALLOCATE = 43


class Request(NamedTuple):
    opcode: int
    unique: int
    node: int
    body: bytes


def parse_request(data: bytes) -> Request:
    _, opcode, unique, node, *_ = _IN_HEADER.unpack_from(data)
    return Request(opcode, unique, node, data[_IN_HEADER.size :])


def reply(unique: int, body: bytes = b"", error: int = 0) -> bytes:
    """``error`` is an errno, or 0."""
    return _OUT_HEADER.pack(_OUT_HEADER.size + len(body), -error, unique) + body


def init_answer() -> bytes:
    return _INIT.pack(7, 31, 0, _BIG_WRITES | _MAX_PAGES, 16, 12, MAX_WRITE, 1, MAX_WRITE // _PAGE, 0, 0, 0)


def _attributes(node: int, size: int, mode: int) -> bytes:
    return _ATTRIBUTES.pack(node, size, -(-size // 512), *[0] * 3, *[0] * 3, mode, 1, 0, 0, 0, _PAGE, 0)


def attributes(node: int, size: int, mode: int) -> bytes:
    """The answer to GETATTR; the kernel must ask again each time."""
    return struct.pack("<QII", 0, 0, 0) + _attributes(node, size, mode)


def entry(node: int, size: int, mode: int) -> bytes:
    """The answer to LOOKUP."""
    return struct.pack("<4Q2I", node, 0, 0, 0, 0, 0) + _attributes(node, size, mode)


def opened() -> bytes:
    return struct.pack("<QII", 0, _DIRECT_IO, 0)


def written(size: int) -> bytes:
    return struct.pack("<II", size, 0)
