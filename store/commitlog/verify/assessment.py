"""Assessment of a store: what is wrong with it, what is lost, what opening would do, and what to do next.

Every command shows this one. The quick assessment looks at names, sizes, the ends of queues, marks and JSON files; the
deep one is a verification, which reads everything. Neither changes anything. Decision 0027 has the reasons.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from commitlog.batch.ledger import saved_batches
from commitlog.config import MessageStoreConfig
from commitlog.errors import CommitLogError
from commitlog.files import disk
from commitlog.files.numbered_files import NumberedFiles
from commitlog.format.checkpoint import Checkpoint, CheckpointMark
from commitlog.format.record import MAGIC_V1, MAGIC_V2
from commitlog.log.store_directory import check_store_directory
from commitlog.paths import ABORT, COMMIT_LOG, INDEX
from commitlog.queue.deleted_topics import DeletedTopics
from commitlog.recovery.kept import is_kept_piece, read_kept_piece
from commitlog.verify.access import check_readable
from commitlog.verify.config_files import check_config_files
from commitlog.verify.findings import Finding, Findings
from commitlog.verify.index_file import check_index_headers
from commitlog.verify.log_files import (
    LogFile,
    check_log_end,
    check_log_files,
    check_log_heads,
    list_log_files,
    usual_size,
)
from commitlog.verify.next_steps import is_of_the_log, next_steps
from commitlog.verify.opening import Opening, kept_piece, look_at_opening, report_fault
from commitlog.verify.queue_ends import (
    Absent,
    QueueEnd,
    absent_stretches,
    find_queue_ends,
    lost_offsets,
    unwritten_from,
)
from commitlog.verify.queue_files import check_unit_files
from commitlog.verify.store import Progress, VerificationReport, read_claims, verification_report
from commitlog.verify.topics import TopicCount

__all__ = ["Assessment", "Verdict", "assess_store", "assessment_of"]

_HEAD = 8


class Verdict(str, Enum):
    """The verdict on a store, from best to worst."""

    OK = "OK"
    """Nothing wrong is known."""
    WARNING = "WARNING"
    """Something is wrong, and no message is known to be lost."""
    DAMAGED = "DAMAGED"
    """Messages are lost or unreadable, or the log is damaged."""
    DOES_NOT_OPEN = "DOES NOT OPEN"
    """``MessageStore.open`` refuses the store."""


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """What was found of a store. Places in the log are physical offsets, sizes are bytes.

    ``deep``: everything was read; ``verification`` has the numbers of it. ``topics`` are all topics then, else those
    with lost messages, whose ``found`` is not counted. ``log_end`` is where the last file ends, of a deep one where the
    records end. ``mark`` is this package's mark in the checkpoint: None after a broker. ``batches`` is the number of
    applications in the ledger, None if it cannot be read. ``next_steps`` are commands for a shell.
    """

    path: str
    verdict: Verdict
    deep: bool
    aborted: bool
    log_files: int
    log_start: int
    log_end: int
    queues: int
    index_files: int
    checkpoint: Checkpoint
    mark: CheckpointMark | None
    batches: int | None
    opening: Opening
    topics: list[TopicCount]
    findings: list[Finding]
    next_steps: list[str]
    seconds: float
    verification: VerificationReport | None = None

    @property
    def lost(self) -> int:
        """The number of messages known to be lost, unreadable ones among them."""
        return sum(topic.lost for topic in self.topics)

    @property
    def unreadable(self) -> int:
        """The number of lost messages whose records are there and cannot be read."""
        return sum(topic.unreadable for topic in self.topics)

    @property
    def found(self) -> int | None:
        """The number of messages found; None for a quick assessment."""
        return sum(topic.found for topic in self.topics) if self.deep else None

    @property
    def errors(self) -> int:
        """The number of findings that are errors."""
        return sum(finding.severity == "error" for finding in self.findings)


def assess_store(
    path: str | os.PathLike[str],
    *,
    deep: bool = False,
    config: MessageStoreConfig | None = None,
    progress: Progress | None = None,
) -> Assessment:
    """Assess the store at ``path``, and change nothing; also beside its owner, and on a read-only mount.

    Quick by default: no records are read, so a damaged record is not found, and what is lost by missing files is.
    ``deep`` reads everything, as ``verify_store``; ``progress`` and ``config`` are as there.
    ``StoreNotFound``, ``NotAStore``, ``StoreAccessDenied``, ``UnsupportedStore``.

    ::

        from commitlog import assess_store

        found = assess_store("/data/store")
        print(found.verdict.value, found.lost, "messages lost;", found.opening.reason)
    """
    if deep:
        return assessment_of(verification_report(path, config=config, progress=progress))
    return _Look(disk.absolute_path(path)).assess(config)


def assessment_of(report: VerificationReport) -> Assessment:
    """The deep assessment that a verification gives."""
    path = report.path
    checkpoint, mark = read_claims(path, Findings())
    return _assessment(
        path=path,
        deep=True,
        aborted=report.aborted,
        log_files=report.log_files,
        log_start=report.log_start,
        log_end=report.log_start + report.bytes,
        queues=report.queues,
        index_files=report.index_files,
        checkpoint=checkpoint,
        mark=mark,
        opening=report.opening,
        topics=report.topics,
        findings=report.findings,
        seconds=report.seconds,
        verification=report,
    )


def _assessment(
    *, path: str, deep: bool, opening: Opening, topics: list[TopicCount], findings: list[Finding], **others: object
) -> Assessment:
    verdict = _verdict(path, topics, findings)
    steps = next_steps(path, opening, findings, lost=any(topic.lost for topic in topics), deep=deep)
    return Assessment(
        path=path,
        verdict=verdict,
        deep=deep,
        batches=_batches(path),
        opening=opening,
        topics=topics,
        findings=findings,
        next_steps=steps,
        **others,  # type: ignore[arg-type]
    )


def _batches(path: str) -> int | None:
    """The number of applications in the ledger's file."""
    try:
        return len(saved_batches(path))
    except CommitLogError:
        return None


def _verdict(path: str, topics: Sequence[TopicCount], findings: Sequence[Finding]) -> Verdict:
    errors = [one for one in findings if one.severity == "error"]
    if any(one.check == "opening.refused" for one in errors):
        return Verdict.DOES_NOT_OPEN
    if any(is_of_the_log(path, one) for one in errors) or any(topic.lost for topic in topics):
        return Verdict.DAMAGED
    return Verdict.WARNING if errors else Verdict.OK


class _Look:
    """One quick look at a store."""

    def __init__(self, path: str) -> None:
        check_store_directory(path)
        self._started = time.perf_counter()
        self._path = path
        self._log_path = os.path.join(path, COMMIT_LOG)
        self._findings = Findings()
        self._topics: dict[str, TopicCount] = {}

    def assess(self, config: MessageStoreConfig | None) -> Assessment:
        path, findings = self._path, self._findings
        aborted = disk.exists(os.path.join(path, ABORT))
        checkpoint, mark = Checkpoint(0, 0, 0), None
        kept = is_kept_piece(path)
        if not kept:
            checkpoint, mark = read_claims(path, findings)
        # The queues first: all that they name was in the log before.
        queues, denied = find_queue_ends(path)
        listed = NumberedFiles(self._log_path)
        listed.refresh()
        files = list_log_files(listed)
        check_log_files(self._log_path, files, findings, aborted=aborted)
        unit_files = [file.path for queue in queues for file in queue.files]
        names = [file.path for file in files]
        unreadable = [*check_readable(names, findings), *check_readable(denied, findings)]
        misnamed = check_log_heads(files, findings)
        for queue in queues:
            check_unit_files(queue.topic, queue.queue_id, queue.files, findings, aborted=aborted)
        index_files = check_index_headers(os.path.join(path, INDEX), findings, aborted=aborted)
        check_config_files(path, findings)
        if kept:
            piece = read_kept_piece(path)
            opening, log_start = kept_piece(piece), piece.start
        else:
            opening = look_at_opening(path, config, findings, [*names, *unit_files], scan=False)
            log_start = files[0].base if files else 0
            absent = absent_stretches(files, denied=unreadable, misnamed=misnamed)
            self._look_at_range(files, queues, absent, aborted=aborted, in_use=opening.kind == "inUse")
            if not self._is_empty(files):
                report_fault(path, opening, findings)
        return _assessment(
            path=path,
            deep=False,
            aborted=aborted,
            log_files=len(files),
            log_start=log_start,
            log_end=files[-1].base + files[-1].size if files else 0,
            queues=len(queues),
            index_files=index_files,
            checkpoint=checkpoint,
            mark=mark,
            opening=opening,
            topics=[count for _, count in sorted(self._topics.items())],
            findings=findings.all(),
            seconds=time.perf_counter() - self._started,
        )

    def _is_empty(self, files: Sequence[LogFile]) -> bool:
        """Whether no record was ever written to the log: then no queues need exist."""
        return not any(self._head(files[0], 0)) if len(files) == 1 else not files

    def _head(self, file: LogFile, position: int) -> bytes:
        """The first bytes of the record at a position of a log file; none if it cannot be read."""
        try:
            descriptor = disk.open_file(file.path)
        except (OSError, CommitLogError):
            return b""
        try:
            return disk.read_at(descriptor, _HEAD, position)
        finally:
            disk.close(descriptor)

    def _look_at_range(
        self, files: list[LogFile], queues: list[QueueEnd], absent: list[Absent], *, aborted: bool, in_use: bool
    ) -> None:
        """Compare the queues' units with the range of the log."""
        log_start = files[0].base if files else 0
        deleted = self._deleted()
        newest = max((queue for queue in queues if queue.size > 0), key=lambda one: one.place, default=None)
        if newest is not None and not in_use:
            check_log_end(
                self._log_path, files, newest.place + newest.size, newest.place, self._findings, aborted=aborted
            )
        for queue in queues:
            begins_at = (
                log_start if deleted is None else max(log_start, deleted.units_from(queue.topic, queue.queue_id))
            )
            for start, stop, is_denied in lost_offsets(queue, absent, begins_at):
                self._lose(queue, start, stop, is_denied=is_denied)
        within = [queue for queue in queues if queue.size > 0 and not _is_absent(absent, queue)]
        last = max(within, key=lambda one: one.place, default=None)
        if last is not None and not self._is_written(files, last.place, last.size):
            self._look_at_ends(files, absent, within, last, log_start, aborted=aborted)

    def _look_at_ends(
        self,
        files: list[LogFile],
        absent: list[Absent],
        queues: list[QueueEnd],
        last: QueueEnd,
        log_start: int,
        *,
        aborted: bool,
    ) -> None:
        """The newest message is not in the log: it is older than its queues, or that record is damaged."""
        file = next(file for file in reversed(files) if file.base <= last.place)
        message = (
            f"The record of the newest message, at physical offset {last.place}, is not there: the log is older than "
            f"its queues, or damaged (topic {last.topic!r}, queue {last.queue_id}, offset {last.end - 1})."
        )
        self._findings.add(
            Finding(
                check="log.newest",
                severity="note" if aborted else "error",
                path=file.path,
                offset=last.place - file.base,
                message=message,
                topic=last.topic,
                queue_id=last.queue_id,
                queue_offset=last.end - 1,
            )
        )

        def is_written(place: int, size: int) -> bool:
            outside = place < log_start or any(one.start <= place < one.stop for one in absent)
            return outside or self._is_written(files, place, size)

        for queue in queues:
            if not queue.is_light and queue.place >= log_start and not is_written(queue.place, queue.size):
                self._lose(queue, unwritten_from(queue, is_written), queue.end, is_denied=False)

    def _is_written(self, files: Sequence[LogFile], place: int, size: int) -> bool:
        """Whether the head of a message's record is where its unit leads."""
        usual = usual_size([file.size for file in files])
        number = (place - files[0].base) // usual if usual else 0
        file = files[min(number, len(files) - 1)]
        if not file.base <= place < file.base + file.size:
            file = next((one for one in reversed(files) if one.base <= place), files[0])
        if place < file.base:
            return True  # it has expired
        head = self._head(file, place - file.base)
        return int.from_bytes(head[:4], "big") == size and int.from_bytes(head[4:], "big") in (MAGIC_V1, MAGIC_V2)

    def _deleted(self) -> DeletedTopics | None:
        found = DeletedTopics(self._path)
        try:
            iter(found)
        except CommitLogError:
            return None
        return found

    def _lose(self, queue: QueueEnd, start: int, stop: int, *, is_denied: bool) -> None:
        count = self._topics.setdefault(queue.topic, TopicCount(topic=queue.topic))
        count.lose(queue.queue_id, start, stop)
        if is_denied:
            count.cannot_read(queue.queue_id, start, stop)


def _is_absent(absent: Sequence[Absent], queue: QueueEnd) -> bool:
    return any(one.start < queue.place + queue.size and queue.place < one.stop for one in absent)
