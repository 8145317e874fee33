"""The decision how to open a store: clean, scan, rebuild or refuse, with its evidence and reason.

``gather`` looks at the store and changes nothing. ``decide`` is a pure function of that evidence: the first row of
``_ROWS`` that applies decides. A new reason is one field of ``Evidence``, filled in ``gather``, and one row.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from commitlog_store.columnar.dispatch import index_entries
from commitlog_store.errors import LogLost
from commitlog_store.files import disk
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.checkpoint import Checkpoint, CheckpointMark
from commitlog_store.format.record import RECORD_PREFIX_SIZE, Record, Unwritten, decode_record
from commitlog_store.index.writer import IndexWriter
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.scan import LogWalk
from commitlog_store.log.store_checkpoint import StoreCheckpoint
from commitlog_store.paths import CONSUME_QUEUE
from commitlog_store.queue.consume_queue_store import ConsumeQueueStore
from commitlog_store.queue.queue_survey import QueueFiles
from commitlog_store.recovery.cut import OnCut
from commitlog_store.recovery.log_end import CLEAN_FILES, RecoveryPolicy


class StartKind(Enum):
    """The ways to open a store."""

    CLEAN = "clean"
    """Nothing: the checkpoint says where the log ends."""
    SCAN = "scan"
    """The log is scanned from the last position that is known to be right, and ended after its last good record."""
    REBUILD = "rebuild"
    """The log is scanned from its first byte, and queues and index are rebuilt from it."""
    REFUSE = "refuse"
    """The store is not opened."""


@dataclass(frozen=True)
class Start:
    """The decision, and its reason as a sentence.

    ``is_fault``: the reason is something that is missing or damaged, which neither a crash nor another owner explains.
    """

    kind: StartKind
    reason: str
    is_fault: bool = False

    def refusal(self, path: str) -> LogLost | None:
        """The error of a store that is not opened; None for one that is."""
        return LogLost(self.reason, path=path) if self.kind is StartKind.REFUSE else None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The state of a store before it is opened. The last four fields are gathered if the others do not decide."""

    path: str
    log_path: str
    abort_file: bool
    mark: CheckpointMark | None
    times: Checkpoint
    log_file_count: int
    """File names in the log's directory that are numbers, whatever the files hold."""
    log_start: int
    log_end: int
    """First byte of the log's first file, and the end of its last one."""
    queue_files: QueueFiles
    topic_without_log: str | None
    """If the log has no files: a topic that has queue files."""
    index_file_count: int | None
    """None when the store is opened without an index."""

    queues_end_at_mark: bool = True
    """Whether the queues end where they ended when the store was closed."""
    index_has_holes: bool = False
    """Whether the index lacks messages with keys that a scan does not add."""
    index_looks_right: bool = True
    log_ends_at_mark: bool = True
    """Whether the last record that the mark names is the log's last one, and nothing follows it in any file."""

    @property
    def aborted(self) -> bool:
        """Whether the last owner did not close the store."""
        return self.abort_file or self.left_open

    @property
    def left_open(self) -> bool:
        """Whether the checkpoint says that an owner opened the store, and not that it closed it."""
        return self.mark is not None and not self.mark.closed

    @property
    def closed_before(self) -> bool:
        """Whether an opening was refused or interrupted before it could change the log of a closed store."""
        return self.mark is not None and not self.mark.closed and self.mark.end_offset > 0

    @property
    def holds_log(self) -> bool:
        """Whether the log has a file with room for a record."""
        return self.log_end > self.log_start

    @property
    def has_index(self) -> bool:
        """Whether the store is opened with an index."""
        return self.index_file_count is not None

    @property
    def queue_files_wanted(self) -> int:
        """How many queue files must exist at least: the checkpoint counts them, and an old log has some.

        A log of one file is scanned from its start in any case, and its owner may have died before the first dispatch.
        """
        counted = 1 if self.mark is None else self.mark.queue_file_count
        return max(counted, 1) if self.left_open and self.log_file_count > 1 else counted

    @property
    def head_expired(self) -> bool:
        """Whether log files have been removed from the head since the checkpoint, and so queue and index files too."""
        return self.mark is not None and self.log_start > self.mark.log_start

    @property
    def lacks_queue_files(self) -> bool:
        """Whether fewer queue files exist than must."""
        # After a crash nothing else says whether a file of a queue's end is among the missing ones.
        expired = self.head_expired and not self.aborted
        return self.queue_files.count < (min(self.queue_files_wanted, 1) if expired else self.queue_files_wanted)

    @property
    def lacks_index_files(self) -> bool:
        """Whether fewer index files exist than the checkpoint counts."""
        counted = 0 if self.mark is None else self.mark.index_file_count
        enough = min(counted, 1) if self.head_expired else counted
        return self.index_file_count is not None and self.index_file_count < enough

    @property
    def flushed_offset(self) -> int:
        """The physical offset up to which the checkpoint says that the log was flushed; 0 when it does not say."""
        return 0 if self.mark is None else self.mark.flushed_offset

    @property
    def index_is_behind(self) -> bool:
        """Whether the last owner closed the store without an index, and put messages."""
        closed = self.mark is not None and self.mark.closed
        return self.has_index and closed and self.times.index_msg_timestamp < self.times.physic_msg_timestamp


class OpenWishes(NamedTuple):
    """The caller's wishes: the arguments of ``MessageStore.open`` of these names."""

    accept_lost_log: bool = False
    rebuild: bool = False
    on_cut: OnCut = "keep"


class _Row(NamedTuple):
    """One reason to open a store in one way."""

    kind: StartKind
    applies: Callable[[Evidence, OpenWishes], bool]
    reason: str
    """A format string with fields of the evidence, ``e``, in braces."""
    is_fault: bool = False


_ROWS = (
    _Row(
        StartKind.REFUSE,
        lambda e, wishes: not e.log_file_count and e.topic_without_log is not None and not wishes.accept_lost_log,
        "{e.log_path} holds no file, but consume queues exist ({e.topic_without_log}, ...). Mount or restore the log, "
        "or name its directory: store_path_commit_log, --commit-log DIR for a command; or open with "
        "accept_lost_log=True to begin an empty store in its place.",
    ),
    _Row(
        StartKind.REFUSE,
        lambda e, wishes: not e.log_file_count and e.flushed_offset > 0 and not wishes.accept_lost_log,
        "{e.log_path} holds no file, but the checkpoint says that the log was flushed up to physical offset "
        "{e.flushed_offset}. Mount or restore the log, or name its directory: store_path_commit_log, --commit-log DIR "
        "for a command; or open with accept_lost_log=True to begin an empty store in its place.",
    ),
    _Row(StartKind.REBUILD, lambda _, wishes: wishes.rebuild, "The caller asked for it."),
    _Row(
        StartKind.REBUILD,
        lambda e, _: e.holds_log and e.lacks_queue_files,
        "Of at least {e.queue_files_wanted} consume-queue files, {e.queue_files.count} exist.",
        is_fault=True,
    ),
    _Row(
        StartKind.REBUILD,
        lambda e, _: e.holds_log and not e.aborted and e.queue_files.uneven is not None,
        "The files of the consume queue {e.queue_files.uneven} have several sizes, or one is missing.",
        is_fault=True,
    ),
    _Row(
        StartKind.REBUILD,
        lambda e, _: e.holds_log and not e.queues_end_at_mark,
        "The consume queues do not end where they ended when the store was closed.",
        is_fault=True,
    ),
    _Row(
        StartKind.REBUILD,
        lambda e, _: e.holds_log and e.lacks_index_files,
        "Of the index files that the checkpoint counts, {e.index_file_count} exist.",
        is_fault=True,
    ),
    _Row(
        StartKind.REBUILD,
        lambda e, _: e.holds_log and e.index_is_behind,
        "The last owner kept no index, and put messages.",
    ),
    _Row(
        StartKind.REBUILD,
        lambda e, _: e.holds_log and e.index_has_holes,
        "The index lacks messages before, between or after its files.",
    ),
    _Row(
        StartKind.REBUILD,
        lambda e, _: not e.aborted and not e.index_looks_right,
        "An index file is damaged, though the store was closed.",
        is_fault=True,
    ),
    _Row(
        StartKind.SCAN,
        lambda e, _: e.abort_file,
        "The last owner did not close the store: the file 'abort' exists.",
    ),
    _Row(
        StartKind.SCAN,
        lambda e, _: e.left_open,
        "The last owner did not close the store: the checkpoint says that it is open.",
    ),
    _Row(
        StartKind.SCAN,
        lambda e, _: e.mark is None,
        "The checkpoint does not say where the log ends: the store is new, or another program closed it.",
    ),
    _Row(
        StartKind.SCAN,
        lambda e, _: not e.log_ends_at_mark,
        "The log does not end where the checkpoint says.",
        is_fault=True,
    ),
    _Row(StartKind.CLEAN, lambda *_: True, "The last owner closed the store, and nothing is missing."),
)


def decide(evidence: Evidence, wishes: OpenWishes) -> Start:
    """How to open the store."""
    row = next(row for row in _ROWS if row.applies(evidence, wishes))
    return Start(row.kind, row.reason.format(e=evidence), row.is_fault)


@dataclass(frozen=True)
class StartParts:
    """The parts of a store that are looked at before it is opened, by its owner or for a forecast.

    ``aborted``: the file ``abort`` exists. ``index`` is None when the store is opened without an index.
    """

    paths: StorePaths
    aborted: bool
    queues: ConsumeQueueStore
    index: IndexWriter | None
    checkpoint: StoreCheckpoint

    @property
    def path(self) -> str:
        """The store's directory."""
        return self.paths.root


def how_to_start(parts: StartParts, wishes: OpenWishes) -> tuple[Evidence, Start]:
    """Look at a store, change nothing, and decide. ``OSError``."""

    def is_decided(evidence: Evidence) -> bool:
        return decide(evidence, wishes).kind in (StartKind.REBUILD, StartKind.REFUSE)

    evidence = gather(parts, is_decided=is_decided)
    return evidence, decide(evidence, wishes)


def recovery_policy(evidence: Evidence, start: Start, wishes: OpenWishes) -> RecoveryPolicy:
    """How to scan a store that is not opened clean."""
    distrusted = evidence.queue_files.uneven is not None or not evidence.queues_end_at_mark
    return RecoveryPolicy(
        paths=StorePaths(evidence.path, evidence.log_path),
        aborted=evidence.aborted,
        closed_log=not evidence.aborted or evidence.closed_before,
        from_start=start.kind is StartKind.REBUILD,
        delete_queues=wishes.rebuild or (start.kind is StartKind.REBUILD and distrusted),
        flushed_offset=None if evidence.mark is None else evidence.mark.flushed_offset,
        accept_short=wishes.accept_lost_log,
    )


def gather(parts: StartParts, *, is_decided: Callable[[Evidence], bool]) -> Evidence:
    """Look at a store, and change nothing. ``is_decided`` says when no further look is needed. ``OSError``."""
    with contextlib.closing(CommitLog(parts.paths.commit_log)) as log:
        evidence = _at_first_sight(parts, log)
        for look_further in _further_looks(evidence, parts, log):
            if is_decided(evidence):
                break
            evidence = look_further(evidence)
    return evidence


def _at_first_sight(parts: StartParts, log: CommitLog) -> Evidence:
    log.refresh()
    start, end = log.bounds()
    log_path = parts.paths.commit_log
    names = disk.list_names(log_path) if disk.is_directory(log_path) else []
    log_file_count = sum(name.isdigit() for name in names)
    mark = parts.checkpoint.mark
    if mark is not None and mark.closed and mark.saved_ends and not parts.aborted:
        parts.queues.use_saved_ends()
    else:
        parts.queues.distrust_saved_ends()
    return Evidence(
        path=parts.path,
        log_path=log_path,
        abort_file=parts.aborted,
        mark=mark,
        times=parts.checkpoint.values,
        log_file_count=log_file_count,
        log_start=start,
        log_end=end,
        queue_files=parts.queues.survey(),
        topic_without_log=None if log_file_count else _topic_with_files(parts.paths.part(CONSUME_QUEUE)),
        index_file_count=None if parts.index is None else parts.index.count_files(),
    )


def _topic_with_files(path: str) -> str | None:
    for topic in disk.list_names(path) if disk.is_directory(path) else []:
        directory = os.path.join(path, topic)
        queues = disk.list_names(directory) if disk.is_directory(directory) else []
        if any(disk.list_names(os.path.join(directory, queue)) for queue in queues):
            return topic
    return None


def _further_looks(evidence: Evidence, parts: StartParts, log: CommitLog) -> Iterator[Callable[[Evidence], Evidence]]:
    """The evidence that costs more to look at, as far as it matters for this store, in the order of the rows."""
    index, mark = parts.index, evidence.mark
    if index is not None and mark is None and evidence.holds_log:
        aborted = evidence.aborted
        yield lambda seen: replace(seen, index_has_holes=_has_holes(index, log, aborted=aborted))
    if evidence.aborted:
        return
    if mark is not None:
        yield lambda seen: replace(seen, queues_end_at_mark=parts.queues.find_ends() == mark.queue_ends)
    if index is not None:
        yield lambda seen: replace(seen, index_looks_right=index.looks_right())
    if mark is not None:
        yield lambda seen: replace(seen, log_ends_at_mark=_ends_at(log, mark))


def _has_holes(index: IndexWriter, log: CommitLog, *, aborted: bool) -> bool:
    """Whether the index of a store that another program wrote lacks messages with keys that a scan does not add.

    RocketMQ drops an index file that was not flushed when it crashed, most often its only one, and begins the next one
    at the log file where its recovery begins. Where it begins none, or keeps no index, messages are missing after the
    last file. After a crash, the scan begins where the index was flushed.
    """
    for last, first in index.borders():
        start, stop = max(last, log.bases[0]), first
        if first == MAX_LONG:
            if aborted:
                break
            # To the end of the next log file, or to where the scan begins.
            further = [base for base in log.bases if base > last >= 0]
            stop = min([log.bases[-CLEAN_FILES:][0], *further[1:2]])
        if last < 0:
            start = _one_file_before(log, stop)
        # The first message of a file may have keys in the file before it too.
        for scan in LogWalk(log, start, stop, check_crc=False):
            places = scan.positions[index_entries(scan).rows] + scan.physical_offset
            if (places > last).any():
                return True
    return False


def _one_file_before(log: CommitLog, offset: int) -> int:
    """The start of the log file before that of a physical offset, or of the log; the rest of the log may be long."""
    return next(iter([base for base in log.bases if base <= offset][-2:]), offset)


def _ends_at(log: CommitLog, mark: CheckpointMark) -> bool:
    """Whether the log ends where the mark says: its last record is there and good, and nothing follows it."""
    start, end = log.bounds()
    if start == end:
        return mark.end_offset == 0
    if not start <= mark.end_offset <= end:
        return False
    if mark.last_record < start:  # no message yet, or all have expired
        return mark.end_offset == start and _nothing_from(log, mark.end_offset)
    file = log.find(mark.last_record)
    if file is None:
        return False
    at = mark.last_record - file.base
    size = int.from_bytes(file.read(at, 4), "big", signed=True)
    record = decode_record(file.read(at, max(min(size, file.capacity - at), 0)), physical_offset=mark.last_record)
    if not isinstance(record, Record):
        return False
    record_end = mark.last_record + record.total_size
    # A filler may follow the last record, when the next file could not be created.
    ends_file = mark.end_offset == file.base + file.capacity and mark.end_offset >= record_end
    return (mark.end_offset == record_end or ends_file) and _nothing_from(log, mark.end_offset)


def _nothing_from(log: CommitLog, offset: int) -> bool:
    """Whether no record starts at an offset, nor at the start of any file after it."""
    return all(_nothing_at(log, at) for at in (offset, *(base for base in log.bases if base > offset)))


def _nothing_at(log: CommitLog, offset: int) -> bool:
    file = log.find(offset)
    if file is None:
        return True
    head = file.read(offset - file.base, RECORD_PREFIX_SIZE)
    return len(head) < RECORD_PREFIX_SIZE or isinstance(decode_record(head), Unwritten)
