"""Whole records at the head of received bytes: what a mirror appends. Pure.

A mirror's log ends where a record does, so the beginning of a record waits until the rest has come. A blank filler
counts as whole when the file's unused rest after it has come, too: a mirror has the same bytes there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from commitlog.columnar.scan import scan_records
from commitlog.errors import PeerRefused
from commitlog.format.record import FILLER_SIZE, Corrupt, Filler, Torn, Unwritten

__all__ = ["WholeRecords", "whole_records"]


class WholeRecords(NamedTuple):
    """The first ``size`` bytes are whole records, or a file's end.

    ``last_record`` is the physical offset of the last one (-1: none of them is a record) and ``last_store_timestamp``
    its store time in ms.
    """

    size: int
    last_record: int
    last_store_timestamp: int


_NONE = WholeRecords(0, -1, 0)


def whole_records(data: bytearray, physical_offset: int, file_size: int, largest_record: int) -> WholeRecords:
    """The whole records of one file at the head of ``data``, which lies at ``physical_offset`` of the master's log.

    ``PeerRefused`` for bytes that are no record, for one of more than ``largest_record`` bytes, and for records that
    lie in files of another size.
    """
    room = file_size - physical_offset % file_size
    stretch = np.frombuffer(data, np.uint8)[:room]
    scan = scan_records(stretch, physical_offset, check_crc=True)
    end = physical_offset + scan.end
    if isinstance(scan.stop, Torn):
        _check_torn(scan.stop, end, room - scan.end, largest_record, file_size)
    elif isinstance(scan.stop, Corrupt | Unwritten):
        found = f"{scan.stop.field} {scan.stop.found}" if isinstance(scan.stop, Corrupt) else "zeros"
        raise PeerRefused(
            f"What the master sent at physical offset {end} is not a record: {found}. Is the master's log damaged there?"
        )
    elif isinstance(scan.stop, Filler):
        if scan.stop.size != room - scan.end:
            raise _other_file_size(end + scan.stop.size, "ends", file_size)
        if len(stretch) == room:
            return _found(scan.positions, scan.field("store_timestamp"), physical_offset, room)
    return _found(scan.positions, scan.field("store_timestamp"), physical_offset, scan.end)


def _found(positions: np.ndarray, timestamps: np.ndarray, physical_offset: int, size: int) -> WholeRecords:
    if not len(positions):
        return _NONE._replace(size=size)
    return WholeRecords(size, physical_offset + int(positions[-1]), int(timestamps[-1]))


def _check_torn(torn: Torn, start: int, room: int, largest_record: int, file_size: int) -> None:
    if torn.needed == FILLER_SIZE:
        return
    if torn.needed > largest_record:
        raise PeerRefused(
            f"The record at physical offset {start} has {torn.needed} bytes; at most {largest_record} are taken. Set "
            "max_message_size to the master's maxMessageSize."
        )
    if torn.needed > room:
        raise _other_file_size(start + torn.needed, "goes on", file_size)


def _other_file_size(offset: int, what: str, file_size: int) -> PeerRefused:
    return PeerRefused(
        f"The master's log file {what} at physical offset {offset}, where no file of {file_size} bytes does. Set "
        "mapped_file_size_commit_log to the master's mappedFileSizeCommitLog, and begin the mirror again in a new "
        "directory."
    )
