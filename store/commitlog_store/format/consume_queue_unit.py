"""Consume-queue units: physical offset, size and tags code of each message of a queue, in queue order.

20 bytes, big-endian::

    0                  8          12                 20
    +------------------+----------+------------------+
    | PHYSICAL OFFSET  | SIZE     | TAGS CODE        |
    +------------------+----------+------------------+

SIZE is the record's whole length. TAGS CODE is the hash code of the message's tags (``java_hash.string_hash_code``), 0
without tags; in ``SCHEDULE_TOPIC_XXXX`` it is the delivery time in ms.

Unwritten space is zero, so SIZE 0 ends a queue. A queue that starts late is padded in front with
fillers: (0, 0x7FFFFFFF, 0).

Source: RocketMQ ``store/ConsumeQueue.java`` (``putMessagePositionInfo``, ``fillPreBlank``, ``recover``).
"""

from __future__ import annotations

import enum
import struct

import numpy as np
import numpy.typing as npt

from commitlog_store.errors import InvalidValue

# One line per field: name, numpy type, struct code.
_FIELDS = (
    ("physical_offset", "i8", "q"),
    ("size", "i4", "i"),
    ("tags_code", "i8", "q"),
)

UNIT = struct.Struct(">" + "".join(code for _, _, code in _FIELDS))
UNIT_SIZE = UNIT.size
UNIT_FILE_DTYPE = np.dtype([(name, ">" + kind) for name, kind, _ in _FIELDS])
UNIT_DTYPE = np.dtype([(name, "=" + kind) for name, kind, _ in _FIELDS])

assert UNIT_SIZE == UNIT_FILE_DTYPE.itemsize == UNIT_DTYPE.itemsize == 20

# No record is as long as this.
FILLER_SIZE = 0x7FFF_FFFF
# Tags codes up to this one are hash codes, or addresses in consumequeue_ext: as times they end in January 1970.
LAST_HASH_CODE = 2**31 - 1

Units = npt.NDArray[np.void]


class UnitState(enum.Enum):
    """The kinds of units: message, filler, unwritten, corrupt."""

    UNWRITTEN = "unwritten"
    FILLER = "filler"
    MESSAGE = "message"
    CORRUPT = "corrupt"


def classify_unit(physical_offset: int, size: int) -> UnitState:
    """The state of a unit with these values. The tags code may be any number and decides nothing.

    A size of 0 is unwritten whatever the offset: the owner of a store writes the offset first, and a concurrent
    reader may see that much of a unit.
    """
    if physical_offset < 0 or size < 0:
        return UnitState.CORRUPT
    if size == 0:
        return UnitState.UNWRITTEN
    return UnitState.FILLER if size == FILLER_SIZE else UnitState.MESSAGE


def decode_units(data: bytes | bytearray | memoryview) -> Units:
    """The units of ``data`` as an array of ``UNIT_DTYPE``, which owns its memory. ``InvalidValue`` for a cut unit."""
    if len(data) % UNIT_SIZE:
        raise InvalidValue(f"Consume-queue units take {UNIT_SIZE} bytes each; {len(data)} bytes are not whole units.")
    return np.frombuffer(data, UNIT_FILE_DTYPE).astype(UNIT_DTYPE)


def unit_place(data: bytes) -> tuple[int, int] | None:
    """Physical offset and size from the bytes of one unit; None when it is unwritten: all bytes are zero."""
    physical_offset, size, _ = UNIT.unpack(data)
    return (physical_offset, size) if any(data) else None
