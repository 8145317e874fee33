"""Walk of a damaged log: every whole, good record wherever it lies, and the gaps between.

``log/scan.FileWalk`` stops at the first record that is not good, as the end of the log. This walk continues after it
with the next good record, which the search of ``record_search`` finds byte by byte, in this file or in a later one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from commitlog_store.columnar.impossible_fields import first_impossible
from commitlog_store.columnar.scan import RecordScan, Stop, scan_records
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.format.record import (
    FILLER_SIZE,
    PROPERTIES_LENGTH_SIZE,
    Corrupt,
    Filler,
    Record,
    Torn,
    Unwritten,
    decode_record,
)
from commitlog_store.log.record_search import first_good_record, good_record
from commitlog_store.log.scan import BLOCK_SIZE, SECTOR_SIZE, FileWalk, LogFiles, first_without_sector

_PIECE_SIZE = 4 << 20
_TOTALSIZE_SIZE = 4
_ZEROS = bytes(_PIECE_SIZE)
# The size of the first block after a bad record; the next ones grow.
_AFTER_DAMAGE = 64 << 10


@dataclass(frozen=True)
class Gap:
    """A stretch ``[start, stop)`` of the log, in physical offsets, in which no good record starts, though it should.

    ``fault`` is what is at ``start``: ``Corrupt``, ``Torn`` or ``Filler`` for bytes that are not a good record,
    ``Unwritten`` for zeros before a record, None where a file is missing or ends early.
    """

    start: int
    stop: int
    fault: Stop

    @property
    def size(self) -> int:
        """Bytes of the gap."""
        return self.stop - self.start

    @property
    def reason(self) -> str:
        """What is wrong at the gap's start, as a string."""
        return describe_fault(self.fault)


def describe_fault(fault: Stop) -> str:
    """What is where a record should start, as a string."""
    match fault:
        case Corrupt(field, _, expected, found):
            return f"{field}: expected {expected}, found {found}"
        case Torn(needed, available):
            return f"a record of {needed} bytes where {available} are left"
        case Filler(size):
            return f"a blank filler of {size} bytes that does not reach to its file's end"
        case Unwritten():
            return "zeros before a record"
        case _:
            return "the file is missing, or ends early"


def walk_past_damage(
    files: LogFiles, start: int, limit: int, *, check_crc: bool = True, block_size: int = BLOCK_SIZE
) -> Iterator[RecordScan | Gap]:
    """All whole, good records of ``[start, limit)``, in blocks that lie in one file each, and the gaps between.

    A record is good when ``record.decode_record`` accepts it and no field has a value that no store writes. Damaged
    records, zeros before a record, missing files and files that are too short become gaps. The unwritten end of the
    log, a blank filler that reaches to its file's end, and a record that crosses ``limit`` do not. A gap without a
    record after it ends with the last byte that is not zero.

    After damage only records with a good CRC are found, also without ``check_crc``. Beside a live owner, ``limit`` is
    at most what it has shown to readers: a record that is being written looks damaged. Never writes. Holes of the
    files are not read, and memory does not grow with the log. ``FileChanged`` when a file is truncated during the walk.
    """
    unsure: list[Gap] = []
    for part in _parts(files, start, limit, check_crc=check_crc, block_size=block_size):
        if isinstance(part, Gap):
            unsure.append(part)
            continue
        yield from unsure
        unsure.clear()
        yield part
    yield from _before_the_end(files, unsure)


def _parts(files: LogFiles, start: int, limit: int, *, check_crc: bool, block_size: int) -> Iterator[RecordScan | Gap]:
    """Records and gaps; the unwritten end of the log is a gap here."""
    at = start
    while at < limit:
        later = files.bases[bisect_right(files.bases, at) :]
        file = files.find(at)
        if file is not None:
            file_end = min([file.base + file.size, *later[:1]])
            yield from _in_file(file, at, file_end, limit, check_crc=check_crc, block_size=block_size)
            at = file_end
        elif later:
            yield Gap(at, min(later[0], limit), None)
            at = later[0]
        else:
            return


def _in_file(
    file: MappedFile, start: int, file_end: int, limit: int, *, check_crc: bool, block_size: int
) -> Iterator[RecordScan | Gap]:
    """Records and gaps of one file, whose bytes belong to the log up to ``file_end``, or to the limit before it."""
    stop = min(file_end, limit)
    at, first_size = start, block_size
    bad: Gap | None = None
    while at < stop:
        walk = FileWalk(
            file,
            at,
            stop,
            check_crc=check_crc,
            file_end=file_end,
            block_size=block_size,
            first_size=first_size,
            good_part=_possible_part,
            trusts_sizes=False,
        )
        for scan in walk:
            if bad is not None:
                yield Gap(bad.start, scan.physical_offset, bad.fault)
                bad = None
            yield scan
        at = walk.offset
        crosses_limit = isinstance(walk.stop, Torn) and limit < file_end and good_record(file, at, file_end) is not None
        if walk.stop is None or crosses_limit:
            break
        if bad is None:
            bad = Gap(at, at, walk.stop)
        found = first_good_record(file, at + 1, stop, file_end)
        if found is None:
            at = _filler_after(file, at, file_end, stop)
            break
        at = found.physical_offset
        # A scan checks a whole block before it stops at a bad body: near damage, more of it is likely.
        first_size = _AFTER_DAMAGE
    if bad is not None:
        yield Gap(bad.start, at, bad.fault)


def _possible_part(scan: RecordScan) -> tuple[RecordScan, Stop]:
    """The scan up to the first record whose header has a value that no store writes, and what follows."""
    impossible = first_impossible(scan)
    if impossible is None:
        return scan, scan.stop
    row, fault = impossible
    return scan_records(scan.data[: int(scan.positions[row])], scan.physical_offset, check_crc=False), fault


def _filler_after(file: MappedFile, at: int, file_end: int, stop: int) -> int:
    """Where the file's blank filler starts, if the size of the bad record at ``at`` leads to it; else ``stop``."""
    size = int.from_bytes(file.read(at - file.base, 4), "big", signed=True)
    filler = decode_record(file.read(at + size - file.base, FILLER_SIZE)) if size > 0 else None
    return at + size if isinstance(filler, Filler) and at + size + filler.size == file_end else stop


def _before_the_end(files: LogFiles, unsure: list[Gap]) -> Iterator[Gap]:
    """The gaps after the last record that are not unwritten space: up to the last byte that is not zero."""
    for place in reversed(range(len(unsure))):
        gap = unsure[place]
        stop = gap.stop if gap.fault is None else _nonzero_end(files, gap)
        if stop > gap.start:
            yield from unsure[:place]
            yield Gap(gap.start, stop, gap.fault)
            return


def lacks_sectors(files: LogFiles, start: int, stop: int) -> bool:
    """Whether a sector of the frame ``[start, stop)``, which begins with a good record, may have missed the device.

    What a device has not written before its machine stopped is zero: log files are made so, and used once. A sector
    with the frame's end or two writes in it may be zero only before or after that place. Good records and blank fillers
    are as they were written, but for their topics and properties.
    """
    end = start
    for part in _parts(files, start, stop, check_crc=True, block_size=BLOCK_SIZE):
        file = files.find(part.start if isinstance(part, Gap) else part.physical_offset)
        if file is None:
            return True
        if isinstance(part, Gap):
            if part.fault is None or _lacks_its_start(file, part, stop) or _has_zero_sector(file, part, stop):
                return True
            end = part.stop
        else:
            if first_without_sector(part, part.physical_offset - file.base, start) is not None:
                return True
            end = part.physical_offset + part.end
    return end < stop


def _lacks_its_start(file: MappedFile, gap: Gap, frame_end: int) -> bool:
    """Whether the first bytes of a record or filler, up to a sector's border, are missing where a gap starts."""
    start = gap.start - file.base
    head = file.read(start, min(SECTOR_SIZE - start % SECTOR_SIZE, frame_end - gap.start))
    # A TOTALSIZE begins with zeros of its own. What starts there takes the gap, if no more is missing of it.
    size = gap.size.to_bytes(_TOTALSIZE_SIZE, "big")
    if any(head) or not any(size[: len(head)]):
        return False
    if len(head) >= _TOTALSIZE_SIZE:
        return True
    found = decode_record(size + file.read(start, gap.size)[_TOTALSIZE_SIZE:], physical_offset=gap.start)
    rest_of_size = file.read(start + len(head), _TOTALSIZE_SIZE - len(head))
    return isinstance(found, Record | Filler) and rest_of_size == size[len(head) :]


def _has_zero_sector(file: MappedFile, gap: Gap, frame_end: int) -> bool:
    """Whether a sector that begins in a gap is zero up to its border, or up to the frame's end."""
    first = -(-(gap.start - file.base) // SECTOR_SIZE) * SECTOR_SIZE
    # The next record begins with zeros of its own, so the last sector may reach beyond the gap.
    stop = min(-(-(gap.stop - file.base) // SECTOR_SIZE) * SECTOR_SIZE, frame_end - file.base, file.capacity)
    last = max(stop // SECTOR_SIZE * SECTOR_SIZE, first)
    for place in range(first, last, _PIECE_SIZE):
        size = min(_PIECE_SIZE, last - place)
        data = np.frombuffer(file.read(place, size), np.uint8)
        if len(data) < size or not data.reshape(-1, SECTOR_SIZE).any(axis=1).all():
            return True
    # A record without properties ends with the length of none, which is zero.
    tail = file.read(last, stop - last) if last < stop else b""
    return len(tail) > PROPERTIES_LENGTH_SIZE and not any(tail)


def is_unwritten(files: LogFiles, gap: Gap) -> bool:
    """Whether every byte of a gap is zero, or in a hole: the head of a kept piece of a log is."""
    return gap.fault is not None and _nonzero_end(files, gap) == gap.start


def _nonzero_end(files: LogFiles, gap: Gap) -> int:
    """The end of the last byte of a gap, which lies in one file, that is not zero; its start when all are zero."""
    file = files.find(gap.start)
    if file is None:
        return gap.start
    for first, last in reversed(file.data_extents(gap.start - file.base, gap.stop - file.base)):
        for stop in range(last, first, -_PIECE_SIZE):
            start = max(stop - _PIECE_SIZE, first)
            data = file.read(start, stop - start)
            if not _ZEROS.startswith(data):  # one memcmp, twenty times as fast as rstrip
                return file.base + start + len(data.rstrip(b"\0"))
    return gap.start
