"""A record of ``figures.ring``: what a store did within a minute, or within ten minutes.

2,048 bytes, big-endian::

    0        4        8           16             20        24      28       30       32
    +--------+--------+-----------+--------------+---------+-------+--------+--------+
    | CRC-32 | MAGIC  | BEGIN     | MEASURED     | SECONDS | FLAGS | TOPICS | GROUPS |
    | of the | "PYFR" | seconds   | milliseconds | 60, 600 | 1 2 4 | listed | listed |
    | rest   |        | from 1970 |              |         |       | 0..40  | 0..40  |
    +--------+--------+-----------+--------------+---------+-------+--------+--------+
    32                       112                       1392                     2032    2048
    +------------------------+-------------------------+------------------------+--------+
    | 10 numbers of 8 bytes  | 40 topics of 32 bytes   | 40 groups of 16 bytes  | zeros  |
    +------------------------+-------------------------+------------------------+--------+

The numbers are ``COUNTS`` and ``STATES``. A topic has the hash of its name, messages and bytes stored, and messages
read; a group the hash of its name, and its lag in messages. FLAGS: 1, more topics than listed stored or gave messages;
2, more groups than listed lag; 4, the lags are not known.

These bytes are this package's own (docs/decisions/0047-figures-of-the-past.md).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from commitlog_store.format.checksum import crc32
from commitlog_store.java_numbers import MAX_LONG

RECORD_SIZE = 2048
MOST_TOPICS = 40
MOST_GROUPS = 40
# Records of a minute, and of ten minutes.
INTERVALS_S = (60, 600)

# What was counted within the time: messages stored, puts that failed, messages read.
COUNTS = ("stored", "stored_bytes", "failed_puts", "read", "read_bytes")
# What was so at its end: the log's first byte and its end, the log's disk, bytes that were not dispatched yet.
STATES = ("log_begin", "log_end", "disk_used", "disk_size", "not_dispatched")

TOPICS_LEFT_OUT, GROUPS_LEFT_OUT, LAGS_UNKNOWN = 1, 2, 4

_MAGIC = 0x50594652  # "PYFR"
_CRC = struct.Struct(">I")
_NUMBER = ">i8"

RECORD = np.dtype(
    [
        ("crc", ">u4"),
        ("magic", ">u4"),
        ("begin", _NUMBER),
        ("measured_ms", ">u4"),
        ("seconds", ">u4"),
        ("flags", ">u4"),
        ("topics_listed", ">u2"),
        ("groups_listed", ">u2"),
        *((name, _NUMBER) for name in (*COUNTS, *STATES)),
        (
            "topics",
            [("name", ">u8"), ("messages", _NUMBER), ("bytes", _NUMBER), ("read", _NUMBER)],
            MOST_TOPICS,
        ),
        ("groups", [("name", ">u8"), ("lag", _NUMBER)], MOST_GROUPS),
        ("zeros", "V16"),
    ]
)
assert RECORD.itemsize == RECORD_SIZE

Records: TypeAlias = npt.NDArray[np.void]
"""Records as an array of ``RECORD``."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """``begin`` is in seconds since 1970, a multiple of ``seconds``; ``measured_ms`` how long of these was measured.

    ``numbers`` has ``COUNTS`` and ``STATES``. ``topics`` has messages, bytes and messages read by the topic's hash,
    ``lags`` the messages that wait by the group's hash; None: not known.
    """

    begin: int
    seconds: int
    measured_ms: int
    numbers: Mapping[str, int]
    topics: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)
    lags: Mapping[int, int] | None = None
    topics_left_out: bool = False
    groups_left_out: bool = False


def name_hash(name: str) -> int:
    """What a record has in place of a topic's or group's name."""
    digest = hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def encode_figures(figures: Figures) -> bytes:
    """The record. The topics that stored most and the groups that lag most are listed, as many as it has places for."""
    record = np.zeros(1, RECORD)
    one = record[0]
    one["magic"], one["begin"], one["seconds"] = _MAGIC, figures.begin, figures.seconds
    one["measured_ms"] = min(figures.measured_ms, 0xFFFF_FFFF)
    for name in (*COUNTS, *STATES):
        one[name] = min(figures.numbers[name], MAX_LONG)
    active = {name: counts for name, counts in figures.topics.items() if any(counts)}
    topics = sorted(active.items(), key=lambda item: (item[1], item[0]), reverse=True)
    waiting = {name: lag for name, lag in (figures.lags or {}).items() if lag > 0}
    groups = sorted(waiting.items(), key=lambda item: (item[1], item[0]), reverse=True)
    listed = [(name, *counts) for name, counts in topics[:MOST_TOPICS]]
    one["topics"][: len(listed)] = listed
    one["groups"][: min(len(groups), MOST_GROUPS)] = groups[:MOST_GROUPS]
    one["topics_listed"], one["groups_listed"] = len(listed), min(len(groups), MOST_GROUPS)
    one["flags"] = (
        TOPICS_LEFT_OUT * (figures.topics_left_out or len(topics) > MOST_TOPICS)
        | GROUPS_LEFT_OUT * (figures.groups_left_out or len(groups) > MOST_GROUPS)
        | LAGS_UNKNOWN * (figures.lags is None)
    )
    data: bytes = record.tobytes()
    return _CRC.pack(crc32(data[_CRC.size :])) + data[_CRC.size :]


def good_records(data: bytes, begin: int, seconds: int) -> Records:
    """The records of adjacent times from ``begin`` on, of one interval; torn, damaged and older ones are left out.

    What a good record lists is within its places.
    """
    found = np.frombuffer(data, RECORD)
    view = memoryview(data)
    starts = range(0, len(data), RECORD_SIZE)
    sums = np.array([crc32(view[start + _CRC.size : start + RECORD_SIZE]) for start in starts], np.uint32)
    is_good = (
        (found["magic"] == _MAGIC)
        & (found["crc"] == sums)
        & (found["seconds"] == seconds)
        & (found["begin"] == begin + np.arange(len(found)) * seconds)
        & (found["topics_listed"] <= MOST_TOPICS)
        & (found["groups_listed"] <= MOST_GROUPS)
    )
    good: Records = found[is_good]
    return good


def figures_of(record: np.void) -> Figures:
    """A good record as an object."""
    flags = int(record["flags"])
    topics = record["topics"][: int(record["topics_listed"])].tolist()
    groups = record["groups"][: int(record["groups_listed"])].tolist()
    return Figures(
        begin=int(record["begin"]),
        seconds=int(record["seconds"]),
        measured_ms=int(record["measured_ms"]),
        numbers={name: int(record[name]) for name in (*COUNTS, *STATES)},
        topics={name: tuple(counts) for name, *counts in topics},
        lags=None if flags & LAGS_UNKNOWN else dict(groups),
        topics_left_out=bool(flags & TOPICS_LEFT_OUT),
        groups_left_out=bool(flags & GROUPS_LEFT_OUT),
    )


def sum_of(parts: Sequence[Figures], begin: int, seconds: int) -> Figures:
    """One record of several, which follow each other: counts are added, states and lags are those of the last one.

    Lags are the last ones that are known.
    """
    topics: dict[int, tuple[int, int, int]] = {}
    for part in parts:
        for name, (messages, size, read) in part.topics.items():
            before = topics.get(name, (0, 0, 0))
            topics[name] = (before[0] + messages, before[1] + size, before[2] + read)
    known = [part for part in parts if part.lags is not None]
    return Figures(
        begin=begin,
        seconds=seconds,
        measured_ms=sum(part.measured_ms for part in parts),
        numbers={name: sum(part.numbers[name] for part in parts) for name in COUNTS}
        | {name: parts[-1].numbers[name] for name in STATES},
        topics=topics,
        lags=known[-1].lags if known else None,
        topics_left_out=any(part.topics_left_out for part in parts),
        groups_left_out=known[-1].groups_left_out if known else False,
    )
