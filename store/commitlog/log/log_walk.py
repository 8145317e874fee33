"""Through the owner's log, block by block: what reput dispatches and what recovery checks."""

from __future__ import annotations

from collections.abc import Iterator

from commitlog.files.writable_mapped_file import WritableMappedFile
from commitlog.files.writable_mapped_file_queue import WritableMappedFileQueue
from commitlog.format.record import MAGIC_V1, MAGIC_V2, Filler, Record, Torn, decode_record
from commitlog.format.record_scan import RecordScan, Stop, scan_records

__all__ = ["BLOCK_SIZE", "LogEnd", "find_record", "first_store_timestamp", "walk"]

BLOCK_SIZE = 4 << 20
_MAGICS = (MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big"))
_SEARCHED = 4 << 20
# The longest record that is searched for: any larger and the bytes in between were good for nothing anyway.
_LONGEST = 64 << 20


class LogEnd:
    """Where a walk ended, and what stands there: ``stop`` is None at the end of the last file."""

    def __init__(self) -> None:
        self.offset = 0
        self.stop: Stop = None


def walk(
    files: WritableMappedFileQueue,
    start: int,
    limit: int,
    end: LogEnd,
    *,
    check_crc: bool,
    block_size: int = BLOCK_SIZE,
) -> Iterator[RecordScan]:
    """The records of ``[start, limit)``, in blocks that lie in one file each, up to the first that is not good.

    ``end`` says after each block how far the walk has come. A blank filler that reaches exactly to its file's end is
    passed over.
    """
    at, size = start, block_size
    end.offset, end.stop = at, None
    while at < limit and (file := files.find(at)) is not None:
        file_end = file.base + file.capacity
        stop = min(at + size, file_end, limit)
        scan = scan_records(file.span(at - file.base, stop - file.base, populate=True), at, check_crc=check_crc)
        at += scan.end
        end.offset, end.stop = at, scan.stop
        if len(scan):
            yield scan
        size = block_size
        match scan.stop:
            case None:
                continue
            case Filler(length) if at + length == file_end:
                at = end.offset = file_end
                end.stop = None
            case Torn(needed, available) if stop < min(file_end, limit) and needed > available:
                if at + needed > min(file_end, limit):
                    return
                size = max(needed, block_size)
                end.stop = None
            case _:
                return


def first_store_timestamp(file: WritableMappedFile) -> int | None:
    """The store time of a file's first record; None when no record starts it."""
    size = min(file.capacity, _SEARCHED)
    match decode_record(file.read(0, size), physical_offset=file.base, check_crc=False):
        case Record(store_timestamp=timestamp):
            return timestamp
        case _:
            return None


def find_record(files: WritableMappedFileQueue, start: int, stop: int) -> Record | None:
    """The first whole, good record that begins within ``[start, stop)``, wherever it begins."""
    for file in files.files:
        low, high = max(start, file.base), min(stop, file.base + file.capacity)
        at = low
        while at < high:
            data = file.read(at - file.base, min(_SEARCHED, file.base + file.capacity - at))
            found = _first_record(file, data, at, high)
            if found is not None:
                return found
            # The prefix of a record may lie across the border of two pieces.
            at += max(len(data) - 7, 1)
    return None


def _first_record(file: WritableMappedFile, data: bytes, at: int, high: int) -> Record | None:
    for place in sorted(_places(data)):
        if at + place >= high:
            return None
        head = decode_record(data[place:], physical_offset=at + place)
        if isinstance(head, Torn) and head.needed <= min(_LONGEST, file.base + file.capacity - at - place):
            whole = file.read(at + place - file.base, head.needed)
            head = decode_record(whole, physical_offset=at + place)
        if isinstance(head, Record):
            return head
    return None


def _places(data: bytes) -> Iterator[int]:
    """Where records could begin: four bytes before each magic code."""
    for magic in _MAGICS:
        hit = data.find(magic, 4)
        while hit >= 0:
            yield hit - 4
            hit = data.find(magic, hit + 1)
