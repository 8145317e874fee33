"""``verify_store``: checks every invariant of a store that its files can show, without changing anything.

The log is scanned once, with CRCs; from its records queues and index are built again in memory, a block at a time, and
compared with the files. No lock is taken. Beside an owner at work, the store is checked up to its end at the start.
docs/invariants.md has the invariants: this looks at 1, 4, 5, 6, 7, 9 and 11.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from importlib import import_module

from commitlog_store.columnar.dispatch import dispatch_requests, inner_batch_topics
from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import (
    CorruptConfig,
    Damaged,
    InvalidValue,
    LogNotFound,
    NotAStore,
    ReadFailed,
    StoreAccessDenied,
)
from commitlog_store.files import disk
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.checkpoint import (
    CHECKPOINT_SIZE,
    TRUST_MARGIN_MS,
    Checkpoint,
    CheckpointMark,
    decode_checkpoint,
    decode_mark,
)
from commitlog_store.log.store_directory import check_log_directory, check_store_directory
from commitlog_store.paths import ABORT, CHECKPOINT, INDEX, REMOTE_SCHEMES
from commitlog_store.progress import Progress
from commitlog_store.queue.deleted_topics import DeletedTopics
from commitlog_store.recovery.broker_deletions import BrokerDeletions
from commitlog_store.recovery.forecast import Forecast, opening_traces
from commitlog_store.recovery.kept import is_kept_piece, read_kept_piece
from commitlog_store.recovery.log_on_disk import LogOnDisk
from commitlog_store.verify.access import check_owners_files, check_readable
from commitlog_store.verify.batches import BatchCheck
from commitlog_store.verify.config_files import check_config_files
from commitlog_store.verify.findings import Finding, Findings, Severity
from commitlog_store.verify.index import IndexCheck
from commitlog_store.verify.log import LogCheck
from commitlog_store.verify.log_files import check_log_end
from commitlog_store.verify.opening import Opening, kept_piece, look_at_opening, report_fault
from commitlog_store.verify.queue_ends import find_queue_ends, note_removed_head
from commitlog_store.verify.queues import QueueCheck
from commitlog_store.verify.topics import TopicCount, TopicSummary

# So often the log's files are listed when retention removes one of them during each time.
_LISTINGS = 10
# How often to look at a store that is opened or closed during each look.
_LOOKS = 3
_FIELDS = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")


@dataclass(frozen=True, kw_only=True)
class VerificationReport:
    """Report of a verification: findings, numbers of records, bytes, queues and index files, and the time it took.

    ``aborted``: the ``abort`` file existed, so an owner was at work or had stopped without closing the store.
    ``opening`` is what opening the store would do. ``log_files`` is the number of the log's files, ``log_start`` the
    physical offset at which the first one begins. ``topics`` counts the messages that
    were found, and those that are lost or that opening would cut off. ``paths`` says where the log lies.
    """

    paths: StorePaths
    aborted: bool
    records: int
    bytes: int
    queues: int
    index_files: int
    seconds: float
    findings: list[Finding]
    topics: list[TopicCount]
    opening: Opening
    log_files: int
    log_start: int

    @property
    def path(self) -> str:
        """The store's directory."""
        return self.paths.root

    @property
    def forecast(self) -> Forecast | None:
        """What opening would do, exactly; None beside an owner at work."""
        return self.opening.forecast

    @property
    def errors(self) -> int:
        """The number of findings that are errors."""
        return sum(finding.severity == "error" for finding in self.findings)


def verify_store(
    path: str | os.PathLike[str], *, config: MessageStoreConfig | None = None, progress: Progress | None = None
) -> list[Finding]:
    """The deviations of the store at ``path`` from its invariants; an empty list when all is well.

    Reads every byte of the log and every unit and index entry; memory stays bounded. It is an error, too, when the
    store would not open, or when opening it with ``config`` would cut whole records off its log. ``StoreNotFound``,
    ``NotAStore``, ``StoreAccessDenied``, ``UnsupportedStore``. The log is where ``config`` says. ``path`` may be the
    address of a ``commitlog serve``, without a ``config``.

    ``progress`` is called with the bytes of the log that were verified, and the largest possible number of them.

    ::

        for finding in verify_store("/data/store"):
            print(finding.severity, finding.check, finding.path, finding.message)
    """
    if isinstance(path, str) and path.startswith(REMOTE_SCHEMES):
        assess_store = import_module("commitlog_store.verify.assessment").assess_store
        served: list[Finding] = assess_store(path, deep=True, config=config, progress=progress).findings
        return served
    return verification_report(path, config=config, progress=progress).findings


def verification_report(
    path: str | os.PathLike[str],
    *,
    config: MessageStoreConfig | None = None,
    progress: Progress | None = None,
    findings: Findings | None = None,
) -> VerificationReport:
    """``verify_store``, with numbers of what was verified. ``findings``, an empty list, fills while it runs.

    An owner that opens or closes the store during the look changes what the look has read already. So a look that
    finds something wrong then is repeated, a few times at most; ``progress`` begins again.
    """
    started = time.perf_counter()
    paths = paths_to_assess(path, config)
    findings = Findings() if findings is None else findings
    for _ in range(_LOOKS - 1):
        traces = opening_traces(paths.root)
        report = _look(paths, config, progress, findings, started)
        is_wrong = report.errors or any(topic.lost for topic in report.topics)
        if not is_wrong or opening_traces(paths.root) == traces:
            return report
        findings.clear()
    return _look(paths, config, progress, findings, started)


def _look(
    paths: StorePaths,
    config: MessageStoreConfig | None,
    progress: Progress | None,
    findings: Findings,
    started: float,
) -> VerificationReport:
    if is_kept_piece(paths.root):
        return _report_on_kept(paths, started, progress, findings)
    with contextlib.ExitStack() as closing:
        checks = _Checks(paths, findings, closing)
        checks.walk(progress)
        report_bytes = checks.log.end - checks.log.min_offset
        checks.check_mark()
        check_config_files(paths.root, findings)
        check_owners_files(paths.root, findings)
        opening = checks.judge_opening(config)
    return VerificationReport(
        paths=paths,
        aborted=checks.aborted,
        records=checks.log.records,
        bytes=report_bytes,
        queues=checks.queues.count,
        index_files=checks.index.count,
        seconds=time.perf_counter() - started,
        findings=findings.all(),
        topics=checks.topics.by_topic(),
        opening=opening,
        log_files=len(checks.log.paths),
        log_start=checks.log.min_offset,
    )


class _Checks:
    """The checks of one verification: of log, index, queues and batches, of the mark, and of the opening."""

    def __init__(self, paths: StorePaths, findings: Findings, closing: contextlib.ExitStack) -> None:
        """``closing`` closes the files of the parts."""
        directory = paths.root
        self.paths, self.findings, self.topics = paths, findings, TopicSummary()
        self.aborted = aborted = disk.exists(os.path.join(directory, ABORT))
        self.checkpoint, self.mark = checkpoint, mark = read_claims(directory, findings)
        index_safe = min(checkpoint.physic_msg_timestamp, checkpoint.index_msg_timestamp) - TRUST_MARGIN_MS
        queue_safe = min(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp) - TRUST_MARGIN_MS
        owned = mark is not None and mark.closed
        # The derived parts first: all they hold was in the log before.
        self.log = log = LogCheck(paths.commit_log, findings, aborted=aborted, checkpoint=checkpoint, mark=mark)
        closing.callback(log.close)
        index_path = os.path.join(directory, INDEX)
        self.index = IndexCheck(
            index_path, log, findings, aborted=aborted, safe_timestamp=index_safe, must_be_whole=owned
        )
        closing.callback(self.index.close)
        deleted, files = _deleted_topics(directory), _files(paths.commit_log, aborted=aborted)
        if files is not None:
            closing.callback(files.close)
        times = None if mark is not None else checkpoint
        deletions = None if deleted is None else _broker_deletions(directory, files, times, aborted=aborted)
        self.queues = QueueCheck(
            directory, log, findings, deleted, deletions, aborted=aborted, safe_timestamp=queue_safe
        )
        self.batches = BatchCheck(log, findings, aborted=aborted)

    def walk(self, progress: Progress | None) -> None:
        """Compare all records of the log with the parts that are derived from it."""
        log = self.log
        log.check_files()
        levels = MessageStoreConfig().delay_levels_ms
        start, total = log.min_offset, log.size
        first = start
        for scan in log.scans():
            if log.min_offset != first:  # retention at work
                first = log.min_offset
                self.topics.expire()
            requests = dispatch_requests(scan, levels)
            self.queues.skip_batch_topics(inner_batch_topics(scan, requests))
            self.queues.compare(requests)
            self.index.compare(scan, requests)
            self.batches.compare(scan, requests)
            self.topics.add(requests)
            if progress is not None:
                progress(log.end - start, total)
        self.queues.finish()
        self.index.finish()
        self.batches.finish()
        if progress is not None:
            progress(total, total)

    def check_mark(self) -> None:
        """The checkpoint may not be ahead of the log (invariant 7), nor count files that are gone since the close."""
        path = os.path.join(self.paths.root, CHECKPOINT)
        log, mark, findings = self.log, self.mark, self.findings
        severity: Severity = "note" if self.aborted else "error"

        def add(check: str, at: int, message: str) -> None:
            findings.add(check, severity, path, message, offset=at)

        if log.records and not log.lost.stretches:
            newest = log.newest_store_timestamp
            for place, name in enumerate(_FIELDS):
                value = getattr(self.checkpoint, name)
                if value > newest:
                    add("checkpoint.ahead", 8 * place, f"{name}: expected at most {newest}, the newest message's store "
                        f"time, found {value}: messages that were flushed are gone from the log's end.")  # fmt: skip
                    break
        if mark is None or not mark.closed or self.aborted:
            return
        expired = log.min_offset > mark.log_start  # and with log files, retention removes those of queues and index
        if expired:
            note_removed_head(log.path, mark, log.min_offset, find_queue_ends(self.paths.root, Findings())[0], findings)
        if mark.end_offset > log.end and not log.lost.stretches:
            add("checkpoint.ahead", 528, f"End of the log: expected at most {log.end}, found {mark.end_offset} as the "
                "place where the store was closed: messages are gone from the log's end.")  # fmt: skip
        reported = any(one.check.startswith("queue.") for one in findings.all())
        if (queue_files := self.queues.count_files()) < mark.queue_file_count and not reported and not expired:
            add("checkpoint.ahead", 568, f"Queue files: {mark.queue_file_count} were there when the store was closed, "
                f"now there are {queue_files}.")  # fmt: skip
        if self.index.count < mark.index_file_count and not expired:
            add("checkpoint.ahead", 572, f"Index files: {mark.index_file_count} were there when the store was closed, "
                f"now there are {self.index.count}.")  # fmt: skip

    def judge_opening(self, config: MessageStoreConfig | None) -> Opening:
        """What opening the store would do, and the findings that follow from it; beside an owner some are withdrawn."""
        log, queues, findings = self.log, self.queues, self.findings
        written = [*log.paths, *queues.file_paths()]
        check_readable(written, findings)
        opening = look_at_opening(self.paths, config, findings, written, scan=True)
        if opening.kind == "inUse":
            findings.withdraw_removed(written)
            return opening
        check_log_end(log.path, log.files, *queues.newest, queues.after_the_log, findings, aborted=self.aborted)
        self._count_lost(opening.forecast)
        if not any(one.severity == "error" for one in findings.all()):
            report_fault(self.paths, opening, self.mark, findings)
        return opening

    def _count_lost(self, forecast: Forecast | None) -> None:
        """Count what the walk did not find: what opening cuts off, units without a message, unreadable messages."""
        # What a crash left of a batch was never committed: its writer writes it again, and nothing is lost.
        cut = None if forecast is None else forecast.cut
        self.topics.cut(cut.lost if cut is not None and not cut.uncommitted else [])
        for lost in self.queues.without_message:
            self.topics.know(*lost)
        for place in self.queues.misplaced:
            self.topics.misplaced(self.log.requests_of(place))
        self.topics.cannot_read(self.log.unreadable)


def paths_to_assess(path: str | os.PathLike[str], config: MessageStoreConfig | None) -> StorePaths:
    """Where the parts of a store lie that is there. ``StoreNotFound``, ``NotAStore``, ``UnsupportedStore``.

    A log whose directory is not there is no error: the assessment reports it.
    """
    directory = disk.absolute_path(path)
    check_store_directory(directory)
    paths = StorePaths.of(directory, None if config is None else config.store_path_commit_log)
    with contextlib.suppress(LogNotFound):
        check_log_directory(paths, exists=True)
    return paths


def _deleted_topics(directory: str) -> DeletedTopics | None:
    """The list of deleted topics; None if it cannot be read, which the forecast of the opening reports."""
    found = DeletedTopics(directory)
    try:
        iter(found)
    except (CorruptConfig, ReadFailed):
        return None
    return found


def _broker_deletions(
    directory: str, files: LogOnDisk | None, times: Checkpoint | None, *, aborted: bool
) -> BrokerDeletions | None:
    """The topics that a broker has deleted; None if they cannot be found."""
    if files is not None:
        with contextlib.suppress(StoreAccessDenied, ReadFailed):  # of a queue, which is reported by itself
            return BrokerDeletions(directory, files, DeletedTopics(directory), times, aborted=aborted)
    return None


def _files(log_path: str, *, aborted: bool) -> LogOnDisk | None:
    """The log's files as the opening would find them; None if they do not fit together, which is reported."""
    for _ in range(_LISTINGS):
        try:
            return LogOnDisk.load(log_path, aborted=aborted)
        except FileNotFoundError:  # retention at work
            continue
        except (Damaged, NotAStore):
            return None
    return None


def _report_on_kept(
    paths: StorePaths, started: float, progress: Progress | None, findings: Findings
) -> VerificationReport:
    """The verification of a kept piece: it has only a log, which begins where it was cut."""
    piece = read_kept_piece(paths.root)
    topics, nothing = TopicSummary(), Checkpoint(0, 0, 0)
    log = LogCheck(paths.commit_log, findings, aborted=False, checkpoint=nothing, mark=None)
    try:
        log.check_files(kept=True)
        log.begin_at(piece.start)
        for scan in log.scans():
            topics.add(dispatch_requests(scan, ()))
            if progress is not None:
                progress(log.end - log.min_offset, log.size)
    finally:
        log.close()
    return VerificationReport(
        paths=paths,
        aborted=False,
        records=log.records,
        bytes=log.end - log.min_offset,
        queues=0,
        index_files=0,
        seconds=time.perf_counter() - started,
        findings=findings.all(),
        topics=topics.by_topic(),
        opening=kept_piece(piece),
        log_files=len(log.paths),
        log_start=log.min_offset,
    )


def read_claims(directory: str, findings: Findings) -> tuple[Checkpoint, CheckpointMark | None]:
    """The claims of the checkpoint; a missing or damaged one claims nothing."""
    path = os.path.join(directory, CHECKPOINT)
    nothing = Checkpoint(0, 0, 0)
    try:
        data = disk.read_file(path, 16 * CHECKPOINT_SIZE)
        return decode_checkpoint(data), decode_mark(data)
    except (StoreAccessDenied, NotAStore) as error:  # or a directory is in its place
        findings.add("access.read", "error", path, str(error))
        return nothing, None
    except FileNotFoundError:
        severity: Severity = "note"
        problem = "The checkpoint file does not exist: the next start scans the whole log"
    except (InvalidValue, OSError) as error:
        severity = "error"
        found = error.strerror if isinstance(error, OSError) else str(error)
        problem = f"Expected {CHECKPOINT_SIZE} bytes of times, found {found}"
    findings.add("checkpoint.format", severity, path, f"{problem}.", offset=0)
    return nothing, None
