"""Whole records at the head of received bytes: what a mirror appends at once. Pure.

A mirror's log ends where a record does, so the beginning of a record waits until the rest has come. A blank filler
does not wait, since it may be as long as a file: its header says where it ends, and the log takes it in pieces. The
frame record of a batch stands alone, since the batch's records become part of the log all together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from commitlog_store.batch.frames import frame_of
from commitlog_store.columnar.scan import RecordScan, scan_records
from commitlog_store.errors import PeerRefused
from commitlog_store.format.record import FILLER_SIZE, Corrupt, Decoded, Filler, Record, Torn, Unwritten, decode_record
from commitlog_store.paths import BATCH_TOPIC

# So few bytes are taken a record at a time: one put under SYNC_MASTER waits for them, and numpy's calls take longer.
_FEW = 8 << 10


class WholeRecords(NamedTuple):
    """The first ``size`` bytes are whole records, or what has come of a filler that ends the file at ``filler_end``.

    ``last_record`` is the physical offset of the last one (-1: none of them is a record) and ``last_store_timestamp``
    its store time in ms. ``frame_end``, if not 0, is the end of the batch whose frame record is all of it.
    """

    size: int
    last_record: int = -1
    last_store_timestamp: int = 0
    frame_end: int = 0
    filler_end: int = 0


def whole_records(
    data: bytearray, physical_offset: int, *, stop: int, file_size: int, largest_record: int
) -> WholeRecords:
    """The whole records of one file at the head of ``data``, which lies at ``physical_offset`` of the master's log.

    None of them lies beyond ``stop``, the end of a batch; 0 for no such end. ``PeerRefused`` for bytes that are no
    record, for one of more than ``largest_record`` bytes, and for records that lie in files of another size.
    """
    room = file_size - physical_offset % file_size
    size = min(len(data), room, stop - physical_offset if stop else room)
    first = decode_record(memoryview(data)[:size], physical_offset=physical_offset)
    if isinstance(first, Record):
        frame = frame_of(first)
        if frame is not None or size - first.total_size < _FEW:
            return WholeRecords(
                first.total_size, physical_offset, first.store_timestamp, 0 if frame is None else frame.end
            )
        return _run_of_records(scan_records(np.frombuffer(data, np.uint8)[:size], physical_offset, check_crc=True))
    _check_stop(first, physical_offset, room, file_size, largest_record)
    left = stop - physical_offset
    if stop and isinstance(first, Torn) and first.needed > left and len(data) >= left:
        raise PeerRefused(f"The batch that ends at physical offset {stop} ends within the record before that.")
    if not isinstance(first, Filler):
        return WholeRecords(0)
    if stop and left <= room:
        raise PeerRefused(f"The batch that ends at physical offset {stop} ends within the blank filler before that.")
    return WholeRecords(size, filler_end=physical_offset + room)


def _run_of_records(scan: RecordScan) -> WholeRecords:
    """The records of a scan, up to the first that begins a batch."""
    frame = _first_frame(scan)
    count = frame if frame >= 0 else len(scan)
    place = int(scan.positions[count - 1])
    return WholeRecords(
        place + int(scan.sizes[count - 1]), scan.physical_offset + place, int(scan.field("store_timestamp")[count - 1])
    )


def _first_frame(scan: RecordScan) -> int:
    """The row of the first frame record; -1 without one."""
    codes, names = scan.topics
    if BATCH_TOPIC not in names:
        return -1
    rows = np.flatnonzero(codes == names.index(BATCH_TOPIC)).tolist()
    return next((row for row in rows if frame_of(_record(scan, row)) is not None), -1)


def _record(scan: RecordScan, row: int) -> Record:
    start = int(scan.positions[row])
    found = decode_record(scan.data[start : start + int(scan.sizes[row])].tobytes(), check_crc=False)
    assert isinstance(found, Record), "the scan found it good"
    return found


def _check_stop(stop: Decoded, at: int, room: int, file_size: int, largest_record: int) -> None:
    """``PeerRefused`` if what stands at ``at`` can never become a record, or the end of one of our files."""
    if isinstance(stop, Corrupt | Unwritten):
        found = f"{stop.field} {stop.found}" if isinstance(stop, Corrupt) else "zeros"
        raise PeerRefused(
            f"What the master sent at physical offset {at} is not a record: {found}. Is its log damaged there?"
        )
    if isinstance(stop, Filler) and stop.size != room:
        raise _other_file_size(at + stop.size, "ends", file_size)
    if isinstance(stop, Torn) and stop.needed > largest_record:
        raise PeerRefused(
            f"The record at physical offset {at} has {stop.needed} bytes; at most {largest_record} are taken. Set "
            "max_message_size to the master's maxMessageSize."
        )
    if isinstance(stop, Torn) and FILLER_SIZE < stop.needed > room:
        raise _other_file_size(at + stop.needed, "continues", file_size)


def _other_file_size(offset: int, what: str, file_size: int) -> PeerRefused:
    return PeerRefused(
        f"The master's log file {what} at physical offset {offset}, where no file of {file_size} bytes does. Set "
        "mapped_file_size_commit_log to the master's mappedFileSizeCommitLog, and begin the mirror again in a new "
        "directory."
    )
