"""RocketMQ's replication protocol: the offsets that a slave sends, and the frames that a master sends.

TCP, big-endian and signed, no handshake. Slave to master::

    0                  8
    +------------------+
    | PHYSICAL OFFSET  |  the first one: from where to send (0: from the beginning of the master's last file);
    +------------------+  each later one: everything before it is received

Master to slave, a frame::

    0                  8          12
    +------------------+----------+-- - - - - --+
    | PHYSICAL OFFSET  | SIZE     | BODY        |  of the body's first byte; SIZE 0 is a heartbeat, whose offset is
    +------------------+----------+-- - - - - --+  that of the next byte to be sent

A body is a slice of one CommitLog file, as the file has it: a blank filler and the unused rest of a file are sent, too.
It does not begin or end where a record does.

A master of this package that is asked for bytes after its log's end sends a heartbeat with the offset of that end, and
closes the connection. RocketMQ's masters send heartbeats with the offset that was asked for; those of 4.x close the
connection when a later offset of the slave lies after the end.

Source: RocketMQ ``store/ha/HAConnection.java``, ``store/ha/HAService.java`` (4.x), ``store/ha/DefaultHAClient.java``.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_OFFSET = struct.Struct(">q")
_HEADER = struct.Struct(">qi")

OFFSET_SIZE = _OFFSET.size
TRANSFER_HEADER_SIZE = _HEADER.size


class TransferHeader(NamedTuple):
    """The header of a frame: the physical offset of its first byte, and the size of its body in bytes."""

    physical_offset: int
    size: int

    @property
    def is_heartbeat(self) -> bool:
        return self.size == 0


def encode_offset(physical_offset: int) -> bytes:
    """What a slave sends."""
    return _OFFSET.pack(physical_offset)


def decode_offset(data: bytes | bytearray | memoryview, at: int = 0) -> int:
    """The offset in the 8 bytes from ``at``."""
    return int(_OFFSET.unpack_from(data, at)[0])


def encode_transfer_header(physical_offset: int, size: int) -> bytes:
    return _HEADER.pack(physical_offset, size)


def decode_transfer_header(data: bytes | bytearray | memoryview, at: int = 0) -> TransferHeader:
    """The header in the 12 bytes from ``at``; whether its values make sense is for the caller to check."""
    return TransferHeader(*_HEADER.unpack_from(data, at))
