"""Results of appends to the log: the places of records, and the error that stopped a bulk append."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from commitlog_store.format.arrays import Int64Array

__all__ = [
    "Appended",
    "AppendedFrame",
    "AppendedRows",
    "FrameHead",
]


class Appended(NamedTuple):
    """The place of one appended message. Times are milliseconds."""

    physical_offset: int
    queue_offset: int
    store_timestamp: int
    end: int


class AppendedFrame(NamedTuple):
    """The place of a frame: its first record, the log's end after it, the number of further records, and the time."""

    physical_offset: int
    end: int
    rows: int
    store_timestamp: int


class AppendedRows(NamedTuple):
    """The places of many messages, one value a row; ``end`` is the log's end after the last.

    Rows from ``written`` on are not in the log, because of ``error``: no room for a new file, a failure of the disk,
    or an unexpected exception.
    """

    physical_offsets: Int64Array
    queue_offsets: Int64Array
    store_timestamp: int
    end: int
    written: int
    error: Exception | None


class FrameHead(Protocol):
    """Maker of the frame record, which stands before a frame's messages and depends on them."""

    size: int
    host_flags: int

    def record(self, length: int, rows: int, checksum: int, /) -> bytearray:
        """The record, its late fields zero, for a frame of ``length`` bytes and ``rows`` rows after it."""
        ...
