"""Search for the end of a log: one scan that only reads, for recovery and for the forecast of an opening.

Where a log ends is decided by its records and by the ``RecoveryPolicy``. Queues and index are made from the log: they
only decide whether the scan has to begin at the log's first byte (``DerivedParts``). docs/durability.md has the states
that a crash can leave, and why this is right for each of them.

Source of the starting point: RocketMQ ``store/CommitLog.java`` (``recoverAbnormally``, ``isMappedFileMatchedRecover``,
``recoverNormally``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn, Protocol

import numpy as np

from commitlog_store.batch.frames import FoundFrame, frames_in, is_whole
from commitlog_store.columnar.dispatch import DispatchRequests, QueueUnits, dispatch_requests, units_by_queue
from commitlog_store.columnar.impossible_fields import IMPOSSIBLE_FIELDS, first_impossible
from commitlog_store.columnar.scan import RecordScan, Stop, scan_records
from commitlog_store.errors import DamagedLog, LogShort
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.checkpoint import TRUST_MARGIN_MS, Checkpoint
from commitlog_store.format.record import Corrupt, Filler, Record, Torn, decode_record, field_offset, own_position
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.log.past_damage import lacks_sectors
from commitlog_store.log.scan import LogFileList, LogWalk, find_by_time, find_record
from commitlog_store.log.store_directory import refuse_inner_batches
from commitlog_store.progress import Progress
from commitlog_store.queue.consume_queue_writer import first_of_each

# A cleanly closed store, also a broker's, is scanned from its third file from the end, as RocketMQ does.
CLEAN_FILES = 3
# No other thread waits for the interpreter's lock during recovery, so blocks are large: each of a thousand queues has
# more than a few units in one.
_BLOCK_SIZE = 32 << 20


@dataclass(frozen=True, kw_only=True)
class RecoveryPolicy:
    """The facts known before the scan.

    ``paths``: where store and log lie, for errors. ``aborted``: the last owner did not close the store.
    ``from_start``: queues and index are to be rebuilt. ``delete_queues``: the old queue files are deleted before that.
    ``flushed_offset``: up to it the log is known to be flushed; None when only the checkpoint's times say how far.
    ``accept_short``: a log that ends before that is taken as it is. ``closed_log``: the log was closed, so all of it is
    flushed and nothing follows its end; also when the opening after that was refused or interrupted.
    """

    paths: StorePaths
    aborted: bool
    closed_log: bool
    from_start: bool
    delete_queues: bool
    flushed_offset: int | None
    accept_short: bool = False


class SoundBlock(NamedTuple):
    """Records that are consistent, also with those before them in their queues."""

    scan: RecordScan
    requests: DispatchRequests
    groups: list[QueueUnits]


class _End(NamedTuple):
    """Where the records of the log end, and the bytes that follow."""

    offset: int
    stop: Stop


class _Sound(NamedTuple):
    block: SoundBlock
    stop: Stop
    """The fault of the record after them; None if the scan itself has ended there."""


@dataclass(frozen=True, kw_only=True)
class FoundEnd:
    """The end of a log as a physical offset, the bytes that follow, and what the scan met on the way to it.

    ``started_at`` is where the scan began. ``last_record`` is -1 without records. ``uncommitted`` is the incomplete
    frame that begins at the end. ``nothing_follows``: the rest of the log was searched, and holds no whole record.
    """

    end: int
    stop: Stop
    started_at: int
    last_record: int
    last_store_timestamp: int
    scanned_records: int
    uncommitted: FoundFrame | None
    nothing_follows: bool


class DerivedParts(Protocol):
    """Queues and index during a search: those of a store that is being recovered, or that is only looked at."""

    @property
    def has_index(self) -> bool: ...

    @property
    def index_end(self) -> int:
        """Physical offset of the last indexed message; -1 for none, and without an index."""
        ...

    def begin(self, start: int, /) -> bool:
        """Before records from ``start`` on are taken: whether the index holds all before it."""
        ...

    def take(self, block: SoundBlock, /, *, from_start: bool) -> bool:
        """Take a block's records. False when units of earlier ones are missing."""
        ...

    def queues_end_surely(self, start: int, end: int, /) -> bool:
        """After the scan of ``[start, end)``: whether each queue without messages there ends with one before that.

        Units of messages that would lie right after the log's end may follow it, and no others: they may be damaged.
        """
        ...

    def start_over(self) -> None:
        """Forget everything: the scan begins at the log's first byte."""
        ...

    def count_units(self, start: int, stop: int) -> int:
        """The number of queue units of messages at the physical offsets ``[start, stop)``."""
        ...


class LogOnly:
    """``DerivedParts`` of a search that looks at the log alone, from its first byte on."""

    has_index = False
    index_end = -1

    def __init__(self, count_units: Callable[[int, int], int], look: Callable[[Sequence[QueueUnits]], None]) -> None:
        """``look`` gets the messages of each queue, block by block."""
        self._count_units = count_units
        self._look = look

    def begin(self, _start: int, /) -> bool:
        return True

    def take(self, block: SoundBlock, /, **_: bool) -> bool:
        self._look(block.groups)
        return True

    def queues_end_surely(self, _start: int, _end: int, /) -> bool:
        return True

    def start_over(self) -> None:
        """Nothing was taken."""

    def count_units(self, start: int, stop: int) -> int:
        return self._count_units(start, stop)


def find_end(
    files: LogFileList,
    policy: RecoveryPolicy,
    claimed: Checkpoint,
    delay_levels_ms: Sequence[int],
    derived: DerivedParts,
    progress: Progress | None = None,
) -> FoundEnd:
    """Scan for the end of the log, and hand its records to ``derived`` on the way. Writes nothing itself.

    ``claimed`` are the checkpoint's times. ``DamagedLog`` for damage that no crash explains (invariant 5), ``LogShort``
    when the checkpoint's mark says that more was flushed than there is.
    """
    return _Search(files, policy, claimed, delay_levels_ms, derived, progress).run()


def scan_start(files: LogFileList, policy: RecoveryPolicy, claimed: Checkpoint, *, has_index: bool) -> int:
    """Where the scan for a log's end begins: with the newest file before which everything is known to be right."""
    if policy.from_start:
        return files.min_offset
    if not policy.aborted:
        known = policy.flushed_offset
        # Files after the place where the store was closed may be leftovers, and are not trusted.
        own = [file.base for file in files.files if known is None or file.base < known]
        return own[max(len(own) - CLEAN_FILES, 0)] if own else files.min_offset
    safe = min(claimed.physic_msg_timestamp, claimed.logics_msg_timestamp)
    if has_index:
        safe = min(safe, claimed.index_msg_timestamp)
    file = find_by_time(files, safe - TRUST_MARGIN_MS)
    return files.min_offset if file is None else file.base


class _QueueOrder:
    """The next offset of each queue, as the records so far have it."""

    def __init__(self) -> None:
        self._next: dict[tuple[str, int], int] = {}

    def first_misfit(self, groups: Sequence[QueueUnits]) -> tuple[int, Corrupt] | None:
        """The place of the first record that does not follow the one before it in its own queue, and how."""
        own = [group for group in groups if not group.light]
        if self._all_follow(own):
            return None
        found = [misfit for misfit in map(self._misfit, own) if misfit is not None]
        return min(found, key=lambda misfit: misfit[0], default=None)

    def _all_follow(self, groups: Sequence[QueueUnits]) -> bool:
        """Whether every record has the offset after the one before it in its queue: one look at all of them.

        A queue that is not known yet may begin at any offset. False also where ``_misfit`` finds none: it skips offsets
        that come a second time.
        """
        if not groups:
            return True
        begins = np.cumsum([0] + [len(group.queue_offsets) for group in groups[:-1]])
        offsets = np.concatenate([group.queue_offsets for group in groups])
        follows = offsets[1:] - offsets[:-1] == 1
        next_offset = self._next.get
        firsts = offsets[begins].tolist()
        known = [next_offset((g.topic, g.queue_id), first) for g, first in zip(groups, firsts, strict=True)]
        follows[begins[1:] - 1] = True
        return known == firsts and bool(follows.all())

    def _misfit(self, group: QueueUnits) -> tuple[int, Corrupt] | None:
        following = self._next.get((group.topic, group.queue_id))
        offsets, units = first_of_each(group.queue_offsets, group.units, following or 0)
        if not len(offsets):
            return None
        before = int(offsets[0]) - 1 if following is None else following - 1
        gaps = np.flatnonzero(np.diff(offsets, prepend=np.int64(before)) != 1)
        if not len(gaps):
            return None
        row = int(gaps[0])
        expected = int(offsets[row - 1]) + 1 if row else before + 1
        what = Corrupt("QUEUEOFFSET", field_offset("queue_offset"), str(expected), str(offsets[row]))
        return int(units["physical_offset"][row]), what

    def advance(self, groups: Iterable[QueueUnits]) -> None:
        """Count the records of groups without a misfit."""
        for group in groups:
            if not group.light:
                queue = group.topic, group.queue_id
                self._next[queue] = max(self._next.get(queue, 0), int(group.queue_offsets.max()) + 1)


class _Search:
    """One search for the end of one log."""

    def __init__(
        self,
        files: LogFileList,
        policy: RecoveryPolicy,
        claimed: Checkpoint,
        delay_levels_ms: Sequence[int],
        derived: DerivedParts,
        progress: Progress | None,
    ) -> None:
        self._files = files
        self._policy = policy
        self._claimed = claimed
        self._delay_levels_ms = delay_levels_ms
        self._derived = derived
        self._progress = progress
        self._begin()

    def _begin(self) -> None:
        self._order = _QueueOrder()
        # The last frame that was met, and the incomplete frame at whose start the log ends.
        self._frame: FoundFrame | None = None
        self._broken: FoundFrame | None = None
        self._last_record = -1
        self._last_store_timestamp = 0
        self._records = 0
        self._nothing_follows = False

    def run(self) -> FoundEnd:
        first = self._files.min_offset
        start = scan_start(self._files, self._policy, self._claimed, has_index=self._derived.has_index)
        end = self._scan(start, from_start=start == first)
        if end is not None:
            self._refuse_damage(end)
        unsafe = end is None or self._derived.index_end >= end.offset
        if end is None or unsafe or (start != first and not self._derived.queues_end_surely(start, end.offset)):
            # Expected units are missing or damaged, or the index has entries of records that will be cut off, and would
            # skip records at the same places later: the part that was thought to be safe is not.
            self._derived.start_over()
            start = first
            end = self._scan(start, from_start=True)
            assert end is not None
            self._refuse_damage(end)
        self._refuse_short(end)
        return FoundEnd(
            end=end.offset,
            stop=end.stop,
            started_at=start,
            last_record=self._last_record,
            last_store_timestamp=self._last_store_timestamp,
            scanned_records=self._records,
            uncommitted=self._broken if self._ends_at_broken_frame(end) else None,
            nothing_follows=self._nothing_follows,
        )

    def _scan(self, start: int, *, from_start: bool) -> _End | None:
        """Walk the log and hand on its records; None when queues or index lack records before ``start``."""
        if not self._derived.begin(start) and not from_start:
            return None
        files = self._files.files
        total = files[-1].base + files[-1].capacity - start if files else 0
        self._begin()
        # After a clean close everything was synced, so no sector is missing, whichever program wrote it: unless the end
        # is lost, perhaps with a part of the last record's properties.
        flushed = self._policy.flushed_offset
        is_whole_log = self._policy.closed_log and (flushed is None or not self._policy.accept_short)
        unsynced_from = None if is_whole_log else (flushed or 0)
        at, whole_to = start, 0
        while True:
            walk = LogWalk(
                self._files,
                at,
                MAX_LONG,
                check_crc=True,
                unsynced_from=unsynced_from,
                whole_to=whole_to,
                block_size=_BLOCK_SIZE,
            )
            end = None
            for scan in walk:
                sound = self._sound_part(scan)
                if not self._take(sound.block, from_start=from_start):
                    return None
                if sound.stop is not None:
                    end = _End(scan.physical_offset + sound.block.scan.end, sound.stop)
                    break
                if self._progress is not None:
                    self._progress(walk.offset - start, total)
            end = end or _End(walk.offset, walk.stop)
            frame = self._whole_frame_at(end.offset)
            if frame is None or frame.end <= whole_to:
                return end
            # Its checksum shows that no sector is missing, even if properties look so.
            at, whole_to = end.offset, frame.end

    def _take(self, block: SoundBlock, *, from_start: bool) -> bool:
        requests = block.requests
        if not len(block.scan):
            return True
        self._order.advance(block.groups)
        self._records += len(block.scan)
        self._last_record = int(requests.physical_offsets[-1])
        self._last_store_timestamp = max(self._last_store_timestamp, int(requests.store_timestamps.max()))
        return self._derived.take(block, from_start=from_start)

    def _whole_frame_at(self, offset: int) -> FoundFrame | None:
        """The frame that holds a physical offset, if it is whole."""
        frame = self._frame
        if frame is None or not frame.physical_offset <= offset < frame.end:
            return None
        return frame if is_whole(self._files, frame) else None

    def _sound_part(self, scan: RecordScan) -> _Sound:
        """The scan up to the first record with values that no store writes: the CRC covers only the body."""
        stop: Stop = None
        while True:
            requests = dispatch_requests(scan, self._delay_levels_ms)
            refuse_inner_batches(scan, requests, self._policy.paths.root)
            groups = list(units_by_queue(requests))
            found = _place_of_impossible(scan) or self._order.first_misfit(groups) or self._broken_frame(scan)
            if found is None:
                return _Sound(SoundBlock(scan, requests, groups), stop)
            at, stop = found
            scan = scan_records(scan.data[: at - scan.physical_offset], scan.physical_offset, check_crc=False)

    def _broken_frame(self, scan: RecordScan) -> tuple[int, Corrupt] | None:
        """The first frame of which a crash of the machine has left only a part.

        Flushed frames are not checked, unless the log may be short: then its end may have cut through one.
        """
        for frame in frames_in(scan):
            unsynced = not self._policy.closed_log and frame.end > (self._policy.flushed_offset or 0)
            if (unsynced or self._policy.accept_short) and not is_whole(self._files, frame):
                self._broken = frame
                rows = f"{frame.frame.rows} records with checksum {frame.frame.checksum:#010x} after it"
                return frame.physical_offset, Corrupt(f"Frame of {frame.frame.batch}", 0, rows, "others, or fewer")
            self._frame = frame
        return None

    def _ends_at_broken_frame(self, end: _End) -> bool:
        return self._broken is not None and self._broken.physical_offset == end.offset

    def _refuse_damage(self, end: _End) -> None:
        """A bad record before a good one that was flushed is damage: it must not be lost silently."""
        flushed = self._policy.flushed_offset
        start = end.offset + 1
        if self._broken is not None and self._ends_at_broken_frame(end):
            self._refuse_what_others_appended(end, self._broken)
            if not lacks_sectors(self._files, self._broken.physical_offset, self._broken.end):
                self._refuse(end, "None of its sectors is missing, so no crash has left it so: it was committed")
            start = self._broken.end  # no part of it was acknowledged
        elif self._frame is not None and self._frame.physical_offset <= end.offset < self._frame.end:
            batch = self._frame
            self._refuse(end, f"It belongs to {batch.frame.batch}, which was committed whole", batch.physical_offset)
        if self._begins_with_another_place(end):
            self._refuse(end, "It is whole, and belongs elsewhere: this file may have the name of another")
        # A crash loses sectors; it does not create good records with another offset in another queue.
        impossible = isinstance(end.stop, Corrupt) and end.stop.field in IMPOSSIBLE_FIELDS
        if impossible or self._policy.closed_log:
            flushed = MAX_LONG
        if flushed is not None:
            later = find_record(self._files, start, flushed) if flushed > start else None
            # A lost end may begin within the record at ``end``, which is kept then.
            from_end = start == end.offset + 1 and not self._policy.accept_short
            self._nothing_follows = later is None and flushed == MAX_LONG and from_end
            if later is not None and end.offset == self._policy.flushed_offset:
                self._refuse(end, _left_over(later.physical_offset))
            if later is not None:
                self._refuse(end, _flushed_later(later.physical_offset))
            self._refuse_what_queues_know(end)
            return
        later = find_record(self._files, start, MAX_LONG)
        self._nothing_follows = later is None and start == end.offset + 1
        # Some messages of the checkpoint's very millisecond may have come after the flush.
        if later is not None and 0 < later.store_timestamp < self._claimed.physic_msg_timestamp:
            self._refuse(end, _flushed_later(later.physical_offset))

    def _refuse_what_queues_know(self, end: _End) -> None:
        """A broker leaves no mark; but what it closed was flushed, and its queues say whether messages are missing.

        Only where bytes follow the end: a damaged unit may name any place of a log that is whole.
        """
        policy = self._policy
        if end.stop is None or not policy.closed_log or policy.flushed_offset is not None or policy.accept_short:
            return
        if missing := self._derived.count_units(end.offset, MAX_LONG):
            self._refuse(end, f"The store was closed, and by its consume queues {missing} messages follow")

    def _begins_with_another_place(self, end: _End) -> bool:
        """Whether a file begins there, with a good record whose PHYSICALOFFSET is another."""
        file = self._files.find(end.offset)
        if file is None or file.base != end.offset or not isinstance(end.stop, Corrupt):
            return False
        data = file.read(0, max(min(int.from_bytes(file.read(0, 4), "big", signed=True), file.capacity), 0))
        return end.stop.field == "PHYSICALOFFSET" and isinstance(
            decode_record(data, physical_offset=own_position(data)), Record
        )

    def _refuse_what_others_appended(self, end: _End, frame: FoundFrame) -> None:
        """A broker that owned the store in between does not know frames, and appends right after a part of one."""
        for scan in LogWalk(self._files, frame.physical_offset, frame.end, check_crc=True):
            # All records of a frame have its own store time.
            if (scan.field("store_timestamp") != frame.store_timestamp).any():
                self._refuse(end, "Another program has appended messages after a part of a batch")

    def _refuse_short(self, end: _End) -> None:
        """The mark says how far the log was flushed: what is missing of that is lost, and no crash explains it."""
        flushed = self._policy.flushed_offset
        if self._policy.accept_short or self._ends_at_broken_frame(end):
            return  # no part of a frame is acknowledged, also when its beginning was flushed
        if flushed is not None and end.offset < flushed:
            raise LogShort(
                path=self._policy.paths.root,
                log_path=self._policy.paths.commit_log,
                for_shell=self._policy.paths.for_shell,
                found_end=end.offset,
                flushed_offset=flushed,
                missing_messages=self._derived.count_units(end.offset, flushed),
            )

    def _refuse(self, end: _End, why: str, cut_at: int | None = None) -> NoReturn:
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
        raise DamagedLog(
            f"{what} of the record at physical offset {end.offset}",
            path=file.path if file is not None else self._files.path,
            offset=end.offset - (file.base if file is not None else 0) + at,
            expected=wanted,
            found=value,
            advice=f"{why}: this is damage, and opening would lose the messages after it. Restore the file from a "
            "copy; StoreReader reads the rest as it is. To see what would be lost, and to continue without it: "
            f"commitlog repair {self._policy.paths.for_shell}",
            cut_at=end.offset if cut_at is None else cut_at,
        )


def _flushed_later(physical_offset: int) -> str:
    return f"A good record that was flushed follows, at physical offset {physical_offset}"


def _left_over(physical_offset: int) -> str:
    return (
        f"The store was closed there, and yet a record follows at physical offset {physical_offset}, perhaps left over "
        "from another copy of this store"
    )


def _place_of_impossible(scan: RecordScan) -> tuple[int, Corrupt] | None:
    """Physical offset of the first record with a value that no store writes, and that value."""
    found = first_impossible(scan)
    return None if found is None else (scan.physical_offset + int(scan.positions[found[0]]), found[1])
