"""Frames of batches in the log: decoding a frame record, and checking that all records of its batch are there.

A frame that is not whole is left by a crash of the machine before the sync of its batch returned. It is not a batch,
and recovery ends the log at its start. docs/decisions/0007-batches-as-frames.md has the argument.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from commitlog_store.batch_id import CommittedBatch
from commitlog_store.columnar.batch_frame import BatchFrame, decode_frame, staged_checksum
from commitlog_store.columnar.scan import RecordScan
from commitlog_store.errors import CorruptRecord, InvalidValue, MessageNotFound, QueueNotFound, TopicNotFound
from commitlog_store.format.record import Record
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.scan import LogFiles, LogWalk
from commitlog_store.paths import BATCH_TOPIC
from commitlog_store.queue.views import CatalogView


class FoundFrame(NamedTuple):
    """A frame record of the log: its place, the end of its batch, and its body."""

    physical_offset: int
    end: int
    store_timestamp: int
    frame: BatchFrame

    def committed(self) -> CommittedBatch:
        """The batch as a commit returns it."""
        frame = self.frame
        return CommittedBatch(frame.batch, self.physical_offset, self.end, frame.rows, self.store_timestamp)


def frame_of(record: Record) -> FoundFrame | None:
    """The frame that a record of the log begins; None for any other record."""
    if record.topic != BATCH_TOPIC.encode() or record.queue_id != 0:
        return None
    return _found(bytes(record.body), record.physical_offset, record.total_size, record.store_timestamp)


def frames_in(scan: RecordScan) -> list[FoundFrame]:
    """The frames that begin among the records of a scan, in log order."""
    codes, topics = scan.topics
    if BATCH_TOPIC not in topics:
        return []
    rows = np.flatnonzero((codes == topics.index(BATCH_TOPIC)) & (scan.field("queue_id") == 0))
    stored = scan.field("store_timestamp")
    found = []
    for row in rows.tolist():
        start, length = int(scan.parts.body_starts[row]), int(scan.parts.body_lengths[row])
        body = scan.data[start : start + length].tobytes()
        place = scan.physical_offset + int(scan.positions[row])
        found.append(_found(body, place, int(scan.sizes[row]), int(stored[row])))
    return [frame for frame in found if frame is not None]


def _found(body: bytes, physical_offset: int, size: int, store_timestamp: int) -> FoundFrame | None:
    try:
        frame = decode_frame(body)
    except InvalidValue:
        return None  # a message of that topic that is not a frame record
    return FoundFrame(physical_offset, physical_offset + size + frame.length, store_timestamp, frame)


class FrameCheck:
    """Compares the records after a frame record, taken scan by scan, with its row count, checksum and store time."""

    def __init__(self, found: FoundFrame) -> None:
        self.found = found
        self._rows = self._checksum = 0
        self._of_one_time = True

    def take(self, scan: RecordScan, first: int) -> int:
        """Take the frame's records of a scan, from row ``first`` on. Returns the first row after them."""
        stop = int(np.searchsorted(scan.positions + scan.physical_offset, self.found.end))
        self._checksum = staged_checksum(scan, self._checksum, first, stop)
        self._rows += max(stop - first, 0)
        times = scan.field("store_timestamp")[first:stop]
        self._of_one_time &= bool((times == self.found.store_timestamp).all())
        return max(stop, first)

    @property
    def whole(self) -> bool:
        """Whether the records that were taken are all records of the frame, as they were staged."""
        frame = self.found.frame
        return self._of_one_time and (self._rows, self._checksum) == (frame.rows, frame.checksum)


def is_whole(files: LogFiles, found: FoundFrame) -> bool:
    """Whether all records of a frame are there, as they were staged and with one store time."""
    walk = LogWalk(files, found.physical_offset, found.end, check_crc=True)
    check = FrameCheck(found)
    first = 1  # the frame record itself
    for scan in walk:
        check.take(scan, first)
        first = 0
    return walk.offset >= found.end and check.whole


class StoredFrames:
    """The frames in the files of a store, as a ``LedgerSource``."""

    def __init__(self, commit_log: CommitLog, catalog: CatalogView) -> None:
        self._commit_log = commit_log
        self._catalog = catalog

    def log_bounds(self) -> tuple[int, int]:
        return self._commit_log.bounds()

    def queue_end(self) -> int:
        try:
            return self._catalog.bounds(BATCH_TOPIC, 0)[1]
        except (TopicNotFound, QueueNotFound):
            return 0

    def place(self, queue_offset: int) -> int | None:
        try:
            unit = self._catalog.queue(BATCH_TOPIC, 0).unit(queue_offset)
        except (TopicNotFound, QueueNotFound):
            return None
        return None if unit is None else unit[0]

    def frame_at(self, physical_offset: int) -> FoundFrame | None:
        try:
            return frame_of(self._commit_log.read_record(physical_offset))
        except (CorruptRecord, MessageNotFound):
            return None
