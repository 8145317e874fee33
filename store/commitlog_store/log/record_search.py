"""One record of a file: at a place, also without its body, or the first good one from an arbitrary byte on."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np

from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.format.record import (
    MIN_RECORD_SIZE,
    RECORD_MAGICS,
    RECORD_PREFIX_SIZE,
    Decoded,
    Record,
    Torn,
    decode_record,
    decode_without_body,
)

_PIECE_SIZE = 4 << 20
_NEAR = 64 << 10
# Most messages fit in so many bytes, which take one call. Of longer ones, what follows the body takes another.
_FIRST_READ = 4096
# The longest record that is searched for.
_LONGEST = 64 << 20


def good_record(file: MappedFile, at: int, file_end: int) -> Record | None:
    """The record at physical offset ``at`` of a file that ends at ``file_end``; None unless it is whole and good."""
    head = decode_record(file.read(at - file.base, MIN_RECORD_SIZE), physical_offset=at)
    if isinstance(head, Torn) and head.needed <= min(_LONGEST, file_end - at):
        head = decode_record(file.read(at - file.base, head.needed), physical_offset=at)
    return head if isinstance(head, Record) else None


def record_without_body(file: MappedFile, physical_offset: int) -> Decoded:
    """The record at a place of a file, its body ``b""``; or what is there. All fields are checked but the body's CRC.

    The errors of ``MappedFile.read``.
    """
    position = physical_offset - file.base

    def read(start: int, length: int) -> bytes:
        return file.read(position + start, length)

    return decode_without_body(
        file.read(position, _FIRST_READ), file.size - position, read, physical_offset=physical_offset
    )


def first_good_record(file: MappedFile, start: int, stop: int, file_end: int) -> Record | None:
    """The first whole, good record that begins within ``[start, stop)`` (physical offsets) of one file.

    Holes of the file are skipped, and with them most of the allocated space that was never written.
    """
    # Most often the next record is near. Asking for holes costs more than reading that far.
    near = min(start + _NEAR, stop)
    if (found := _first_within(file, start, near, file_end)) is not None:
        return found
    if near >= stop:
        return None
    # The first bytes of TOTALSIZE may be zero, and lie in a hole before the rest of the record.
    for first, last in file.data_extents(near - file.base, min(stop + RECORD_PREFIX_SIZE, file_end) - file.base):
        begin = max(file.base + first - RECORD_PREFIX_SIZE, near)
        if (found := _first_within(file, begin, min(file.base + last, stop), file_end)) is not None:
            return found
    return None


def _first_within(file: MappedFile, start: int, stop: int, file_end: int) -> Record | None:
    at = start
    while at < stop:
        data = file.read(at - file.base, min(_PIECE_SIZE, stop + RECORD_PREFIX_SIZE - at, file_end - at))
        for place in _places(data):
            if at + place >= stop:
                return None
            if (found := good_record(file, at + place, file_end)) is not None:
                return found
        # The prefix of a record may lie across the border of two pieces.
        at += max(len(data) - RECORD_PREFIX_SIZE + 1, 1)
    return None


def _places(data: bytes) -> Iterator[int]:
    """Where records could begin, in order: four bytes before each magic code."""
    if _is_zero(data):
        return iter(())  # as most bytes after a log's end are
    return heapq.merge(*(_hits(data, magic) for magic in RECORD_MAGICS))


def _hits(data: bytes, magic: bytes) -> Iterator[int]:
    hit = data.find(magic, 4)
    while hit >= 0:
        yield hit - 4
        hit = data.find(magic, hit + 1)


def _is_zero(data: bytes) -> bool:
    words = len(data) // 8 * 8
    return not np.frombuffer(data, np.uint64, words // 8).any() and not any(data[words:])
