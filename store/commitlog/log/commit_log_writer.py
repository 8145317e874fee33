"""The CommitLog in its owner's hands: records appended at its end, one put at a time.

The put lock orders everything: a record's queue offset, its place, its store time, and the bytes themselves. It is a
plain ``threading.Lock``; see docs/decisions/0006-put-lock.md for what was measured against it.

Source: RocketMQ ``store/CommitLog.java`` (``asyncPutMessage``, ``DefaultAppendMessageCallback.doAppend``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from commitlog.errors import CommitLogError, InvalidValue
from commitlog.files.writable_mapped_file import WritableMappedFile
from commitlog.files.writable_mapped_file_queue import WritableMappedFileQueue
from commitlog.format.message_record import patch_late
from commitlog.format.record import FILLER_SIZE, encode_filler
from commitlog.format.record_encode import EncodedRecords, patch_late_fields

__all__ = ["Appended", "AppendedRows", "CommitLogWriter"]

Int64Array = npt.NDArray[np.int64]


class Appended(NamedTuple):
    """Where one message went. Times are milliseconds."""

    physical_offset: int
    queue_offset: int
    store_timestamp: int
    end: int


class AppendedRows(NamedTuple):
    """Where many messages went, one value a row; ``end`` is the log's end behind the last.

    Rows from ``written`` on are not in the log, because of ``error``: there was no room for a new file, or the
    disk failed.
    """

    physical_offsets: Int64Array
    queue_offsets: Int64Array
    store_timestamp: int
    end: int
    written: int
    error: CommitLogError | OSError | None


class CommitLogWriter:
    """Appends to the CommitLog. ``next_queue_offset`` answers for queues that no put has touched yet."""

    def __init__(
        self,
        files: WritableMappedFileQueue,
        next_queue_offset: Callable[[str, int], int],
        *,
        last_store_timestamp: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.files = files
        self.lock = threading.Lock()
        # When the put that holds the lock took it; 0 while nobody does.
        self.locked_at = 0.0
        self.last_store_timestamp = last_store_timestamp
        self.last_record = -1
        self._clock = clock
        self._next_queue_offset = next_queue_offset
        self._queue_offsets: dict[tuple[str, int], int] = {}

    @property
    def largest_record(self) -> int:
        """A record never spans two files, and each file keeps room for a blank filler."""
        return self.files.file_size - FILLER_SIZE

    def append(self, record: bytearray, sys_flags: int, topic: str, queue_id: int, *, has_unit: bool) -> Appended:
        """Append one encoded record. ``StoreIOError``, ``DiskFull``, ``TimeoutError``: no queue offset was taken."""
        return self.append_batch([record], sys_flags, topic, queue_id, has_unit=has_unit)

    def append_batch(
        self, records: list[bytearray], sys_flags: int, topic: str, queue_id: int, *, has_unit: bool
    ) -> Appended:
        """Append the records of one queue in one piece, in one file; where the first one went."""
        with self.lock:
            self.locked_at = time.monotonic()
            try:
                return self._append(records, sys_flags, topic, queue_id, has_unit)
            finally:
                self.locked_at = 0.0

    def _append(self, records: list[bytearray], sys_flags: int, topic: str, queue_id: int, has_unit: bool) -> Appended:
        length = len(records[0]) if len(records) == 1 else sum(map(len, records))
        file = self._file_with_room(length)
        start = at = file.base + file.wrote_position
        queue = (topic, queue_id)
        first = queue_offset = self._queue_offset(queue) if has_unit else 0
        now = self._now()
        for record in records:
            patch_late(record, sys_flags, queue_offset, at, now)
            at += len(record)
            queue_offset += has_unit
        file.append(records[0] if len(records) == 1 else b"".join(records))
        self.files.appended()
        # Nothing was taken before the bytes were written: a refused put eats no offset (invariant 6).
        if has_unit:
            self._queue_offsets[queue] = queue_offset
        self.last_store_timestamp = now
        self.last_record = at - len(records[-1])
        return Appended(start, first, now, at)

    def _queue_offset(self, queue: tuple[str, int]) -> int:
        found = self._queue_offsets.get(queue)
        if found is None:
            found = self._queue_offsets[queue] = self._next_queue_offset(*queue)
        return found

    def _now(self) -> int:
        """The store time: it never goes back, whatever the clock does."""
        return max(int(self._clock() * 1000), self.last_store_timestamp)

    def _file_with_room(self, length: int) -> WritableMappedFile:
        if length > self.largest_record:
            raise InvalidValue(
                f"The record takes {length} bytes; with files of {self.files.file_size} bytes at most "
                f"{self.largest_record} fit."
            )
        file = self.files.writable()
        left = file.capacity - file.wrote_position
        if length + FILLER_SIZE <= left:
            return file
        self._fill(file, left)
        return self.files.writable()

    def _fill(self, file: WritableMappedFile, left: int) -> None:
        """End a file with a blank filler. There is always room for it: every record left eight bytes."""
        file.append(encode_filler(left))
        file.skip_to_end()
        self.files.appended()

    def append_rows(
        self, records: EncodedRecords, host_flags: int, queues: npt.NDArray[np.int64], names: list[tuple[str, int]]
    ) -> AppendedRows:
        """Append many records under one lock hold. ``queues`` says to which of ``names`` each row belongs."""
        with self.lock:
            self.locked_at = time.monotonic()
            try:
                return self._append_rows(records, host_flags, queues, names)
            finally:
                self.locked_at = 0.0

    def _append_rows(
        self, records: EncodedRecords, host_flags: int, queues: npt.NDArray[np.int64], names: list[tuple[str, int]]
    ) -> AppendedRows:
        bases = np.array([self._queue_offset(name) for name in names], np.int64)
        queue_offsets = bases[queues] + _ranks(queues, len(names))
        now = self._now()
        places = np.full(len(queues), -1, np.int64)
        row = 0
        error: CommitLogError | OSError | None = None
        try:
            while row < len(queues):
                row = self._append_piece(records, row, host_flags, queue_offsets, places, now)
        except (CommitLogError, OSError) as failure:
            error = failure
        # What was written has its offsets, also when the rest found no room; the rest has taken none (invariant 6).
        for name, base, count in zip(
            names, bases.tolist(), np.bincount(queues[:row], minlength=len(names)).tolist(), strict=True
        ):
            self._queue_offsets[name] = base + count
        if row:
            self.last_store_timestamp = now
            self.last_record = int(places[row - 1])
        places[row:] = -1
        return AppendedRows(places, queue_offsets, now, self.files.max_wrote, row, error)

    def _append_piece(
        self,
        records: EncodedRecords,
        row: int,
        host_flags: int,
        queue_offsets: Int64Array,
        places: Int64Array,
        now: int,
    ) -> int:
        """Append the records from ``row`` on that fit into one file; the row behind them."""
        starts = records.starts
        begin = int(starts[row])
        file = self._file_with_room(int(starts[row + 1]) - begin)
        room = file.capacity - file.wrote_position - FILLER_SIZE
        stop = int(np.searchsorted(starts, begin + room, side="right")) - 1
        places[row:stop] = starts[row:stop] - begin + file.base + file.wrote_position
        patched = patch_late_fields(
            EncodedRecords(records.data, starts[row : stop + 1]),
            host_flags=host_flags,
            queue_offsets=queue_offsets[row:stop],
            physical_offsets=places[row:stop],
            store_timestamps=np.full(stop - row, now, np.int64),
        )
        file.append(patched.data[begin : int(starts[stop])])
        self.files.appended()
        return stop


def _ranks(queues: Int64Array, count: int) -> Int64Array:
    """How many rows of the same queue stand before each row."""
    if count == 1:
        return np.arange(len(queues))
    order = np.argsort(queues, kind="stable")
    counts = np.bincount(queues, minlength=count)
    ranks = np.empty(len(queues), np.int64)
    ranks[order] = np.arange(len(queues)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ranks
