"""Forecast of an opening: what ``MessageStore.open`` would do with a store, without a change of any byte or time stamp.

Evidence, decision and search for the log's end are those of the opening itself (``start``, ``log_end``, ``cut``); only
what they are given differs: files that are opened for reading, and queues and index that are looked at.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from commitlog_store.columnar.dispatch import QueueUnits
from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import (
    CommitLogError,
    Damaged,
    LogNotFound,
    LogShort,
    NotAStore,
    StoreAccessDenied,
    StoreBusy,
    StoreLocked,
    StoreOpenError,
    UnsupportedStore,
)
from commitlog_store.files import disk
from commitlog_store.files.error_paths import failed_reads
from commitlog_store.files.store_lock import lock_holder
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.checkpoint import CheckpointMark
from commitlog_store.format.record import RECORD_PREFIX_SIZE, Unwritten, decode_record
from commitlog_store.index.writer import IndexWriter
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.store_checkpoint import StoreCheckpoint
from commitlog_store.log.store_directory import (
    check_log_directory,
    check_store_directory,
    refuse_batch_queues,
    refuse_kept_piece,
    refuse_linked_directories,
    refuse_odd_files,
)
from commitlog_store.paths import ABORT, CHECKPOINT, INDEX, LOCK
from commitlog_store.progress import Progress
from commitlog_store.queue.catalog import QueueCatalog
from commitlog_store.queue.consume_queue_store import ConsumeQueueStore
from commitlog_store.queue.consume_queue_writer import first_of_each
from commitlog_store.queue.light_queues import lacks_light_units
from commitlog_store.queue.saved_ends import SavedEnds
from commitlog_store.recovery.broker_deletions import BrokerDeletions
from commitlog_store.recovery.cut import cut_off_after, why_not_kept
from commitlog_store.recovery.kept import CutOff
from commitlog_store.recovery.log_end import RecoveryPolicy, SoundBlock, find_end, scan_start
from commitlog_store.recovery.log_on_disk import LogOnDisk
from commitlog_store.recovery.start import (
    Evidence,
    OpenWishes,
    Start,
    StartKind,
    StartParts,
    how_to_start,
    recovery_policy,
)

# How often to look at a store that is opened and closed by others at the same time.
_LOOKS = 5


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What opening a store would do.

    ``start`` is how it would begin. ``end`` is the physical offset at which the log would end; None if the store would
    not open, and then ``refusal`` is the error. ``cut`` are the whole records after that end, which would be cut off
    and kept; None without any. ``unscanned`` is set if the forecast did not scan and opening does: at least so many
    bytes of the log. Then neither ``end`` nor ``cut`` is known. ``scanned_from`` is the physical offset at which
    the forecast's scan began; None if it did not scan.
    """

    path: str
    start: Start
    end: int | None = None
    cut: CutOff | None = None
    refusal: CommitLogError | None = None
    unscanned: int | None = None
    scanned_from: int | None = None

    @property
    def loses(self) -> bool:
        """Whether opening is refused, or cuts off whole records that may have been acknowledged."""
        return self.refusal is not None or (self.cut is not None and not self.cut.uncommitted)


def forecast_open(
    path: str | os.PathLike[str],
    config: MessageStoreConfig | None = None,
    *,
    scan: bool = True,
    progress: Progress | None = None,
    saved: SavedEnds | None = None,
) -> Forecast:
    """Look at a store as opening it would, and change nothing. Without ``scan``, no records are read.

    ``saved`` are its saved ends, if they were compared for the same look.

    ``StoreLocked`` if it is open now; ``StoreNotFound``, ``NotAStore``, ``StoreAccessDenied``, ``UnsupportedStore``.
    """
    directory = disk.absolute_path(path)
    check_store_directory(directory)
    refuse_kept_piece(directory)
    for _ in range(_LOOKS):
        before = _traces_unless_owned(directory)
        forecast = forecast_locked(directory, config, scan=scan, progress=progress, saved=saved)
        if _traces_unless_owned(directory) == before:
            return forecast
    raise StoreBusy(f"The store at {directory} was opened or closed during each of {_LOOKS} looks at it. Look again.")


def _traces_unless_owned(directory: str) -> tuple[object, ...]:
    """What an owner changes when it opens or closes the store. ``StoreLocked`` while there is one."""
    holder = lock_holder(os.path.join(directory, LOCK))
    if holder is not None:
        owner = f"process {holder}" if holder else "a process that cannot be seen from here"
        raise StoreLocked(
            f"The store at {directory} is open in {owner}: what its next opening would do is not known yet. Look again "
            "when it is closed.",
            path=directory,
            holder=holder or None,
        )
    return _trace(directory, CHECKPOINT), _trace(directory, ABORT)


def opening_traces(directory: str) -> tuple[object, ...]:
    """What changes when an owner opens or closes the store, and not while it has it open.

    An owner writes its checkpoint again and again; the file ``abort`` is there from its opening to its close.
    """
    abort = _trace(directory, ABORT)
    return (abort,) if abort is not None else (None, _trace(directory, CHECKPOINT))


def _trace(directory: str, name: str) -> tuple[int, ...] | None:
    """The signature of a file; None without it: an owner may remove it at any time."""
    try:
        return disk.file_signature(os.path.join(directory, name))
    except OSError:  # also a link that leads nowhere; what may not be read is reported by the look itself
        return None


def forecast_locked(
    directory: str,
    config: MessageStoreConfig | None = None,
    *,
    scan: bool = True,
    progress: Progress | None = None,
    saved: SavedEnds | None = None,
) -> Forecast:
    """``forecast_open`` of a store that no other process can open now, given as an absolute path."""
    config = config or MessageStoreConfig()
    paths = StorePaths.of(directory, config.store_path_commit_log)
    log = CommitLog(paths.commit_log)
    index = IndexWriter(os.path.join(directory, INDEX)) if config.message_index_enable else None
    size = config.mapped_file_size_consume_queue
    queues = ConsumeQueueStore(directory, size, QueueCatalog(directory, log), read_only=True, known=saved)
    try:
        with failed_reads(directory, "look at"):
            checkpoint = StoreCheckpoint.load(os.path.join(directory, CHECKPOINT))
            aborted = disk.exists(os.path.join(directory, ABORT))
            parts = StartParts(paths, aborted, queues, index, checkpoint)
            return _forecast(parts, config, progress, scan=scan)
    finally:
        queues.close()
        log.close()


def _forecast(parts: StartParts, config: MessageStoreConfig, progress: Progress | None, *, scan: bool) -> Forecast:
    levels = config.delay_levels_ms
    try:
        check_log_directory(parts.paths, exists=False)
        refuse_batch_queues(parts.path)
        refuse_linked_directories(parts.paths)
        refuse_odd_files(parts.path)
        iter(parts.queues.deleted)  # reads the list
        evidence, start = how_to_start(parts, OpenWishes())
    except (Damaged, LogNotFound, NotAStore, UnsupportedStore) as error:
        return Forecast(path=parts.path, start=Start(StartKind.REFUSE, str(error)), refusal=error)
    if (lost := start.refusal(parts.path)) is not None:
        return Forecast(path=parts.path, start=start, refusal=lost)
    try:
        files = LogOnDisk.load(parts.paths.commit_log, aborted=evidence.aborted)
    except (Damaged, NotAStore) as error:
        return Forecast(path=parts.path, start=start, refusal=error)
    try:
        if start.kind is StartKind.CLEAN:
            assert evidence.mark is not None, "a store without a mark is scanned"
            return Forecast(path=parts.path, start=start, end=evidence.mark.end_offset)
        policy = recovery_policy(evidence, start, OpenWishes())
        if not scan:
            return _unscanned(parts, start, policy, files, evidence)
        derived = _ForecastParts(parts, policy, files)
        found = find_end(files, policy, evidence.times, levels, derived, progress)
        cut = cut_off_after(files, found, levels)
        refusal = None if cut is None else why_not_kept(parts.path, files, cut)
        if refusal is not None:
            return Forecast(path=parts.path, start=start, refusal=refusal)
        return Forecast(path=parts.path, start=start, end=found.end, cut=cut, scanned_from=found.started_at)
    except StoreAccessDenied:
        raise
    except (Damaged, StoreOpenError) as error:
        return Forecast(path=parts.path, start=start, refusal=error)
    finally:
        files.close()


def _unscanned(
    parts: StartParts, start: Start, policy: RecoveryPolicy, files: LogOnDisk, evidence: Evidence
) -> Forecast:
    """The forecast without the scan: its size, and what the files and the place of the last record refuse."""
    last = files.files[-1] if files.files else None
    end = last.base + last.capacity if last is not None else 0
    flushed = policy.flushed_offset
    if flushed is not None:
        gone = _unwritten_last_record(files, policy, evidence.mark)
        if end < flushed or gone is not None:
            short = LogShort(
                path=parts.path,
                log_path=parts.paths.commit_log,
                for_shell=parts.paths.for_shell,
                found_end=end if gone is None else gone,
                flushed_offset=flushed,
                missing_messages=parts.queues.count_units(end, flushed) if gone is None else None,
                or_before=gone is not None,
            )
            return Forecast(path=parts.path, start=start, refusal=short)
    size = end - scan_start(files, policy, evidence.times, has_index=parts.index is not None)
    return Forecast(path=parts.path, start=start, unscanned=size)


def _unwritten_last_record(files: LogOnDisk, policy: RecoveryPolicy, mark: CheckpointMark | None) -> int | None:
    """Where the last record of a closed store should begin, if zeros are there: any scan ends at that place or before.

    None if something else is there, or if the mark does not say. After a crash, the log may end with a part of a batch.
    """
    if mark is None or not mark.closed or not policy.closed_log or mark.last_record < files.min_offset:
        return None
    file = files.find(mark.last_record)
    head = b"" if file is None else file.read(mark.last_record - file.base, RECORD_PREFIX_SIZE)
    is_unwritten = len(head) == RECORD_PREFIX_SIZE and isinstance(decode_record(head), Unwritten)
    return mark.last_record if is_unwritten else None


class _ForecastParts:
    """Queues and index of a store that is only looked at: whether they hold what was dispatched before the scan."""

    def __init__(self, parts: StartParts, policy: RecoveryPolicy, files: LogOnDisk) -> None:
        times = None if parts.checkpoint.mark is not None else parts.checkpoint.values
        self._deletions = BrokerDeletions(parts.path, files, parts.queues.deleted, times, aborted=policy.aborted)
        self._start = files.min_offset
        self._queues = parts.queues
        self._index = parts.index
        self._policy = policy
        self._log_start = files.min_offset
        self._index_was_flushed = parts.checkpoint.values.index_msg_timestamp > 0
        # Queues whose first units were looked at, and whether these were messages of their own.
        self._seen: dict[tuple[str, int], bool] = {}
        # Whether recovery would begin with empty queues and an empty index.
        self._is_empty = policy.from_start

    @property
    def has_index(self) -> bool:
        return self._index is not None

    @property
    def index_end(self) -> int:
        # After a crash, recovery keeps only entries of messages before the scan.
        if self._index is None or self._is_empty or self._policy.aborted:
            return -1
        return self._index.last_indexed()

    def queues_end_surely(self, _start: int, _end: int) -> bool:
        return True  # the log's end is the same

    def start_over(self) -> None:
        self._is_empty = True
        self._seen = {}

    def begin(self, start: int) -> bool:
        self._start = start
        if self._index is None or self._is_empty or not self._policy.aborted:
            return True
        whole, file_count = self._index.survey(start)
        expected = self._policy.flushed_offset is None and self._index_was_flushed and start > self._log_start
        return whole and not (expected and not file_count)

    def take(self, block: SoundBlock, *, from_start: bool) -> bool:
        self._deletions.note(block.groups)
        return from_start or not any(map(self._lacks_units_before, block.groups))

    def _lacks_units_before(self, given: QueueUnits) -> bool:
        """Whether units of messages before the scan are missing in the queue of the first of its groups."""
        group = self._queues.deleted.left(given)
        if group is None or self._queues.begins_after_deletion(group):
            return False
        if self._deletions.begins_within(group.topic, self._start):
            return False
        queue = group.topic, group.queue_id
        has_own = self._seen.get(queue)
        if has_own or (group.light and has_own is not None):
            return False
        self._seen[queue] = not group.light
        writer = self._queues.writer(group.topic, group.queue_id)
        if group.light:
            return lacks_light_units(writer, group.queue_offsets, group.units)
        offsets, _ = first_of_each(group.queue_offsets, group.units, 0)
        # Light units of the same queue give it a position, and then its own are only checked for a gap.
        return has_own is None and len(offsets) > 0 and writer.lacks_units_before(int(offsets[0]))

    def count_units(self, start: int, stop: int) -> int:
        return self._queues.count_units(start, stop)
