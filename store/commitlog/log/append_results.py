"""Where appended records went, and why none were appended."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from commitlog.format.arrays import Int64Array

__all__ = [
    "Appended",
    "AppendedFrame",
    "AppendedRows",
    "FrameHead",
]


class Appended(NamedTuple):
    """Where one message went. Times are milliseconds."""

    physical_offset: int
    queue_offset: int
    store_timestamp: int
    end: int


class AppendedFrame(NamedTuple):
    """Where a frame went: its first record, the log's end behind it, how many records follow the first, and when."""

    physical_offset: int
    end: int
    rows: int
    store_timestamp: int


class AppendedRows(NamedTuple):
    """Where many messages went, one value a row; ``end`` is the log's end behind the last.

    Rows from ``written`` on are not in the log, because of ``error``: there was no room for a new file, the disk
    failed, or something that nobody expects.
    """

    physical_offsets: Int64Array
    queue_offsets: Int64Array
    store_timestamp: int
    end: int
    written: int
    error: Exception | None


class FrameHead(Protocol):
    """What stands before the messages of a frame, and can be made only when they are written."""

    size: int
    host_flags: int

    def record(self, length: int, rows: int, checksum: int, /) -> bytearray:
        """The record, its late fields zero, for a frame of so many bytes and rows behind it."""
        ...
