"""What is true of a damaged store, from its bytes alone: a parser of its own, which shares no code with the package.

RocketMQ's record begins with TOTALSIZE, MAGICCODE, BODYCRC, QUEUEID, FLAG, QUEUEOFFSET, PHYSICALOFFSET, SYSFLAG,
BORNTIMESTAMP and hosts, and ends with body, topic and properties, each after its length.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

_HEAD = struct.Struct(">iIIiiqqi")
_V1, _V2, _FILLER = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
_COMPRESSED, _BORN_V6, _STORE_V6, _TRANSACTION = 0x1, 0x10, 0x20, 0xC
# Prepared and rolled-back records are in no queue.
_IN_NO_QUEUE = (0x4, 0xC)
_UNIT = struct.Struct(">qiq")


class Key(NamedTuple):
    """A message's place in its queue."""

    topic: str
    queue_id: int
    queue_offset: int


class Stored(NamedTuple):
    """A whole record; ``body`` as it is stored."""

    key: Key
    place: int
    size: int
    body: bytes
    compressed: bool
    in_queue: bool
    properties: bytes


class Fate(enum.Enum):
    """Where a message is after the damage."""

    FOUND = "found"
    """Its record is whole, at its place in the log."""
    LOST = "lost"
    """Its record is not, or its body has another CRC."""
    EXPIRED = "expired"
    """It is before the log's first file, as what retention has deleted."""


class Truth(NamedTuple):
    """The fate of every message.

    ``reachable`` are those whose units are as they were; ``known`` are those of which something is left: a whole record
    or a unit of the same queue, of the same or a later offset. ``misplaced`` are lost ones whose records are whole, in
    a file with the name of another one.
    """

    fates: dict[Key, Fate]
    reachable: set[Key]
    known: set[Key]
    misplaced: set[Key]

    def of(self, fate: Fate) -> set[Key]:
        return {key for key, one in self.fates.items() if one is fate}

    @property
    def found(self) -> set[Key]:
        return self.of(Fate.FOUND)

    @property
    def lost(self) -> set[Key]:
        """Lost messages of which something is left that shows that they existed."""
        return self.of(Fate.LOST) & self.known


def parse(data: bytes, at: int, place: int) -> Stored | None:
    """The record at byte ``at`` of a file, if it is whole, at home at physical offset ``place``, and has its CRC."""
    if at + 91 > len(data):
        return None
    size, magic, crc, queue_id, _, queue_offset, own_place, flags = _HEAD.unpack_from(data, at)
    if magic not in (_V1, _V2) or own_place != place or not 91 <= size <= len(data) - at:
        return None
    body_at = at + 84 + (12 if flags & _BORN_V6 else 0) + (12 if flags & _STORE_V6 else 0)
    (body_size,) = struct.unpack_from(">i", data, body_at)
    topic_at = body_at + 4 + body_size
    end = at + size
    if body_size < 0 or topic_at + 3 > end:
        return None
    wide = magic == _V2
    topic_size = int.from_bytes(data[topic_at : topic_at + 1 + wide], "big")
    properties_at = topic_at + 1 + wide + topic_size
    properties_size = int.from_bytes(data[properties_at : properties_at + 2], "big")
    if properties_at + 2 + properties_size != end:
        return None
    body = data[body_at + 4 : topic_at]
    if zlib.crc32(body) & 0x7FFFFFFF != crc:
        return None
    topic = data[topic_at + 1 + wide : properties_at].decode("utf-8", "replace")
    in_queue = flags & _TRANSACTION not in _IN_NO_QUEUE
    properties = data[properties_at + 2 : end]
    return Stored(
        Key(topic, queue_id, queue_offset), place, size, body, bool(flags & _COMPRESSED), in_queue, properties
    )


def records_of(store: Path) -> Iterator[Stored]:
    """All records of an undamaged store, in the log's order."""
    for file in _numbered(store / "commitlog"):
        data, at = file.read_bytes(), 0
        while at + 8 <= len(data):
            size, magic = struct.unpack_from(">iI", data, at)
            if magic == _FILLER or size == 0:
                break
            found = parse(data, at, int(file.name) + at)
            assert found is not None, (file, at)
            yield found
            at += found.size


def truth_of(store: Path, stored: Iterable[Stored], reachable: Mapping[Key, tuple[int, int]]) -> Truth:
    """What has become of the messages ``stored``, whose units led to the places ``reachable``."""
    files = {int(file.name): file.read_bytes() for file in _numbered(store / "commitlog")}
    starts = sorted(files)
    fates = {}
    misplaced = set()
    for one in stored:
        if not one.in_queue:
            continue
        start = max((start for start in starts if start <= one.place), default=None)
        if start is None:
            fates[one.key] = Fate.EXPIRED if starts else Fate.LOST
            continue
        in_files = {base for base, data in files.items() if _is_there(one, data, one.place - start)}
        fates[one.key] = Fate.FOUND if start in in_files else Fate.LOST
        if in_files and start not in in_files:
            misplaced.add(one.key)
    units = units_of(store)
    ends: dict[tuple[str, int], int] = {}
    for key in {key for key, fate in fates.items() if fate is Fate.FOUND} | units.keys():
        queue = (key.topic, key.queue_id)
        ends[queue] = max(ends.get(queue, 0), key.queue_offset + 1)
    known = {key for key in fates if key.queue_offset < ends.get((key.topic, key.queue_id), 0)}
    return Truth(fates, {key for key, unit in reachable.items() if units.get(key) == unit}, known, misplaced)


def _is_there(one: Stored, data: bytes, at: int) -> bool:
    now = parse(data, at, one.place)
    return now is not None and (now.key, now.size, now.body) == (one.key, one.size, one.body)


def units_of(store: Path) -> dict[Key, tuple[int, int]]:
    """Physical offset and size of every unit, by its place; zeros are none."""
    found = {}
    root = store / "consumequeue"
    for directory in sorted(root.glob("*/*")) if root.is_dir() else ():
        for file in _numbered(directory):
            data = file.read_bytes()
            for number in range(len(data) // _UNIT.size):
                place, size, _ = _UNIT.unpack_from(data, number * _UNIT.size)
                if size:
                    offset = int(file.name) // _UNIT.size + number
                    found[Key(directory.parent.name, int(directory.name), offset)] = (place, size)
    return found


def _numbered(directory: Path) -> list[Path]:
    """The files whose names are 20 digits."""
    if not directory.is_dir():
        return []
    return sorted(
        file for file in directory.iterdir() if len(file.name) == 20 and file.name.isdigit() and file.is_file()
    )
