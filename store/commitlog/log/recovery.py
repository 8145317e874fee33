"""Recovery: one scan decides where the log ends, and brings queues and index to agree with it.

Whether the store was closed cleanly is not another recovery but a ``RecoveryPolicy``: where to start, and what is known
to have been flushed. docs/durability.md has the states a crash can leave and why this is right for each of them.

Source of the starting point: RocketMQ ``store/CommitLog.java`` (``recoverAbnormally``, ``isMappedFileMatchedRecover``,
``recoverNormally``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from commitlog.errors import CorruptRecord
from commitlog.files.writable_mapped_file_queue import WritableMappedFileQueue
from commitlog.format.checkpoint import Checkpoint
from commitlog.format.dispatch_request import dispatch_requests, index_entries, units_by_queue
from commitlog.format.record import Corrupt, Filler, Torn
from commitlog.format.record_scan import RecordScan, Stop
from commitlog.log.index_writer import IndexWriter
from commitlog.log.log_walk import LogEnd, find_record, first_store_timestamp, walk
from commitlog.log.queue_writers import QueueWriters

__all__ = ["Progress", "Recovered", "Recovery", "RecoveryPolicy"]

# Called with the bytes of the log that were scanned, and how many there are at most.
Progress = Callable[[int, int], None]

# RocketMQ's own margin between the checkpoint's times and what is trusted.
_MARGIN_MS = 3_000
# A store that was closed cleanly, by whomever, is scanned from its third file from the end, as RocketMQ does.
_CLEAN_FILES = 3
_UNKNOWN = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class RecoveryPolicy:
    """What is known before the scan.

    ``aborted``: the last owner did not close the store. ``from_start``: queues or index are to be built anew.
    ``flushed_offset``: up to there the log is known to have been flushed; None when only the checkpoint's times tell.
    """

    aborted: bool
    from_start: bool
    flushed_offset: int | None


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """What recovery found: the log's end, its last record (-1 for none) and that one's store time, and what it did."""

    end: int
    last_record: int
    last_store_timestamp: int
    started_at: int
    scanned_records: int
    cut_at: Stop


class Recovery:
    """One recovery of one store, which nobody writes to meanwhile."""

    def __init__(
        self,
        files: WritableMappedFileQueue,
        queues: QueueWriters,
        index: IndexWriter | None,
        checkpoint: Checkpoint,
        policy: RecoveryPolicy,
        delay_levels_ms: Sequence[int],
        progress: Progress | None = None,
    ) -> None:
        self._files = files
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._policy = policy
        self._delay_levels_ms = delay_levels_ms
        self._progress = progress
        self._last_record = -1
        self._last_store_timestamp = 0
        self._records = 0

    def run(self) -> Recovered:
        """Scan, cut, rebuild. ``CorruptRecord`` for damage that no crash explains (invariant 5), ``StoreIOError``."""
        start = self._files.min_offset if self._policy.from_start else self._start()
        from_start = start == self._files.min_offset
        end = self._scan(start, from_start=from_start)
        if end is None:
            # Units that should be there are missing: what was thought to be safe is not.
            self._queues.forget()
            start, from_start = self._files.min_offset, True
            end = self._scan(start, from_start=True)
            assert end is not None
        self._refuse_damage(end)
        self._files.cut(end.offset)
        self._files.set_end(end.offset)
        self._cut_queues(start)
        return Recovered(
            end=end.offset,
            last_record=self._last_record,
            last_store_timestamp=self._last_store_timestamp,
            started_at=start,
            scanned_records=self._records,
            cut_at=end.stop,
        )

    def _start(self) -> int:
        """The first byte of the newest file before which everything is known to be right."""
        files = self._files.files
        if not self._policy.aborted:
            return files[max(len(files) - _CLEAN_FILES, 0)].base if files else 0
        point = self._checkpoint
        safe = min(point.physic_msg_timestamp, point.logics_msg_timestamp)
        if self._index is not None:
            safe = min(safe, point.index_msg_timestamp)
        for file in reversed(files):
            stored = first_store_timestamp(file)
            if stored is not None and 0 < stored <= safe - _MARGIN_MS:
                return file.base
        return self._files.min_offset

    def _scan(self, start: int, *, from_start: bool) -> LogEnd | None:
        """Walk the log and dispatch what stands in it; None when queues or index lack what lies before ``start``."""
        if self._index is not None and self._policy.aborted:
            self._index.truncate(start)
            if self._index.damaged and not from_start:
                return None
        total = self._files.files[-1].base + self._files.file_size - start if self._files.files else 0
        end = LogEnd()
        self._last_record, self._last_store_timestamp, self._records = -1, 0, 0
        for scan in walk(self._files, start, _UNKNOWN, end, check_crc=True):
            if not self._dispatch(scan, from_start=from_start):
                return None
            if self._progress is not None:
                self._progress(end.offset - start, total)
        return end

    def _dispatch(self, scan: RecordScan, *, from_start: bool) -> bool:
        requests = dispatch_requests(scan, self._delay_levels_ms)
        self._records += len(scan)
        self._last_record = int(requests.physical_offsets[-1])
        self._last_store_timestamp = max(self._last_store_timestamp, int(requests.store_timestamps.max()))
        for group in units_by_queue(requests):
            if not self._queues.rewrite(group, from_start=from_start):
                return False
        if self._index is not None:
            entries = index_entries(scan, requests)
            if len(entries.rows):
                rows = entries.rows
                self._index.put(entries.key_hashes, requests.physical_offsets[rows], requests.store_timestamps[rows])
        return True

    def _refuse_damage(self, end: LogEnd) -> None:
        """A bad record, with a good one behind it that was flushed too, is damage: nobody is to lose it silently."""
        flushed = self._policy.flushed_offset
        if not self._policy.aborted:
            flushed = _UNKNOWN
        if flushed is not None:
            behind = find_record(self._files, end.offset + 1, flushed) if flushed > end.offset else None
            if behind is not None:
                self._refuse(end, behind.physical_offset)
            return
        behind = find_record(self._files, end.offset + 1, _UNKNOWN)
        if behind is not None and 0 < behind.store_timestamp <= self._checkpoint.physic_msg_timestamp:
            self._refuse(end, behind.physical_offset)

    def _refuse(self, end: LogEnd, behind: int) -> NoReturn:
        file = self._files.find(end.offset)
        match end.stop:
            case Corrupt(field, offset, expected, found):
                what, at, wanted, value = field, offset, expected, found
            case Torn(needed, available):
                what, at, wanted, value = "TOTALSIZE", 0, f"at most {available} bytes", str(needed)
            case Filler(size):
                what, at, wanted, value = "TOTALSIZE of the blank filler", 0, "all that is left of the file", str(size)
            case _:
                what, at, wanted, value = "Record", 0, "a record", "nothing written"
        raise CorruptRecord(
            f"{what} of the record at physical offset {end.offset}",
            path=file.path if file is not None else self._files.path,
            offset=end.offset - (file.base if file is not None else 0) + at,
            expected=wanted,
            found=value,
            advice=f"A good record that was flushed stands behind it, at physical offset {behind}: this is damage, and "
            "opening would lose what lies behind. Restore the file from a copy; StoreReader reads the rest as it is.",
        )

    def _cut_queues(self, start: int) -> None:
        """End every queue where its last message in the log ends."""
        for topic, queue_id in list(self._queues.known_queues()):
            writer = self._queues.writer(topic, queue_id)
            writer.cut(writer.end_before(start) if writer.next_offset is None else writer.next_offset)
