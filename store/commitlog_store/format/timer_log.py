"""The timer log: one unit for each message of ``rmq_sys_wheel_timer``, and the checkpoint beside it. Pure.

A unit of a file of ``timerlog/``, big-endian, 52 bytes::

    0       4          12      16           24       28         36      40           44       52
    +-------+----------+-------+------------+--------+----------+-------+------------+--------+
    | SIZE  | PREVIOUS | MAGIC | WRITE TIME | DELAY  | PHYSICAL | SIZE  | HASH CODE  | DUE    |
    | 52    | -1 none  |       | ms         | ms     | OFFSET   | of it | of topic   | ms     |
    +-------+----------+-------+------------+--------+----------+-------+------------+--------+

WRITE TIME + DELAY is the time of the slot that the message waits in; slots are seconds. PREVIOUS is the position of the
unit before it in its slot, counted over all files. MAGIC is 1, with 2 for a message that RocketMQ puts back at that
time, since its delivery lies too far ahead, and 4 for one that cancels another. DUE is this package's own: the time of
delivery, of which the slot has the second (``slot_of``); 0 in a unit that a broker wrote. Where no unit fits, a
file ends with the rest's size (4), zero (8) and a magic number (4).

``config/timercheck``, big-endian, 4,096 bytes: the first 56 are RocketMQ's, and it leaves the others as they are::

    0              8              16             24             32                   56
    +--------------+--------------+--------------+--------------+--------------------+
    | READ TIME    | FLUSHED      | QUEUE OFFSET | MASTER'S     | version: state,    |
    | ms           | position     |              | QUEUE OFFSET | time, counter      |
    +--------------+--------------+--------------+--------------+--------------------+
    64       68       72          80           88             96            104        112     116
    +--------+--------+-----------+------------+--------------+-------------+----------+-------+
    | MAGIC  | FORMAT | END       | START      | QUEUE OFFSET | LAST        | FRAMES   | CRC32 |
    | "PYTC" | 1      | position  | position   |              | PHYSICAL    |          |       |
    +--------+--------+-----------+------------+--------------+-------------+----------+-------+

END is up to where the timer log is on the device, and QUEUE OFFSET the offset of the next message to take into it; LAST
PHYSICAL is the physical offset of the message before that, -1 without one. No unit before START waits, as of the
delivery with number FRAMES. The CRC is over READ TIME to FRAMES, without the version: a change by another program
makes the rest void.

Source: RocketMQ ``store/timer/TimerLog.java``, ``TimerCheckpoint.java``, ``TimerMessageStore.java``.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from commitlog_store.format.checksum import crc32
from commitlog_store.format.record import BLANK_MAGIC
from commitlog_store.format.timer_messages import PRECISION_MS
from commitlog_store.java_numbers import MAX_LONG

UNIT_DTYPE = np.dtype(
    [
        ("size", ">i4"),
        ("previous", ">i8"),
        ("magic", ">i4"),
        ("write_time", ">i8"),
        ("delay", ">i4"),
        ("physical_offset", ">i8"),
        ("message_size", ">i4"),
        ("topic_hash", ">i4"),
        ("due", ">i8"),
    ]
)
UNIT_SIZE = 52
assert UNIT_DTYPE.itemsize == UNIT_SIZE

MAGIC_DEFAULT, MAGIC_ROLL, MAGIC_DELETE = 1, 2, 4
_ALL_MAGIC = 0xF
BLANK_SIZE = 16
_BLANK = struct.Struct(">iqI")

CHECK_SIZE = 4_096
_BROKER = struct.Struct(">4q")
_OWN = struct.Struct(">4si5q")
_OWN_AT = 64
_CRC = struct.Struct(">I")
_MAGIC, _FORMAT = b"PYTC", 1


def units_in(file_size: int) -> int:
    """How many units a file has room for."""
    return (file_size - BLANK_SIZE) // UNIT_SIZE


def encode_blank(size: int) -> bytes:
    """The end of a file whose last ``size`` bytes hold no unit."""
    return _BLANK.pack(size, 0, BLANK_MAGIC)


def whole_units(data: np.ndarray) -> int:
    """How many units there are at the start of an array of ``UNIT_DTYPE``, before anything else."""
    good = (data["size"] == UNIT_SIZE) & (data["magic"] & ~_ALL_MAGIC == 0) & (data["magic"] & MAGIC_DEFAULT != 0)
    return len(good) if good.all() else int(np.argmin(good))


def slot_of(due_ms: int) -> int:
    """The second of the slot of a time of delivery: RocketMQ delivers a slot when its second has passed."""
    return (due_ms - 1) // PRECISION_MS


class TimerCheck(NamedTuple):
    """``config/timercheck``. ``own`` is None where RocketMQ wrote it last, or this package's part is damaged.

    ``repeats``: see ``encode_check``.
    """

    read_time: int
    queue_offset: int
    own: OwnCheck | None
    repeats: bool


class OwnCheck(NamedTuple):
    """This package's part. Positions are in the timer log; ``last_physical`` is -1 before the first message."""

    end: int
    start: int
    queue_offset: int
    last_physical: int
    frames: int


def encode_check(read_time: int, own: OwnCheck, *, repeats: bool) -> bytes:
    """The file's bytes. ``read_time`` in ms: every slot before it is delivered.

    RocketMQ gets a flushed position of 0, so that it reads the whole timer log. ``repeats``: it continues after the
    last unit that it finds, since there may be more than ``own`` counts.
    """
    most = MAX_LONG if repeats else own.queue_offset
    data = bytearray(CHECK_SIZE)
    _BROKER.pack_into(data, 0, read_time, 0, own.queue_offset, most)
    _OWN.pack_into(data, _OWN_AT, _MAGIC, _FORMAT, *own)
    _CRC.pack_into(data, _OWN_AT + _OWN.size, _checksum(data))
    return bytes(data)


def decode_check(data: bytes) -> TimerCheck | None:
    """The checkpoint; None for bytes that are none."""
    if len(data) < _BROKER.size:
        return None
    read_time, _, queue_offset, most = _BROKER.unpack_from(data)
    own = None
    if len(data) >= _OWN_AT + _OWN.size + _CRC.size:
        magic, version, *fields = _OWN.unpack_from(data, _OWN_AT)
        if (magic, version) == (_MAGIC, _FORMAT) and _CRC.unpack_from(data, _OWN_AT + _OWN.size)[0] == _checksum(data):
            own = OwnCheck(*fields)
    return TimerCheck(read_time, queue_offset, own, most != queue_offset)


def _checksum(data: bytes | bytearray) -> int:
    return crc32(bytes(data[_OWN_AT : _OWN_AT + _OWN.size]), crc32(bytes(data[: _BROKER.size])))
