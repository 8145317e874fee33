"""Catalog of an archive: its queues, their bounds, and in which segments their units are. And the tables of groups.

A queue has a *number*: its place in the order in which the archive first got units of queues. It never changes, so a
queue's row is at the same place of every later table. A *span* says which units of one queue one segment has::

    FIRST OFFSET 8 | FIRST ROW 4 | COUNT 4

FIRST ROW and COUNT say which units of the segment's unit object they are. FIRST OFFSET is the queue offset of the first
one; with COUNT 0 it is the offset that the queue's next message has, and before its first message, the one that this
gets. So the offsets of a row never fall, and the span of a queue offset is the last one that does not begin after it.

``groups/...``, for ``group_size`` consecutive segments, written once. ``head`` is 24. A queue with a number of QUEUES
or above got its first unit later::

    0        8         12        16           20        24
    +--------+---------+---------+------------+---------+-----------------------------------------+
    | MAGIC  | VERSION | QUEUES  | SEGMENTS   | 0       | a row a queue: a span a segment         |
    +--------+---------+---------+------------+---------+-----------------------------------------+

``catalog/...``, one a generation. Its first ``catalog_head`` bytes hold all that opening needs; CRC-32 is that of the
head's bytes after it::

    0        8         12        16        20        24         28        32               catalog_head
    +--------+---------+---------+---------+---------+----------+---------+----------------+--------------------+
    | MAGIC  | VERSION | TOPICS  | QUEUES  | GROUPS  | SEGMENTS | CRC-32  | topics, queues | a row a queue      |
    +--------+---------+---------+---------+---------+----------+---------+----------------+--------------------+

    queue:   TOPIC 4 | QUEUE ID 4 | MIN OFFSET 8 | MAX OFFSET 8 | SHOWN OFFSET 8      (``queue_names``; by number)
    row:     FIRST OFFSET 8 of each group, then a span for each segment that is in no group yet

MAX OFFSET is the one after the last message. SHOWN OFFSET is the one after the last message that is not of the
manifest's ``open_batch``; without such a batch it is MAX OFFSET. A group's FIRST OFFSET is that of its first span, or,
for a queue that it has no row of, the queue's MIN OFFSET. Two requests find the units at a queue offset: the queue's
row of the catalog, and, where that says so, its row of a group. All numbers are big-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

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
from commitlog_store.format.arrays import Int64Array
from commitlog_store.format.checksum import crc32

_CATALOG_MAGIC = b"CLARCATA"
_GROUP_MAGIC = b"CLARGROU"
_CATALOG_VERSION = 2
_GROUP_VERSION = 1
_CATALOG_HEADER = struct.Struct(">8sIIIIII")
_GROUP_HEADER = struct.Struct(">8sIIII")
GROUP_HEAD = _GROUP_HEADER.size
_QUEUE = np.dtype(
    [("topic", ">u4"), ("queue_id", ">i4"), ("min_offset", ">i8"), ("max_offset", ">i8"), ("shown_offset", ">i8")]
)
SPAN_DTYPE = np.dtype([("first_offset", ">i8"), ("first_row", ">u4"), ("count", ">u4")])
_OFFSET = np.dtype(">i8")
assert (_CATALOG_HEADER.size, GROUP_HEAD, _QUEUE.itemsize, SPAN_DTYPE.itemsize) == (32, 24, 32, 16)


@dataclass(frozen=True, slots=True)
class CatalogHead:
    """The queues by number, their bounds, and how long a row is. ``groups`` and ``segments`` say what is in one."""

    queues: list[QueueName]
    min_offsets: Int64Array
    max_offsets: Int64Array
    shown_offsets: Int64Array
    groups: int
    segments: int
    size: int

    @property
    def row_size(self) -> int:
        """Bytes of one queue's row."""
        return self.groups * _OFFSET.itemsize + self.segments * SPAN_DTYPE.itemsize

    def row_range(self, number: int) -> tuple[int, int]:
        """Where in the object a queue's row begins and ends."""
        return self.size + number * self.row_size, self.size + (number + 1) * self.row_size


@dataclass(frozen=True, slots=True)
class Catalog:
    """A whole catalog: ``group_offsets`` is (queues, groups), ``spans`` (queues, segments that are in no group)."""

    queues: list[QueueName]
    min_offsets: Int64Array
    max_offsets: Int64Array
    shown_offsets: Int64Array
    group_offsets: Int64Array
    spans: Structured


def encode_catalog(catalog: Catalog) -> tuple[bytes, bytes]:
    """The head, and the rows."""
    count = len(catalog.queues)
    topics = topic_indexes(catalog.queues)
    entries = np.zeros(count, _QUEUE)
    entries["topic"] = [topics[topic] for topic, _ in catalog.queues]
    entries["queue_id"] = [queue_id for _, queue_id in catalog.queues]
    entries["min_offset"], entries["max_offset"] = catalog.min_offsets, catalog.max_offsets
    entries["shown_offset"] = catalog.shown_offsets
    rest = encode_topics(list(topics)) + entries.tobytes()
    groups, segments = catalog.group_offsets.shape[1], catalog.spans.shape[1]
    header = _CATALOG_HEADER.pack(_CATALOG_MAGIC, _CATALOG_VERSION, len(topics), count, groups, segments, crc32(rest))
    rows = np.empty(count, _row_dtype(groups, segments))
    rows["groups"], rows["spans"] = catalog.group_offsets, catalog.spans
    return header + rest, rows.tobytes()


def _row_dtype(groups: int, segments: int) -> np.dtype[np.void]:
    return np.dtype([("groups", _OFFSET, (groups,)), ("spans", SPAN_DTYPE, (segments,))])


def decode_head(data: bytes | memoryview, name: str) -> CatalogHead:
    """The head of the catalog ``name``, by its first ``catalog_head`` bytes. ``ArchiveDamaged``."""
    view = memoryview(data)
    try:
        magic, version, topic_count, count, groups, segments, crc = _CATALOG_HEADER.unpack_from(view)
        check_start((magic, version), _CATALOG_MAGIC, _CATALOG_VERSION)
        rest = view[_CATALOG_HEADER.size :]
        if crc32(rest) != crc:
            raise WrongBytes("CRC-32 of its head", _CATALOG_HEADER.size - 4, crc, crc32(rest))
        topics, at = decode_topics(rest, topic_count)
        entries = np.frombuffer(rest[at:], _QUEUE)
        if len(entries) != count:
            raise WrongBytes("Number of queues", 16, count, len(entries))
        low, high, shown = (entries[name].astype(np.int64) for name in ("min_offset", "max_offset", "shown_offset"))
        return CatalogHead(queue_names(topics, entries), low, high, shown, groups, segments, len(view))
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        raise not_decoded(name, "a catalog of an archive", error) from error


def decode_row(head: CatalogHead, data: bytes | memoryview) -> tuple[Int64Array, Structured]:
    """One queue's row: the first offset of each group, and the spans of the segments after the groups."""
    row = np.frombuffer(data, _row_dtype(head.groups, head.segments), 1)[0]
    return row["groups"].astype(np.int64), row["spans"]


def decode_catalog(data: bytes | memoryview, head_size: int, name: str) -> Catalog:
    """A whole catalog. ``ArchiveDamaged``."""
    view = memoryview(data)
    head = decode_head(view[:head_size], name)
    expected = head_size + len(head.queues) * head.row_size
    if len(view) != expected:
        wrong = WrongBytes("Its end", len(view), f"{expected} bytes, as its head says", f"{len(view)} bytes")
        raise not_decoded(name, "a catalog of an archive", wrong)
    count = len(head.queues)
    if not head.row_size:
        nothing = np.zeros((count, 0), np.int64), np.zeros((count, 0), SPAN_DTYPE)
        return Catalog(head.queues, head.min_offsets, head.max_offsets, head.shown_offsets, *nothing)
    rows = np.frombuffer(view[head_size:], _row_dtype(head.groups, head.segments), count)
    offsets = rows["groups"].astype(np.int64)
    return Catalog(head.queues, head.min_offsets, head.max_offsets, head.shown_offsets, offsets, rows["spans"])


def encode_group(spans: Structured) -> bytes:
    """A group's table, of (queues, segments) spans."""
    queues, segments = spans.shape
    return _GROUP_HEADER.pack(_GROUP_MAGIC, _GROUP_VERSION, queues, segments, 0) + spans.astype(SPAN_DTYPE).tobytes()


def decode_group(data: bytes | memoryview, name: str) -> Structured:
    """The spans of a whole table: (queues, segments). ``ArchiveDamaged``."""
    try:
        magic, version, queues, segments, _ = _GROUP_HEADER.unpack_from(data)
        check_start((magic, version), _GROUP_MAGIC, _GROUP_VERSION)
        return np.frombuffer(memoryview(data)[GROUP_HEAD:], SPAN_DTYPE).reshape(queues, segments)
    except (struct.error, ValueError) as error:
        raise not_decoded(name, "a table of an archive's segments", error) from error


def decode_spans(data: bytes | memoryview) -> Structured:
    """The spans of one queue: its row of a group, ``segments * 16`` bytes from ``GROUP_HEAD + number * that`` on."""
    return np.frombuffer(data, SPAN_DTYPE)


def span_at(first_offsets: Int64Array, offset: int) -> int:
    """The index of the span, or group, that a queue offset is in: the last that does not begin after it, at least 0."""
    return max(int(np.searchsorted(first_offsets, offset, side="right")) - 1, 0)
