"""Recovery: one scan finds the end of the log, and brings queues and index to agree with it.

A clean and an unclean close differ only in the ``RecoveryPolicy``: where to start, and how far the log is known to have
been flushed. docs/durability.md has the states that a crash can leave, and why this is right for each of them.

Source of the starting point: RocketMQ ``store/CommitLog.java`` (``recoverAbnormally``, ``isMappedFileMatchedRecover``,
``recoverNormally``).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from commitlog.batch.frames import FoundFrame, frames_in, is_whole
from commitlog.columnar.dispatch import (
    DispatchRequests,
    QueueUnits,
    dispatch_requests,
    index_entries,
    units_by_queue,
)
from commitlog.columnar.impossible_fields import IMPOSSIBLE_FIELDS, first_impossible
from commitlog.columnar.scan import RecordScan, Stop, scan_records
from commitlog.errors import DamagedLog
from commitlog.format.checkpoint import TRUST_MARGIN_MS, CheckpointMark
from commitlog.format.record import Corrupt, Filler, Torn
from commitlog.index.writer import IndexWriter
from commitlog.log.scan import LogEnd, find_by_time, find_record, walk
from commitlog.recovery.parts import StoreParts

__all__ = ["Progress", "Recovered", "RecoveryPolicy", "recover"]

# Called with the bytes of the log that were scanned, and the largest possible number of them.
Progress = Callable[[int, int], None]

# A cleanly closed store, also a broker's, is scanned from its third file from the end, as RocketMQ does.
_CLEAN_FILES = 3
_UNKNOWN = 2**63 - 1
# No other thread waits for the interpreter's lock during recovery, so blocks are large: each of a thousand queues has
# more than a few units in one.
_BLOCK_SIZE = 32 << 20


@dataclass(frozen=True, kw_only=True)
class RecoveryPolicy:
    """The facts known before the scan.

    ``aborted``: the last owner did not close the store. ``from_start``: queues and index are to be rebuilt.
    ``delete_queues``: the old queue files are deleted before that. ``flushed_offset``: up to it the log is known to be
    flushed; None when only the checkpoint's times say how far.
    """

    aborted: bool
    from_start: bool
    delete_queues: bool
    flushed_offset: int | None


class _Sound(NamedTuple):
    """Records that are consistent, also with their queues, and the fault of the record after them."""

    scan: RecordScan
    requests: DispatchRequests
    groups: list[QueueUnits]
    stop: Stop


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """Report of a recovery: the log's end, its last record (-1: none), that record's store time, and what was done."""

    end: int
    last_record: int
    last_store_timestamp: int
    started_at: int
    scanned_records: int
    cut_at: Stop


def recover(
    parts: StoreParts,
    policy: RecoveryPolicy,
    delay_levels_ms: Sequence[int],
    progress: Progress | None,
    mark_in_use: Callable[[], None],
) -> Recovered:
    """Find the log's end, and bring queues, index and checkpoint to agree with it, on the device too.

    The log's files are loaded; nothing else writes to the store. ``mark_in_use`` makes the store's ``abort`` file.
    ``DamagedLog`` for damage that no crash explains (invariant 5), ``StoreIOError``.
    """
    files, queues, index = parts.files, parts.queues, parts.index
    recovery = _Recovery(parts, policy, delay_levels_ms, progress, mark_in_use)
    if policy.from_start:
        recovery.distrust()
    if policy.from_start or not files.files:
        if policy.delete_queues or not files.files:
            queues.reset()
        if index is not None:
            index.reset()
    elif index is not None and not policy.aborted:
        index.open()
    recovered = recovery.run()
    queues.flush_all()
    queues.sync_directories()
    if index is not None:
        index.flush()
    for file in files.files:
        # A killed process leaves bytes in the kernel: to the device, before the checkpoint claims them (invariant 7).
        file.sync_all()
    last = recovered.last_store_timestamp
    parts.checkpoint.restart(physic=last, logics=last, index=last if index is not None else 0)
    return recovered


class _Recovery:
    """One recovery of one store."""

    def __init__(
        self,
        parts: StoreParts,
        policy: RecoveryPolicy,
        delay_levels_ms: Sequence[int],
        progress: Progress | None,
        mark_in_use: Callable[[], None],
    ) -> None:
        self._files = parts.files
        self._queues = parts.queues
        self._index = parts.index
        self._checkpoint = parts.checkpoint
        self._gate = parts.gate
        # As the last owner left it; until recovery is done, the file may claim less.
        self._claimed = parts.checkpoint.values
        self._policy = policy
        self._delay_levels_ms = delay_levels_ms
        self._progress = progress
        self._mark_in_use = mark_in_use
        # The last frame that was met, and the incomplete frame at whose start the log ends.
        self._frame: FoundFrame | None = None
        self._broken: FoundFrame | None = None
        self._last_record = -1
        self._last_store_timestamp = 0
        self._records = 0

    def run(self) -> Recovered:
        """Scan, cut, rebuild."""
        start = self._files.min_offset if self._policy.from_start else self._start()
        from_start = start == self._files.min_offset
        end = self._scan(start, from_start=from_start)
        if end is not None:
            self._refuse_damage(end)
        if end is None or (self._index is not None and self._index.end_physical_offset >= end.offset):
            # Expected units are missing, or the index has entries of records that will be cut off, and would skip
            # records at the same places later: the part that was thought to be safe is not.
            self.distrust()
            self._queues.forget()
            if self._index is not None:
                self._index.reset()
            start = self._files.min_offset
            end = self._scan(start, from_start=True)
            assert end is not None
            self._refuse_damage(end)
        self._files.cut(end.offset)
        if self._policy.aborted:
            known = self._policy.flushed_offset
            self._files.write_back(start if known is None else known, end.offset)
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

    def distrust(self) -> None:
        """Before queues and index are rebuilt: a crash during that must not leave a checkpoint that vouches for them.

        ``StoreIOError``.
        """
        self._claim(logics=0, index=0)
        self._mark_in_use()

    def _claim(self, *, logics: int, index: int) -> None:
        flushed = self._policy.flushed_offset
        if not self._policy.aborted:
            flushed = self._files.files[-1].base + self._files.file_size if self._files.files else 0
        mark = None if flushed is None else CheckpointMark(closed=False, flushed_offset=flushed)
        self._checkpoint.restart(physic=self._claimed.physic_msg_timestamp, logics=logics, index=index)
        self._checkpoint.flush(mark)

    def _start(self) -> int:
        """The first byte of the newest file before which everything is known to be right."""
        files = self._files.files
        if not self._policy.aborted:
            return files[max(len(files) - _CLEAN_FILES, 0)].base if files else 0
        point = self._claimed
        safe = min(point.physic_msg_timestamp, point.logics_msg_timestamp)
        if self._index is not None:
            safe = min(safe, point.index_msg_timestamp)
        file = find_by_time(self._files, safe - TRUST_MARGIN_MS)
        return self._files.min_offset if file is None else file.base

    def _scan(self, start: int, *, from_start: bool) -> LogEnd | None:
        """Walk the log and dispatch its records; None when queues or index lack records before ``start``."""
        index = self._index if self._policy.aborted else None
        if index is not None and not self._truncate_index(index, start) and not from_start:
            return None
        total = self._files.files[-1].base + self._files.file_size - start if self._files.files else 0
        end = LogEnd()
        self._last_record, self._last_store_timestamp, self._records = -1, 0, 0
        self._frame = self._broken = None
        # After a clean close everything was synced, so no sector is missing, whichever program wrote it.
        unsynced_from = (self._policy.flushed_offset or 0) if self._policy.aborted else None
        end.offset, whole_to = start, 0
        while True:
            blocks = walk(
                self._files,
                end.offset,
                _UNKNOWN,
                end,
                check_crc=True,
                unsynced_from=unsynced_from,
                whole_to=whole_to,
                block_size=_BLOCK_SIZE,
            )
            for scan in blocks:
                sound = self._sound_part(scan)
                if not self._dispatch(sound, from_start=from_start):
                    return None
                if sound.stop is not None:
                    end.offset, end.stop = scan.physical_offset + sound.scan.end, sound.stop
                    break
                if self._progress is not None:
                    self._progress(end.offset - start, total)
            frame = self._whole_frame_at(end.offset)
            if frame is None or frame.end <= whole_to:
                return end
            # Its checksum shows that no sector is missing, even if properties look so.
            whole_to = frame.end

    def _whole_frame_at(self, offset: int) -> FoundFrame | None:
        """The frame that holds a physical offset, if it is whole."""
        frame = self._frame
        if frame is None or not frame.physical_offset <= offset < frame.end:
            return None
        return frame if is_whole(self._files, frame) else None

    def _truncate_index(self, index: IndexWriter, start: int) -> bool:
        """Whether the index holds all records before ``start``.

        It removes damaged files, and the next recovery would not see that they had existed. So the checkpoint does
        not vouch for the index during that.
        """
        claimed = self._checkpoint.values
        if claimed.index_msg_timestamp:
            self._claim(logics=claimed.logics_msg_timestamp, index=0)
        index.truncate(start)
        if self._policy.flushed_offset is None and claimed.index_msg_timestamp and start > self._files.min_offset:
            # RocketMQ's checkpoint does not say how many files there were, but there was one.
            index.damaged |= not index.file_count
        if not index.damaged and claimed.index_msg_timestamp:
            self._claim(logics=claimed.logics_msg_timestamp, index=claimed.index_msg_timestamp)
        return not index.damaged

    def _sound_part(self, scan: RecordScan) -> _Sound:
        """The scan up to the first record with values that no store writes: the CRC covers only the body."""
        stop: Stop = None
        while True:
            requests = dispatch_requests(scan, self._delay_levels_ms)
            groups = list(units_by_queue(requests))
            found = _impossible(scan) or self._queues.first_misfit(groups) or self._broken_frame(scan, requests)
            if found is None:
                return _Sound(scan, requests, groups, stop)
            at, stop = found
            scan = scan_records(scan.data[: at - scan.physical_offset], scan.physical_offset, check_crc=False)

    def _broken_frame(self, scan: RecordScan, requests: DispatchRequests) -> tuple[int, Corrupt] | None:
        """The first frame of which a crash of the machine has left only a part. Flushed frames are not checked."""
        for frame in frames_in(scan, requests):
            unsure = self._policy.aborted and frame.end > (self._policy.flushed_offset or 0)
            if unsure and not is_whole(self._files, frame):
                self._broken = frame
                rows = f"{frame.frame.rows} records with checksum {frame.frame.checksum:#010x} after it"
                return frame.physical_offset, Corrupt(f"Frame of {frame.frame.batch}", 0, rows, "others, or fewer")
            self._frame = frame
        return None

    def _dispatch(self, sound: _Sound, *, from_start: bool) -> bool:
        scan, requests, groups, _ = sound
        if not len(scan):
            return True
        for frame in frames_in(scan, requests):
            known = frame.end <= scan.physical_offset + scan.end and all(map(self._queues.holds, groups))
            if frame.end > self._gate.state.shown_to and not known:
                # Readers of other processes have not seen it yet, and must see all of it at once.
                self._gate.close_from(frame.physical_offset)
        self._records += len(scan)
        self._last_record = int(requests.physical_offsets[-1])
        self._last_store_timestamp = max(self._last_store_timestamp, int(requests.store_timestamps.max()))
        for group in groups:
            if not self._queues.rewrite(group, from_start=from_start, write_back=self._policy.aborted):
                return False
        if self._index is not None:
            entries = index_entries(scan, requests)
            if len(entries.rows):
                rows = entries.rows
                self._index.put(entries.key_hashes, requests.physical_offsets[rows], requests.store_timestamps[rows])
        return True

    def _refuse_damage(self, end: LogEnd) -> None:
        """A bad record before a good one that was flushed is damage: it must not be lost silently."""
        flushed = self._policy.flushed_offset
        start = end.offset + 1
        if self._broken is not None and self._broken.physical_offset == end.offset:
            self._refuse_what_others_appended(end, self._broken)
            start = self._broken.end  # no part of it was acknowledged
        elif self._frame is not None and self._frame.physical_offset <= end.offset < self._frame.end:
            batch = self._frame
            self._refuse(end, f"It belongs to {batch.frame.batch}, which was committed whole", batch.physical_offset)
        # A crash loses sectors; it does not create good records with another offset in another queue.
        impossible = isinstance(end.stop, Corrupt) and end.stop.field in IMPOSSIBLE_FIELDS
        if impossible or not self._policy.aborted:
            flushed = _UNKNOWN
        if flushed is not None:
            behind = find_record(self._files, start, flushed) if flushed > start else None
            if behind is not None:
                self._refuse(end, _flushed_behind(behind.physical_offset))
            return
        behind = find_record(self._files, start, _UNKNOWN)
        # Some messages of the checkpoint's very millisecond may have come after the flush.
        if behind is not None and 0 < behind.store_timestamp < self._claimed.physic_msg_timestamp:
            self._refuse(end, _flushed_behind(behind.physical_offset))

    def _refuse_what_others_appended(self, end: LogEnd, frame: FoundFrame) -> None:
        """A broker that owned the store in between does not know frames, and appends right after a part of one."""
        for scan in walk(self._files, frame.physical_offset, frame.end, LogEnd(), check_crc=True):
            # All records of a frame have its own store time.
            if (scan.field("store_timestamp") != frame.store_timestamp).any():
                self._refuse(end, "Another program has appended messages after a part of a batch")

    def _refuse(self, end: LogEnd, why: str, cut_at: int | None = None) -> NoReturn:
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
        store = shlex.quote(os.path.dirname(self._files.path))
        raise DamagedLog(
            f"{what} of the record at physical offset {end.offset}",
            path=file.path if file is not None else self._files.path,
            offset=end.offset - (file.base if file is not None else 0) + at,
            expected=wanted,
            found=value,
            advice=f"{why}: this is damage, and opening would lose the messages after it. Restore the file from a "
            "copy; StoreReader reads the rest as it is. To see what would be lost, and to continue without it: "
            f"commitlog repair {store}",
            cut_at=end.offset if cut_at is None else cut_at,
        )

    def _cut_queues(self, start: int) -> None:
        """End every queue where its last message in the log ends."""
        for topic, queue_id in list(self._queues.known_queues()):
            writer = self._queues.writer(topic, queue_id)
            writer.cut(writer.end_before(start) if writer.next_offset is None else writer.next_offset)


def _flushed_behind(physical_offset: int) -> str:
    return f"A good record that was flushed follows, at physical offset {physical_offset}"


def _impossible(scan: RecordScan) -> tuple[int, Corrupt] | None:
    """Physical offset of the first record with a value that no store writes, and that value."""
    found = first_impossible(scan)
    return None if found is None else (scan.physical_offset + int(scan.positions[found[0]]), found[1])
