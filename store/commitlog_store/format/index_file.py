"""Index files: a hash table from keys to the physical offsets of messages.

All integers are big-endian and signed::

    0                  8                  16                 24                 32         36         40
    +------------------+------------------+------------------+------------------+----------+----------+
    | BEGIN TIMESTAMP  | END TIMESTAMP    | BEGIN PHY OFFSET | END PHY OFFSET   | HASH SLOT| INDEX    |  header
    |                  |                  |                  |                  | COUNT    | COUNT    |
    +------------------+------------------+------------------+------------------+----------+----------+
    40         44                                                              40 + 4 * slots
    +----------+----------+-- - - --+----------+
    | SLOT 0   | SLOT 1   |         | SLOT n-1 |  number of the slot's newest entry, 0 for none
    +----------+----------+-- - - --+----------+
    40 + 4 * slots + 20 * number
    +----------+------------------+----------+----------+
    | KEY HASH | PHYSICAL OFFSET  | SECONDS  | PREVIOUS |  entry; entry 0 is never used
    +----------+------------------+----------+----------+

HASH SLOT COUNT is how many slots are in use, *not* how many the file has. INDEX COUNT is the number of the next entry:
1 before the first entry, and 0 in a file that was made and not yet flushed. SECONDS count from BEGIN TIMESTAMP (ms),
rounded down. PREVIOUS is the slot's entry before this one, 0 for none; it is always the smaller number.

How many slots and entries a file has room for is configuration (maxHashSlotNum, maxIndexNum) and stands nowhere in
it. RocketMQ's defaults (5,000,000 and 20,000,000) hold four entries a slot, and ``infer_slot_count`` assumes that
ratio, but a size alone proves nothing: any file has room for many pairs of slots and entries
(``fitting_slot_counts``). The content decides which pair it is. Only with the right slot count does entry 1 stand where
it should be (``find_first_entries``), and do the slots lead to the entries (``entry_could_be``).

Source: RocketMQ ``store/index/IndexHeader.java``, ``store/index/IndexFile.java``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from commitlog_store.errors import InvalidValue
from commitlog_store.java_numbers import MAX_LONG

DEFAULT_SLOT_COUNT = 5_000_000
DEFAULT_ENTRY_CAPACITY = 20_000_000
ENTRIES_PER_SLOT = DEFAULT_ENTRY_CAPACITY // DEFAULT_SLOT_COUNT

# One line per field: name, type as struct and numpy both write it.
_HEADER_FIELDS = (
    ("begin_timestamp", "q"),
    ("end_timestamp", "q"),
    ("begin_physical_offset", "q"),
    ("end_physical_offset", "q"),
    ("hash_slot_count", "i"),
    ("index_count", "i"),
)
_ENTRY_FIELDS = (
    ("key_hash", "i"),
    ("physical_offset", "q"),
    ("seconds", "i"),
    ("previous", "i"),
)

_HEADER = struct.Struct(">" + "".join(code for _, code in _HEADER_FIELDS))
_ENTRY = struct.Struct(">" + "".join(code for _, code in _ENTRY_FIELDS))
INDEX_ENTRY_DTYPE = np.dtype([(name, ">" + code) for name, code in _ENTRY_FIELDS])

HEADER_SIZE = _HEADER.size
SLOT_SIZE = struct.calcsize(">i")
ENTRY_SIZE = _ENTRY.size

assert HEADER_SIZE == 40
assert SLOT_SIZE == 4
assert ENTRY_SIZE == INDEX_ENTRY_DTYPE.itemsize == 20


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The header as it stands in the file, in its order. Times are milliseconds."""

    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    hash_slot_count: int
    index_count: int


class IndexEntry(NamedTuple):
    """One key of one message. ``seconds`` count from the header's begin timestamp."""

    key_hash: int
    physical_offset: int
    seconds: int
    previous: int


class HeaderProblem(NamedTuple):
    """An impossible header field: its name, its byte in the file, the expected and the found value."""

    field: str
    offset: int
    expected: str
    found: int


assert IndexEntry._fields == INDEX_ENTRY_DTYPE.names
assert tuple(IndexHeader.__dataclass_fields__) == tuple(name for name, _ in _HEADER_FIELDS)


def decode_header(data: bytes | memoryview) -> IndexHeader:
    """The header from an index file's first 40 bytes, as they are: ``check_header`` judges it. ``InvalidValue``."""
    _check_length("header", data, HEADER_SIZE)
    return IndexHeader(*_HEADER.unpack(data))


def encode_header(header: IndexHeader) -> bytes:
    """The 40 bytes of a header. ``InvalidValue`` for a number that does not fit its field."""
    return _pack("header", _HEADER, _values(header))


def _values(header: IndexHeader) -> tuple[int, ...]:
    """The fields in their order. (``dataclasses.astuple`` copies each, and queries look at many headers.)"""
    return tuple(getattr(header, name) for name, _ in _HEADER_FIELDS)


def check_header(header: IndexHeader, slot_count: int, capacity: int) -> HeaderProblem | None:
    """The first impossible field for a file of that many slots and places for entries; None when all are possible.

    An end before its begin is not a problem: the owner writes the fields one by one, and clocks step back.
    """
    longest = MAX_LONG
    highest = (longest, longest, longest, longest, slot_count, capacity)
    at = 0
    for (name, code), value, limit in zip(_HEADER_FIELDS, _values(header), highest, strict=True):
        if not 0 <= value <= limit:
            return HeaderProblem(name, at, "at least 0" if limit == longest else f"0 to {limit}", value)
        at += struct.calcsize(">" + code)
    return None


def decode_entry(data: bytes | memoryview) -> IndexEntry:
    """An entry from its 20 bytes, as they are. ``InvalidValue`` for another number of bytes."""
    _check_length("entry", data, ENTRY_SIZE)
    return IndexEntry(*_ENTRY.unpack(data))


def file_size(slot_count: int, capacity: int) -> int:
    """Bytes of an index file with that many slots and places for entries (the unused entry 0 among them)."""
    _check_geometry(slot_count)
    if capacity < 1:
        raise InvalidValue(f"An index file has room for at least 1 entry, not {capacity}.")
    return HEADER_SIZE + SLOT_SIZE * slot_count + ENTRY_SIZE * capacity


def infer_slot_count(file_size: int) -> int | None:
    """How many slots a file of that size has if it has four entries a slot; None when no number of slots fits.

    A file of another ratio may have a size that fits by chance (one in 21), so the content has to agree too.
    """
    slots, rest = divmod(file_size - HEADER_SIZE, SLOT_SIZE + ENTRIES_PER_SLOT * ENTRY_SIZE)
    return slots if slots >= 1 and rest == 0 else None


def entry_capacity(file_size: int, slot_count: int) -> int | None:
    """The number of entries that fit a file of that size beside that many slots; None when the two do not fit."""
    _check_geometry(slot_count)
    capacity, rest = divmod(file_size - HEADER_SIZE - SLOT_SIZE * slot_count, ENTRY_SIZE)
    return capacity if capacity >= 1 and rest == 0 else None


def fitting_slot_counts(file_size: int, header: IndexHeader) -> range:
    """Every slot count with which a file of that size has room for the slots and the entries that the header counts.

    Two that follow each other differ by the size of an entry, so the places of entry 1 that belong to them follow each
    other too: entry by entry.
    """
    step = ENTRY_SIZE // SLOT_SIZE
    slots_and_rest, rest = divmod(file_size - HEADER_SIZE, SLOT_SIZE)
    if rest:
        return range(0)
    highest = (file_size - HEADER_SIZE - ENTRY_SIZE * max(header.index_count, 1)) // SLOT_SIZE
    lowest = max(header.hash_slot_count, 1)
    return range(lowest + (slots_and_rest - lowest) % step, highest + 1, step)


def slot_offset(slot: int) -> int:
    """Where a slot lies in the file. ``slot`` is the key's hash modulo the slot count."""
    if slot < 0:
        raise InvalidValue(f"An index file's slots are numbered from 0, not {slot}.")
    return HEADER_SIZE + SLOT_SIZE * slot


def entry_offset(number: int, slot_count: int) -> int:
    """Where an entry lies in a file of that many slots."""
    _check_geometry(slot_count)
    if number < 0:
        raise InvalidValue(f"An index file's entries are numbered from 0, not {number}.")
    return HEADER_SIZE + SLOT_SIZE * slot_count + ENTRY_SIZE * number


def first_entry_agrees(header: IndexHeader, entry: IndexEntry) -> bool:
    """Whether ``entry``, read where entry 1 should be, agrees with the header's account of the first entry.

    False means that the slot count is wrong, or the file corrupt. True proves nothing: a file without entries agrees
    with anything, and in a file that begins with physical offset 0 unused bytes look like its first entry.
    """
    if header.index_count <= 1:
        return True
    return entry.physical_offset == header.begin_physical_offset and entry.previous == 0 and entry.key_hash >= 0


def entry_could_be(header: IndexHeader, number: int, entry: IndexEntry) -> bool:
    """Whether ``entry`` can be the one of that number (from 1) in a file with that header.

    Bytes that are all zero are not an entry, though a key whose hash is 0, of the message at physical offset 0, would
    give them: one key in two thousand million of one message, against whole regions of unused bytes.
    """
    return (
        any(entry)
        and entry.key_hash >= 0
        and entry.physical_offset >= header.begin_physical_offset
        and entry.seconds >= 0
        and 0 <= entry.previous < number
        and (number > 1 or first_entry_agrees(header, entry))
    )


def find_first_entries(header: IndexHeader, entries: npt.NDArray[Any], count: int) -> npt.NDArray[np.intp]:
    """Which of the first ``count`` entries of an array (``INDEX_ENTRY_DTYPE``) could be entry 1 of the file.

    The array is any stretch of the file, cut into entries. The two after each must look like entries 2 and 3, if the
    header counts so many, and must be in the array for that.
    """
    first = entries[:count]
    found = first["physical_offset"] == header.begin_physical_offset
    found &= (first["seconds"] >= 0) & (first["previous"] == 0)
    # Unused bytes look like an entry of the message at physical offset 0; see entry_could_be.
    found &= first["key_hash"] >= (1 if header.begin_physical_offset == 0 else 0)
    for following in range(1, min(header.index_count - 1, 3)):
        later = entries[following : following + count]
        found &= (later["physical_offset"] >= header.begin_physical_offset) & (later["seconds"] >= 0)
        found &= (later["previous"] >= 0) & (later["previous"] <= following)
        found &= later["key_hash"] >= 0
        found &= (later["key_hash"] != 0) | (later["physical_offset"] != 0)
    return np.flatnonzero(found)


def _check_geometry(slot_count: int) -> None:
    if slot_count < 1:
        raise InvalidValue(f"An index file has at least 1 slot, not {slot_count}.")


def _check_length(what: str, data: bytes | memoryview, size: int) -> None:
    if len(data) != size:
        raise InvalidValue(f"An index file's {what} takes {size} bytes, not {len(data)}.")


def _pack(what: str, layout: struct.Struct, values: tuple[int, ...]) -> bytes:
    try:
        return layout.pack(*values)
    except struct.error as error:
        raise InvalidValue(f"The numbers of an index file's {what} do not fit their fields: {values}.") from error
