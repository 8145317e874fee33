"""Unit objects of an archive: the queue units of all records of one segment, queue by queue.

Big-endian. The directory in front is ``units_head`` bytes long (``manifest.Segment``); a reader that knows the queue's
first row and count from the catalog reads the units alone, as one range::

    0        8         12        16        20        24                                      units_head
    +--------+---------+---------+---------+---------+---------------------------------------+------------------+
    | MAGIC  | VERSION | TOPICS  | QUEUES  | CRC-32  | topics, queues (``queue_names``)      | units            |
    +--------+---------+---------+---------+---------+---------------------------------------+------------------+

CRC-32 is that of the directory's bytes after it. One entry a queue, sorted by topic and queue id::

    TOPIC 4 | QUEUE ID 4 | FIRST OFFSET 8 | FIRST ROW 8 | COUNT 8

FIRST OFFSET is the queue offset of the queue's first unit in this segment, FIRST ROW that unit's index among all units
of the object, COUNT how many units follow each other from there. The units of all queues are back to back, 20 bytes
each, as they are in RocketMQ's files (``format/consume_queue_unit``); physical offsets count from the log's start. A
queue offset that no record of the segment has, between two that do, has a filler: physical offset 0, size 0x7FFFFFFF.

Only records decide about the units: two stores with the same log file have the same object.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from commitlog_store.archive.damage import WrongBytes, check_start, not_decoded
from commitlog_store.archive.queue_names import (
    QueueName,
    Structured,
    decode_topics,
    encode_topics,
    queue_names,
    topic_indexes,
)
from commitlog_store.format.checksum import crc32
from commitlog_store.format.consume_queue_unit import UNIT_DTYPE, UNIT_FILE_DTYPE

_MAGIC = b"CLARUNIT"
_VERSION = 1
_HEADER = struct.Struct(">8sIIII")
_ENTRY = np.dtype(
    [("topic", ">u4"), ("queue_id", ">i4"), ("first_offset", ">i8"), ("first_row", ">i8"), ("count", ">i8")]
)
assert (_HEADER.size, _ENTRY.itemsize) == (24, 32)


class QueuePart(NamedTuple):
    """How many units a queue has in one segment, and the queue offset of the first one."""

    name: QueueName
    first_offset: int
    length: int


@dataclass(frozen=True, slots=True)
class QueueUnits:
    """The units of one queue in one segment, from queue offset ``first_offset`` on."""

    name: QueueName
    first_offset: int
    units: Structured

    @property
    def part(self) -> QueuePart:
        """Without the units."""
        return QueuePart(self.name, self.first_offset, len(self.units))


@dataclass(frozen=True, slots=True)
class UnitDirectory:
    """The directory of a unit object: its queues, sorted, and for each one first offset, first row and count."""

    queues: list[QueueName]
    entries: Structured
    size: int

    def parts(self) -> list[QueuePart]:
        """What the segment has of each queue."""
        firsts, counts = self.entries["first_offset"].tolist(), self.entries["count"].tolist()
        return [QueuePart(*one) for one in zip(self.queues, firsts, counts, strict=True)]


def encode_units(queues: Sequence[QueueUnits]) -> tuple[bytes, list[Structured]]:
    """The directory of queues that are sorted by name, and the units that follow it, a piece a queue."""
    names = [queue.name for queue in queues]
    topics = topic_indexes(names)
    entries = np.zeros(len(queues), _ENTRY)
    counts = np.array([len(queue.units) for queue in queues], np.int64)
    entries["topic"] = [topics[topic] for topic, _ in names]
    entries["queue_id"] = [queue_id for _, queue_id in names]
    entries["first_offset"] = [queue.first_offset for queue in queues]
    entries["first_row"] = np.cumsum(counts) - counts
    entries["count"] = counts
    rest = encode_topics(list(topics)) + entries.tobytes()
    head = _HEADER.pack(_MAGIC, _VERSION, len(topics), len(queues), crc32(rest)) + rest
    return head, [queue.units.astype(UNIT_FILE_DTYPE) for queue in queues]


def decode_directory(data: bytes | memoryview, name: str) -> UnitDirectory:
    """The directory of the object ``name``, by its first ``units_head`` bytes. ``ArchiveDamaged``."""
    view = memoryview(data)
    try:
        magic, version, topic_count, queue_count, crc = _HEADER.unpack_from(view)
        check_start((magic, version), _MAGIC, _VERSION)
        if crc32(view[_HEADER.size :]) != crc:
            raise WrongBytes("CRC-32 of its directory", _HEADER.size - 4, crc, crc32(view[_HEADER.size :]))
        topics, at = decode_topics(view[_HEADER.size :], topic_count)
        entries = np.frombuffer(view[_HEADER.size + at :], _ENTRY)
        if len(entries) != queue_count:
            raise WrongBytes("Number of queues", 16, queue_count, len(entries))
        return UnitDirectory(queue_names(topics, entries), entries, len(view))
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        raise not_decoded(name, "a unit object of an archive", error) from error


def decode_units(data: bytes | memoryview) -> Structured:
    """Units in native byte order, of a range of an object that holds whole ones."""
    return np.frombuffer(data, UNIT_FILE_DTYPE).astype(UNIT_DTYPE)
