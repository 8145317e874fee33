"""Target store of a salvage: a new store directory, written without the services of an open store.

Each file of the damaged log becomes a file of the same name. In a file without damage every record keeps its place, and
so its message id; after damage, records move up to the one before, and a blank filler ends the file. A missing file
becomes one blank filler. RocketMQ's rules hold for the result: records follow each other, and so do the offsets of each
queue. PHYSICALOFFSET, QUEUEOFFSET and PREPAREDTRANSACTIONOFFSET of records that move are written again in bulk; all
other bytes, store times and hosts among them, stay.
"""

from __future__ import annotations

from bisect import bisect_right
from types import TracebackType
from typing import NamedTuple

import numpy as np

from commitlog_store.batch.frames import FoundFrame
from commitlog_store.columnar.batch_frame import BatchFrame, encode_frame, staged_checksum
from commitlog_store.columnar.dispatch import dispatch_requests, index_entries, units_by_queue
from commitlog_store.columnar.moved_records import moved_records
from commitlog_store.columnar.scan import RecordScan, scan_records
from commitlog_store.config import MessageStoreConfig
from commitlog_store.files import disk
from commitlog_store.files.mapped_file_writer import MappedFileWriter, make_file
from commitlog_store.format.arrays import Int64Array
from commitlog_store.format.checkpoint import CheckpointMark
from commitlog_store.format.record import FILLER_SIZE, HOST_FLAGS, body_crc, encode_filler, field_offset, header_size
from commitlog_store.log.owner_directory import OwnerDirectory
from commitlog_store.log.scan import LogWalk
from commitlog_store.recovery.parts import StoreParts
from commitlog_store.salvage.taken_records import TakenBlock


class SalvagedFrame(NamedTuple):
    """A whole frame, and the physical offset of its frame record in the salvaged store."""

    frame: FoundFrame
    physical_offset: int
    end: int


class _SparseFiles:
    """Maker of the log's files: they take space as they are written, and one that stands for a missing file none.

    The whole of a full file is written at once, which space allocated before would only delay.
    """

    def make(self, path: str, size: int) -> None:
        make_file(path, size, sparse=True)

    def prepare(self, path: str, size: int) -> None:
        """Nothing is made ahead."""

    def is_made(self, path: str) -> bool:
        return disk.exists(path)

    def allocate_ahead(self, file: MappedFileWriter, position: int) -> None:
        """Nor allocated."""


class _Places:
    """Places of moved records: for each stretch of the damaged log, how far it moved."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._shifts: list[int] = []

    def add(self, old: Int64Array, sizes: Int64Array, new: Int64Array) -> None:
        """Records with ascending places."""
        shifts = new - old
        cuts = np.flatnonzero((np.diff(shifts) != 0) | (np.diff(old) != sizes[:-1])) + 1
        for first, last in zip([0, *cuts.tolist()], [*cuts.tolist(), len(old)], strict=True):
            start, stop, shift = int(old[first]), int(old[last - 1] + sizes[last - 1]), int(shifts[first])
            if self._stops and self._stops[-1] == start and self._shifts[-1] == shift:
                self._stops[-1] = stop
            else:
                self._starts.append(start)
                self._stops.append(stop)
                self._shifts.append(shift)

    def of(self, place: int) -> int | None:
        """The new place of a record; None when it was not taken."""
        at = bisect_right(self._starts, place) - 1
        return place + self._shifts[at] if at >= 0 and place < self._stops[at] else None


class StoreTarget:
    """A new store at ``path``, which is empty or missing. A context manager; ``finish`` makes it a closed store.

    ``log_start`` is the physical offset of its first file. ``StoreIOError``, ``DiskFull``.
    """

    def __init__(self, path: str, config: MessageStoreConfig, log_start: int) -> None:
        self._directory = OwnerDirectory.open(path)
        try:
            self._directory.prepare()
            self._directory.mark_in_use()
            self._config = config
            self._parts = StoreParts.of(self._directory, config, _SparseFiles())
        except BaseException:
            self._directory.close(clean=False)
            raise
        self._files = self._parts.files
        self._files.set_end(log_start)
        self._log_start = log_start
        if self._parts.index is not None:
            self._parts.index.open()
        self._places = _Places()
        self._waiting: list[FoundFrame] = []
        # The place of the last record whose PREPAREDTRANSACTIONOFFSET was written again.
        self._last_rewritten = -1
        self._last_record = -1
        self._last_store_timestamp = 0
        self.frames: list[SalvagedFrame] = []
        self.records = 0
        # Records whose PREPAREDTRANSACTIONOFFSET names a message that was not found.
        self.lost_references = 0

    def __enter__(self) -> StoreTarget:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._parts.close()
        self._directory.close(clean=error is None)

    @property
    def path(self) -> str:
        return self._directory.path

    def expect(self, frames: list[FoundFrame]) -> None:
        """The whole frames among the records to come, in the order of the log."""
        self._waiting = list(frames)

    def add(self, block: TakenBlock) -> None:
        """Append records, with their queue units and index entries."""
        self._go_on_to(block.file_base)
        scan, rows = block.scan, block.rows
        old = scan.positions + scan.physical_offset
        sizes, queue_offsets = scan.sizes, block.queue_offsets
        if rows is not None:
            old, sizes = old[rows], sizes[rows]
            queue_offsets = None if queue_offsets is None else queue_offsets[rows]
        ends = np.cumsum(sizes)
        row = 0
        while row < len(old):
            file = self._file_with_room(int(sizes[row]))
            begun = int(ends[row - 1]) if row else 0
            room = file.capacity - file.wrote_position - FILLER_SIZE
            stop = int(np.searchsorted(ends, begun + room, side="right"))
            new = file.base + file.wrote_position + ends[row:stop] - sizes[row:stop] - begun
            self._places.add(old[row:stop], sizes[row:stop], new)
            is_same = stop == len(scan) and row == 0 and queue_offsets is None and int(new[0]) == int(old[0])
            if is_same and not scan.headers["prepared_transaction_offset"].any():
                self._append(file, scan)
            else:
                taken = np.arange(row, stop) if rows is None else rows[row:stop]
                offsets = scan.field("queue_offset")[taken] if queue_offsets is None else queue_offsets[row:stop]
                self._append(file, self._moved(scan, taken, offsets.astype(np.int64), new))
            row = stop
        self._settle_frames(int(scan.physical_offset + scan.end))

    def _moved(self, scan: RecordScan, rows: Int64Array, queue_offsets: Int64Array, places: Int64Array) -> RecordScan:
        """Some rows of a scan, back to back, with their new places."""
        data = moved_records(scan, rows, queue_offsets, places, self._new_reference)
        referring = np.flatnonzero(scan.field("prepared_transaction_offset")[rows])
        if len(referring):
            self._last_rewritten = int(places[referring[-1]])
        moved = scan_records(data, int(places[0]), check_crc=False)
        assert len(moved) == len(rows), f"{len(moved)} of {len(rows)} records from {places[0]} on are whole"
        return moved

    def _new_reference(self, old: int) -> int:
        """Where the record is to which a PREPAREDTRANSACTIONOFFSET leads; 0 without it."""
        place = self._places.of(old)
        self.lost_references += place is None
        return place or 0

    def _go_on_to(self, base: int) -> None:
        """End files until the one that starts at ``base``, if the target has such a place before it."""
        size = self._files.file_size
        while self._files.max_wrote < base and not (base - self._log_start) % size:
            last = self._files.files[-1] if self._files.files else None
            if last is not None and not last.is_full:
                self._fill(last)
            else:
                self._fill(self._files.writable())

    def _file_with_room(self, size: int) -> MappedFileWriter:
        file = self._files.writable()
        if size + FILLER_SIZE <= file.capacity - file.wrote_position:
            return file
        self._fill(file)
        return self._files.writable()

    def _fill(self, file: MappedFileWriter) -> None:
        # Without ``reserve``: a file that stands for a missing one takes no space.
        filler = encode_filler(file.capacity - file.wrote_position)
        file.write_ahead(filler, file.wrote_position)
        file.leave_rest(file.wrote_position + len(filler))
        file.skip_to_end()
        self._files.appended()

    def _append(self, file: MappedFileWriter, scan: RecordScan) -> None:
        file.append(scan.data[: scan.end])
        self._files.appended()
        requests = dispatch_requests(scan, self._config.delay_levels_ms)
        self._parts.queues.append(units_by_queue(requests))
        if self._parts.index is not None:
            hashes, rows = index_entries(scan)
            self._parts.index.put(hashes, requests.physical_offsets[rows], requests.store_timestamps[rows])
        self.records += len(scan)
        self._last_record = int(requests.physical_offsets[-1])
        self._last_store_timestamp = max(self._last_store_timestamp, int(requests.store_timestamps.max()))

    def _settle_frames(self, done: int) -> None:
        """Bring frame records up to date whose batches have all been written: up to ``done`` of the damaged log."""
        while self._waiting and self._waiting[0].end <= done:
            self._settle_frame(self._waiting.pop(0))

    def _settle_frame(self, found: FoundFrame) -> None:
        frame, place = found.frame, self._places.of(found.physical_offset)
        last = self._places.of(found.end - 1)
        assert place is not None, f"the frame record at {found.physical_offset} was taken"
        assert last is not None, f"the last record of the frame at {found.physical_offset} was taken"
        # From the frame record's end to the end of the last record.
        head = found.end - found.physical_offset - frame.length
        checksum = self._checksum(place, last + 1) if self._last_rewritten > place else frame.checksum
        previous = self._previous(found)
        now = BatchFrame(frame.batch, last + 1 - place - head, frame.rows, checksum, previous)
        if now != frame:
            self._rewrite(place, encode_frame(now))
        self.frames.append(SalvagedFrame(found, place, last + 1))

    def _checksum(self, place: int, end: int) -> int:
        """The checksum of the frame at ``place`` over its records as they are now: it covers their references."""
        checksum, first = 0, 1  # after the frame record
        for scan in LogWalk(self._files, place, end, check_crc=False):
            checksum = staged_checksum(scan, checksum, first)
            first = 0
        return checksum

    def _previous(self, found: FoundFrame) -> int:
        """The place of the application's frame before this one; as it was where that has expired."""
        before = found.frame.previous
        mine = [one for one in self.frames if one.frame.frame.batch.app_id == found.frame.batch.app_id]
        if before < 0 or before < self._log_start:
            return before
        return mine[-1].physical_offset if mine else -1

    def _rewrite(self, place: int, body: bytes) -> None:
        """Replace the body of a record by one of the same size."""
        file = self._files.find(place)
        assert file is not None
        at = place - file.base
        flags = int.from_bytes(file.read(at + field_offset("sys_flag"), 4), "big")
        file.write_ahead(body_crc(body).to_bytes(4, "big"), at + field_offset("body_crc"))
        file.write_ahead(body, at + header_size(flags & HOST_FLAGS))

    def finish(self) -> None:
        """Bring everything to the device, and close the store."""
        parts = self._parts
        parts.queues.flush_all()
        parts.queues.sync_directories()
        if parts.index is not None:
            parts.index.flush()
        for file in self._files.files:
            file.sync_all()
        # Without a record no file has the place at which the log would begin: it begins at 0, as that of a new store.
        last, end = self._last_store_timestamp, self._files.max_wrote if self._files.files else 0
        parts.checkpoint.restart(physic=last, logics=last, index=last if parts.index is not None else 0)
        parts.checkpoint.flush(
            CheckpointMark(
                closed=True,
                log_start=self._files.min_offset,
                queue_ends=parts.queues.ends,
                flushed_offset=end,
                end_offset=end,
                last_record=self._last_record,
                queue_file_count=parts.queues.file_count,
                index_file_count=parts.index.file_count if parts.index is not None else 0,
            )
        )
