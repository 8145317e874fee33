"""Scan of the log's files, block by block, for reput and recovery."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from commitlog_store.columnar.scan import RecordScan, Stop, scan_records
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.format.record import (
    HEADER_SIZE,
    PROPERTIES_LENGTH_SIZE,
    Corrupt,
    Filler,
    Record,
    Torn,
    Unwritten,
    own_position,
)
from commitlog_store.log.record_search import first_good_record, record_without_body

BLOCK_SIZE = 4 << 20
# Bytes that a device writes wholly or not at all.
SECTOR_SIZE = 512


class LogFiles(Protocol):
    """The files of a log, its owner's or a reader's, and where each starts."""

    @property
    def bases(self) -> Sequence[int]:
        """The first byte of each file, in order."""
        ...

    def find(self, offset: int, /) -> MappedFile | None:
        """The file that holds the byte at ``offset``; None outside the log."""
        ...


class LogFileList(LogFiles, Protocol):
    """The files of a log in order, without a gap between them."""

    @property
    def path(self) -> str: ...

    @property
    def files(self) -> Sequence[MappedFile]: ...

    @property
    def min_offset(self) -> int: ...


class FileWalk:
    """The records of one file from ``start`` on, in blocks, up to the first that is not good, or to ``limit``.

    To be iterated once. ``offset`` is how far the walk has come after each block, and ``stop`` what is there: None at
    ``limit`` and at the file's end. A blank filler that reaches exactly to ``file_end`` is skipped.

    ``good_part`` says of a block's scan which part of it is good, and what follows. Without ``trusts_sizes``, a record
    that is longer than a block is read only if its header names its own place. The first block has ``first_size``
    bytes; the next ones double up to ``block_size``.
    """

    def __init__(
        self,
        file: MappedFile,
        start: int,
        limit: int,
        *,
        check_crc: bool,
        file_end: int | None = None,
        block_size: int = BLOCK_SIZE,
        first_size: int | None = None,
        good_part: Callable[[RecordScan], tuple[RecordScan, Stop]] | None = None,
        trusts_sizes: bool = True,
    ) -> None:
        self.offset = start
        self.stop: Stop = None
        self._file = file
        self._limit = limit
        self._check_crc = check_crc
        self._file_end = file.base + file.capacity if file_end is None else file_end
        self._block_size = block_size
        self._first_size = block_size if first_size is None else min(first_size, block_size)
        self._good_part = good_part
        self._trusts_sizes = trusts_sizes

    def __iter__(self) -> Iterator[RecordScan]:
        file = self._file
        size = usual = self._first_size
        while self.offset < self._limit:
            at = self.offset
            stop = min(at + size, self._limit)
            scan = scan_records(file.scanned(at - file.base, stop - file.base), at, check_crc=self._check_crc)
            scan, self.stop = (scan, scan.stop) if self._good_part is None else self._good_part(scan)
            self.offset = at + scan.end
            if len(scan):
                yield scan
            size = usual = min(2 * usual, self._block_size)
            match self.stop:
                case None:
                    continue
                case Filler(length) if self.offset + length == self._file_end:
                    self.offset, self.stop = self._file_end, None
                    return
                case Torn(needed, available) if available < needed <= self._limit - self.offset and self._may_be_long():
                    size, self.stop = max(needed, usual), None
                case _:
                    return

    def _may_be_long(self) -> bool:
        """Whether the size that the next record names is to be trusted."""
        head = b"" if self._trusts_sizes else self._file.read(self.offset - self._file.base, HEADER_SIZE)
        return self._trusts_sizes or own_position(head) == self.offset


class LogWalk:
    """The records of ``[start, limit)``, in blocks that lie in one file each, up to the first that is not good.

    To be iterated once. ``offset`` and ``stop`` are those of ``FileWalk``; ``stop`` is None also at the end of the last
    file. A machine may have stopped before records at ``unsynced_from`` and after were on the device: one that lacks a
    sector is not good. Those before ``whole_to`` are known to be complete.
    """

    def __init__(
        self,
        files: LogFiles,
        start: int,
        limit: int,
        *,
        check_crc: bool,
        unsynced_from: int | None = None,
        whole_to: int = 0,
        block_size: int = BLOCK_SIZE,
    ) -> None:
        self.offset = start
        self.stop: Stop = None
        self._files = files
        self._limit = limit
        self._check_crc = check_crc
        self._unsynced_from = unsynced_from
        self._whole_to = whole_to
        self._block_size = block_size

    def __iter__(self) -> Iterator[RecordScan]:
        while self.offset < self._limit and (file := self._files.find(self.offset)) is not None:
            walk = FileWalk(
                file,
                self.offset,
                min(file.base + file.capacity, self._limit),
                check_crc=self._check_crc,
                block_size=self._block_size,
                good_part=None if self._unsynced_from is None else partial(self._complete, file.base),
            )
            for scan in walk:
                self.offset = walk.offset
                yield scan
            self.offset, self.stop = walk.offset, walk.stop
            if self.stop is not None:
                return

    def _complete(self, file_base: int, scan: RecordScan) -> tuple[RecordScan, Stop]:
        """The scan without records that lack a sector, and what follows."""
        assert self._unsynced_from is not None
        lacking = _first_lacking(scan, scan.physical_offset - file_base, self._unsynced_from, self._whole_to)
        if lacking is None:
            return scan, scan.stop
        cut, stop = lacking
        return scan_records(scan.data[:cut], scan.physical_offset, check_crc=False), stop


def _first_lacking(scan: RecordScan, position: int, unsynced_from: int, whole_to: int) -> tuple[int, Corrupt] | None:
    """Where in the scan's data the first record starts that lacks a sector, and what is wrong with it.

    ``position`` is where in its file the data starts.
    """
    places = scan.positions + scan.physical_offset
    # A property ends with a separator, or with its value's last character. Of the synced records, only the log's last
    # one is doubted.
    doubted = places >= unsynced_from
    if len(scan) and isinstance(scan.stop, Unwritten):
        doubted[-1] = True
    doubted &= places >= whole_to
    unended = doubted & (scan.parts.properties_lengths > 0) & (scan.data[scan.positions + scan.sizes - 1] == 0)
    rows = np.flatnonzero(unended).tolist()[:1]
    lacking = first_without_sector(scan, position, max(unsynced_from, whole_to))
    if lacking is not None:
        rows.append(lacking)
    if not rows:
        return None
    row = min(rows)
    expected, found = "their bytes to the end", "zeros where a sector is missing"
    return int(scan.positions[row]), Corrupt(
        "Topic or properties", int(scan.parts.topic_starts[row] - scan.positions[row]), expected, found
    )


def first_without_sector(scan: RecordScan, position: int, doubted_from: int) -> int | None:
    """The first row at ``doubted_from`` or after whose topic or properties lack a sector; None without one.

    BODYCRC covers the body alone. A sector of topic or properties that never reached the device is zero, and all
    lengths still agree. ``position`` is where in its file the scan's data starts.
    """
    # The length of empty properties is zero itself: whether it reached the device is unknown and does not matter.
    unmarked = np.where(scan.parts.properties_lengths > 0, 0, PROPERTIES_LENGTH_SIZE)
    starts, ends = scan.positions + position, scan.positions + scan.sizes + position - unmarked
    # Not the sector in which a record starts: it holds TOTALSIZE. Nor those with only body.
    first = np.maximum(
        starts // SECTOR_SIZE + 1, (scan.parts.body_starts + scan.parts.body_lengths + position) // SECTOR_SIZE
    )
    counts = np.maximum((ends - 1) // SECTOR_SIZE - first + 1, 0)
    counts[scan.positions + scan.physical_offset < doubted_from] = 0
    owners = np.repeat(np.arange(len(scan)), counts)
    ranks = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    lows = (first[owners] + ranks) * SECTOR_SIZE - position
    highs = np.minimum(lows + SECTOR_SIZE, ends[owners] - position)
    suspects = np.flatnonzero((scan.data[lows] == 0) & (scan.data[highs - 1] == 0))
    lacking = (i for i in suspects.tolist() if not scan.data[int(lows[i]) : int(highs[i])].any())
    return next((int(owners[i]) for i in lacking), None)


def find_by_time(files: LogFileList, timestamp: int) -> MappedFile | None:
    """The newest file that begins with a message stored at or before a time (ms); None without such a file."""
    for file in reversed(files.files):
        stored = first_store_timestamp(file)
        if stored is not None and 0 < stored <= timestamp:
            return file
    return None


def first_store_timestamp(file: MappedFile) -> int | None:
    """The store time (ms) of a file's first record; None when the file does not start with a record."""
    match record_without_body(file, file.base):
        case Record(store_timestamp=timestamp):
            return timestamp
        case _:
            return None


def find_record(files: LogFileList, start: int, stop: int) -> Record | None:
    """The first whole, good record that begins at any byte of ``[start, stop)``."""
    for file in files.files:
        file_end = file.base + file.capacity
        found = first_good_record(file, max(start, file.base), min(stop, file_end), file_end)
        if found is not None:
            return found
    return None
