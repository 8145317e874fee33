"""Index objects of an archive: where the messages of one segment are that may have a key, by the key's hash.

Big-endian::

    0        8         12        16        20    24
    +--------+---------+---------+---------+-----+--------------------------+----------------------------+
    | MAGIC  | VERSION | HASHES  | PLACES  | 0   | a row a hash             | a place a message          |
    +--------+---------+---------+---------+-----+--------------------------+----------------------------+

    row:     MIXED HASH 4 | FIRST PLACE 4                            place:  POSITION 4

The hash is that of RocketMQ's index files: ``index_key_hash`` of ``topic#key``, for UNIQ_KEY and each of KEYS. MIXED
HASH is ``mixed_hashes`` of it, a permutation of the 32-bit numbers that spreads them evenly. Rows ascend by it, so the
number of rows says where a row must be: a reader computes it, and reads a few kilobytes around it (``window``). No
directory is needed, and one request says that a segment does not have a key.

The places of a row are those from FIRST PLACE on, up to that of the next row. POSITION is the record's first byte,
counted from the segment's start; the positions of a row ascend.

The object has this content in ``object_storage/checked_pages``.

Only records decide about an object, as with ``unit_objects``.
"""

from __future__ import annotations

import math
import struct

import numpy as np
import numpy.typing as npt

from commitlog_store.archive.damage import WrongBytes, check_start, not_decoded
from commitlog_store.archive.queue_names import Structured
from commitlog_store.format.arrays import Int32Array, Int64Array

_MAGIC = b"CLARINDX"
_VERSION = 1
_HEADER = struct.Struct(">8sIIII")
_ROW = np.dtype([("mixed", ">u4"), ("first", ">u4")])
_PLACE = np.dtype(">u4")
INDEX_HEAD = _HEADER.size
INDEX_ROW_SIZE = _ROW.itemsize
PLACE_SIZE = _PLACE.itemsize
assert (INDEX_HEAD, INDEX_ROW_SIZE, PLACE_SIZE) == (24, 8, 4)

UInt32Array = npt.NDArray[np.uint32]

# Of n numbers that are spread evenly, those below one of them are as many as computed, but for sqrt(n) / 2 in two of
# three cases; six times that is exceeded once in 500 million cases.
_DEVIATIONS = 3
_LEAST = 16


def mixed_hashes(hashes: Int32Array) -> UInt32Array:
    """The hashes, spread evenly over the 32-bit numbers: the last steps of MurmurHash3, which can be reversed."""
    mixed = hashes.astype(np.uint32)
    mixed ^= mixed >> np.uint32(16)
    mixed *= np.uint32(0x85EBCA6B)
    mixed ^= mixed >> np.uint32(13)
    mixed *= np.uint32(0xC2B2AE35)
    mixed ^= mixed >> np.uint32(16)
    return mixed


def window(mixed: int, rows: int, width: int = 1) -> tuple[int, int]:
    """The rows ``[low, high)`` among which the row of a mixed hash is expected; ``width`` widens that."""
    middle = mixed * rows >> 32
    reach = width * (_DEVIATIONS * math.isqrt(rows) + _LEAST)
    return max(middle - reach, 0), min(middle + reach, rows)


def encode_index(hashes: Int32Array, positions: Int64Array) -> tuple[list[bytes], int]:
    """The parts of an object, and its number of rows. ``positions`` go with ``hashes``; both in any order."""
    mixed = mixed_hashes(hashes)
    order = np.lexsort((positions, mixed))
    mixed, positions = mixed[order], positions[order]
    # A message may have one key twice, as a key and as its unique key.
    is_new = np.ones(len(mixed), np.bool_)
    is_new[1:] = (mixed[1:] != mixed[:-1]) | (positions[1:] != positions[:-1])
    mixed, positions = mixed[is_new], positions[is_new]
    firsts = np.flatnonzero(np.concatenate(([True], mixed[1:] != mixed[:-1]))) if len(mixed) else np.zeros(0, np.int64)
    rows = np.empty(len(firsts), _ROW)
    rows["mixed"], rows["first"] = mixed[firsts], firsts
    head = _HEADER.pack(_MAGIC, _VERSION, len(rows), len(positions), 0)
    return [head, rows.tobytes(), positions.astype(_PLACE).tobytes()], len(rows)


def decode_index_head(data: bytes | memoryview, name: str) -> tuple[int, int]:
    """The numbers of rows and of places, by an object's first ``INDEX_HEAD`` bytes. ``ArchiveDamaged``."""
    try:
        magic, version, rows, places, _ = _HEADER.unpack_from(data)
        check_start((magic, version), _MAGIC, _VERSION)
    except (struct.error, WrongBytes) as error:
        raise not_decoded(name, "an index of an archive", error) from error
    return int(rows), int(places)


def places_start(rows: int) -> int:
    """Where in an object of that many rows the places begin."""
    return INDEX_HEAD + rows * INDEX_ROW_SIZE


def decode_rows(data: bytes | memoryview) -> Structured:
    """Rows, with the fields ``mixed`` and ``first``."""
    return np.frombuffer(data, _ROW)


def decode_places(data: bytes | memoryview) -> Int64Array:
    """The positions of records within the segment."""
    return np.frombuffer(data, _PLACE).astype(np.int64)
