"""Scan of a stretch of the log for its records, hopping from size to size; for dispatch and recovery.

``scan_records`` finds the whole, good records that stand one after another, their parts, and what stands after the
last one. A record is good when ``record.decode_record`` accepts it; that function's result for the first bytes that
are not a good record is the scan's ``stop``.

Only the hop goes record by record, since a record's place is known by the size of the one before. Where sizes repeat
even that is not needed: that the same size and magic stand at every multiple of it is one comparison over many records.

Source: RocketMQ ``store/CommitLog.java`` (``checkMessageAndReturnSize``, ``recoverNormally``).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from commitlog_store.columnar.arrow_bytes import all_equal, gather_binary
from commitlog_store.columnar.byte_parts import crcs_of
from commitlog_store.columnar.locate import (
    LocatedRecords,
    RecordParts,
    RecordProblem,
    follow_lengths,
    gather_headers,
    require,
)
from commitlog_store.columnar.properties import PropertyGroups
from commitlog_store.format.arrays import ByteArray, Int32Array, Int64Array
from commitlog_store.format.checksum import crc32
from commitlog_store.format.properties import decode_utf8
from commitlog_store.format.record import (
    CRC_MASK,
    FILLER_SIZE,
    HEADER_DTYPES,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    RECORD_PREFIX,
    Corrupt,
    Filler,
    Record,
    Torn,
    Unwritten,
    decode_record,
    field_offset,
)

Stop: TypeAlias = Filler | Unwritten | Torn | Corrupt | None


# Records to hop over before the last of them are checked for equal sizes, and how many of these are checked.
_HOPS = 64
_EQUAL_HOPS = 8
# Records to compare at once where sizes repeat: at first and at most.
_FIRST_RUN = 16
_LONGEST_RUN = 1 << 16
# Bodies of this many records are gathered for their CRC at a time, so that they stay in the processor's cache.
_CRC_ROWS = 1024
# From this mean length on, a view of each body where it lies costs less than gathering it.
_LONG_BODY = 768


@dataclass(frozen=True, kw_only=True)
class RecordScan(LocatedRecords):
    """The good records at the head of ``data``, which lies at ``physical_offset`` of the log.

    ``end`` is the position right after the last record, and ``stop`` what is there; None when ``data`` ends there.
    ``Torn`` says that what starts at ``end`` needs more bytes than ``data`` has.
    """

    physical_offset: int
    positions: Int64Array
    end: int
    stop: Stop

    def __len__(self) -> int:
        """The number of records."""
        return len(self.positions)

    @cached_property
    def properties(self) -> PropertyGroups:
        """The property strings of the records."""
        return PropertyGroups(gather_binary(self.data, self.parts.properties_starts, self.parts.properties_lengths))

    @cached_property
    def topics(self) -> tuple[Int32Array, list[str]]:
        """A code for each record's topic, and the topics that codes point into."""
        if not len(self):
            return np.zeros(0, np.int32), []
        starts, lengths = self.parts.topic_starts, self.parts.topic_lengths
        start, length = int(starts[0]), int(lengths[0])
        first = self.data[start : start + length].tobytes()
        if (lengths == length).all() and all_equal(self.data, starts, first):
            return np.zeros(len(self), np.int32), [decode_utf8(first)]
        encoded = gather_binary(self.data, starts, lengths).dictionary_encode()
        names = [decode_utf8(name) for name in encoded.dictionary.to_pylist()]
        # Different bytes that are not UTF-8 may give the same text.
        codes = {name: code for code, name in enumerate(dict.fromkeys(names))}
        code_of = np.array([codes[name] for name in names], np.int32)
        return code_of[encoded.indices.to_numpy(zero_copy_only=False)], list(codes)


def scan_records(data: ByteArray, physical_offset: int, *, check_crc: bool) -> RecordScan:
    """Find the records that stand one after another from the start of ``data``, up to the first that is not good.

    ``data`` is contiguous, shorter than 2 GiB, and starts where a record starts. Bodies are compared with their CRC
    only with ``check_crc``. Never raises because of the bytes.
    """
    positions, end = _walk(data)
    while True:
        sizes = np.diff(positions, append=end)
        try:
            headers, parts = _take_apart(data, positions, sizes, physical_offset)
            if check_crc:
                _check_bodies(data, headers, parts)
        except RecordProblem as problem:
            # An earlier record may have a problem in a field that was not checked yet.
            end = int(positions[problem.index])
            positions = positions[: problem.index]
        else:
            stop = _stop_at(data, end, physical_offset, check_crc)
            return RecordScan(
                data=data,
                physical_offset=physical_offset,
                positions=positions,
                sizes=sizes,
                headers=headers,
                parts=parts,
                end=end,
                stop=stop,
            )


def _stop_at(data: ByteArray, end: int, physical_offset: int, check_crc: bool) -> Stop:
    if end == len(data):
        return None
    found = decode_record(data.data[end:], physical_offset=physical_offset + end, check_crc=check_crc)
    # A record there was written since the scan, by an owner at work: it counts as not written yet.
    return Unwritten() if isinstance(found, Record) else found


def _take_apart(
    data: ByteArray, positions: Int64Array, sizes: Int64Array, physical_offset: int
) -> tuple[npt.NDArray[np.void], RecordParts]:
    if not len(positions):
        nothing = np.zeros(0, np.int64)
        return np.zeros(0, HEADER_DTYPES[0]), RecordParts(*[nothing] * len(RecordParts._fields))
    headers, head_sizes = gather_headers(data, positions, sizes)
    found = headers["physical_offset"]
    wanted = positions + physical_offset
    require(found == wanted, "PHYSICALOFFSET", field_offset("physical_offset"), lambda i: int(wanted[i]), found)
    return headers, follow_lengths(data, positions, sizes, headers, head_sizes, topic=None)


def _check_bodies(data: ByteArray, headers: npt.NDArray[np.void], parts: RecordParts) -> None:
    long = len(headers) > 0 and int(parts.body_lengths.sum()) >= len(headers) * _LONG_BODY
    computed = (_crcs_of_long if long else _crcs_of_short)(data, parts.body_starts, parts.body_lengths)
    computed &= CRC_MASK
    stored = headers["body_crc"]
    require(stored == computed, "BODYCRC", field_offset("body_crc"), lambda i: int(computed[i]), stored)


def _crcs_of_long(data: ByteArray, starts: Int64Array, lengths: Int64Array) -> Int64Array:
    view = data.data
    places = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
    return np.array([crc32(view[start:stop]) for start, stop in places], np.int64)


def _crcs_of_short(data: ByteArray, starts: Int64Array, lengths: Int64Array) -> Int64Array:
    computed = np.empty(len(starts), np.int64)
    for first in range(0, len(starts), _CRC_ROWS):
        rows = slice(first, first + _CRC_ROWS)
        computed[rows] = crcs_of(gather_binary(data, starts[rows], lengths[rows]))
    return computed


def _walk(data: ByteArray) -> tuple[Int64Array, int]:
    """Where the records start that have a known magic and a possible size and lie within ``data``, and their end."""
    stretches: list[Int64Array] = []
    end, going = 0, True
    while going:
        count, size = _even_run(data, end)
        stretches.append(np.arange(end, end + count * size, size or 1, dtype=np.int64))
        starts: list[int] = []
        end, going = _hop(data, end + count * size, starts)
        # Looking for an even stretch pays only where sizes repeat.
        while going and end - starts[-_EQUAL_HOPS] != _EQUAL_HOPS * (end - starts[-1]):
            end, going = _hop(data, end, starts)
        stretches.append(np.array(starts, np.int64))
    return np.concatenate(stretches), end


def _even_run(data: ByteArray, start: int) -> tuple[int, int]:
    """How many records of one size and magic stand one after another from ``start``, and that size."""
    if start + FILLER_SIZE > len(data):
        return 0, 0
    size, magic = RECORD_PREFIX.unpack_from(data.data, start)
    if magic not in (MAGIC_V1, MAGIC_V2) or size < MIN_RECORD_SIZE:
        return 0, 0
    fitting = (len(data) - start) // size
    if not fitting:
        return 0, 0
    prefixes = np.ndarray((fitting,), np.uint64, data.data, offset=start, strides=(size,))
    count, step = 1, _FIRST_RUN
    while count < fitting:
        same = prefixes[count : count + step] == prefixes[0]
        if not same.all():
            return count + int(np.argmin(same)), size
        count += len(same)
        step = min(step * 16, _LONGEST_RUN)
    return count, size


def _hop(data: ByteArray, at: int, starts: list[int]) -> tuple[int, bool]:
    """Append the starts of up to ``_HOPS`` records from ``at``; where the last one ends, and whether all were there."""
    unpack_from = RECORD_PREFIX.unpack_from
    append = starts.append
    view = data.data
    going = False
    try:
        for _ in range(_HOPS):
            size, magic = unpack_from(view, at)
            if size < MIN_RECORD_SIZE or (magic != MAGIC_V1 and magic != MAGIC_V2):
                break
            append(at)
            at += size
        else:
            going = True
    except struct.error:
        pass  # fewer bytes are left than a size and a magic take
    if at > len(data):
        return starts.pop(), False
    return at, going
