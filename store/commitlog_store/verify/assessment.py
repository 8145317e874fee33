"""Assessment of a store: what is wrong with it, what is lost, what opening would do, and what to do next.

Every command shows this one. The quick assessment looks at names, sizes, the ends of queues, marks and JSON files; the
deep one is a verification, which reads everything. Neither changes anything. Decision 0027 has the reasons.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from commitlog_store.batch.ledger import saved_batches
from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import CommitLogError
from commitlog_store.files import disk
from commitlog_store.files.numbered_files import NumberedFiles
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.checkpoint import Checkpoint, CheckpointMark
from commitlog_store.format.record import MIN_RECORD_SIZE, Corrupt, Decoded, Record, Torn, decode_record
from commitlog_store.paths import ABORT, INDEX
from commitlog_store.queue.deleted_topics import DeletedTopics
from commitlog_store.recovery.kept import LostMessages, is_kept_piece, read_kept_piece
from commitlog_store.recovery.log_end import Progress as ScanProgress
from commitlog_store.verify.access import check_readable, read_part
from commitlog_store.verify.config_files import check_config_files
from commitlog_store.verify.findings import NOWHERE, Finding, Findings
from commitlog_store.verify.index_file import check_index_headers
from commitlog_store.verify.log_files import (
    LogFile,
    check_log_end,
    check_log_files,
    check_log_heads,
    list_log_files,
)
from commitlog_store.verify.next_steps import is_of_the_log, next_steps
from commitlog_store.verify.opening import Opening, kept_piece, look_at_opening, report_fault
from commitlog_store.verify.queue_ends import (
    Absent,
    QueueEnd,
    absent_stretches,
    find_queue_ends,
    lost_offsets,
    unwritten_from,
)
from commitlog_store.verify.queue_files import MAX_SIZE, check_unit_files
from commitlog_store.verify.store import (
    Progress,
    VerificationReport,
    paths_to_assess,
    read_claims,
    verification_report,
)
from commitlog_store.verify.topics import TopicCount

__all__ = ["Assessment", "Verdict", "assess_opening", "assess_store", "assessment_of"]


class Verdict(str, Enum):
    """The verdict on a store, from best to worst.

    ::

        if assess_store("/data/store").verdict is not Verdict.OK:
            print("run: commitlog doctor /data/store")
    """

    OK = "OK"
    """Nothing wrong is known."""
    WARNING = "WARNING"
    """Something is wrong, and no message is known to be lost."""
    DAMAGED = "DAMAGED"
    """Messages are lost or unreadable, or the log is damaged."""
    DOES_NOT_OPEN = "DOES NOT OPEN"
    """``MessageStore.open`` refuses the store, as damaged or for want of a permission.

    A store of a kind that this package does not write (``UnsupportedStore``) is refused too, and nothing is wrong with
    it: its verdict is that of its files, and ``opening.kind`` is ``refused``.
    """


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """What was found of a store. Places in the log are physical offsets, sizes are bytes.

    ``deep``: everything was read; ``verification`` has the numbers of it. ``topics`` are all topics then, else those
    with lost messages, whose ``found`` is not counted. ``log_end`` is where the last file ends, of a deep one where the
    records end. ``mark`` is this package's mark in the checkpoint: None after a broker. ``batches`` is the number of
    applications in the ledger, None if it cannot be read. ``next_steps`` are commands for a shell. ``paths`` says
    where the log lies.

    ::

        found = assess_store("/data/store", deep=True)
        for topic in found.topics:
            print(topic.topic, topic.found, topic.lost, topic.unreadable, topic.lost_offsets)
    """

    paths: StorePaths
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
    def path(self) -> str:
        """The store's directory."""
        return self.paths.root

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
    The log is where ``config`` says (``store_path_commit_log``).
    ``StoreNotFound``, ``NotAStore``, ``StoreAccessDenied``, ``UnsupportedStore``.

    ::

        from commitlog_store import assess_store

        found = assess_store("/data/store")
        print(found.verdict.value, found.lost, "messages lost;", found.opening.reason)
    """
    if deep:
        return assessment_of(verification_report(path, config=config, progress=progress))
    return _Look(paths_to_assess(path, config)).assess(config)


def assess_opening(
    path: str | os.PathLike[str], config: MessageStoreConfig | None = None, progress: ScanProgress | None = None
) -> Assessment:
    """The quick assessment, with the scan that opening the store would do, and what that cuts off."""
    return _Look(paths_to_assess(path, config)).assess(config, scan=True, progress=progress)


def assessment_of(report: VerificationReport) -> Assessment:
    """The deep assessment that a verification gives."""
    checkpoint, mark = read_claims(report.path, Findings())
    paths, topics, findings = report.paths, report.topics, report.findings
    return Assessment(
        paths=paths,
        verdict=_verdict(paths, topics, findings),
        deep=True,
        aborted=report.aborted,
        log_files=report.log_files,
        log_start=report.log_start,
        log_end=report.log_start + report.bytes,
        queues=report.queues,
        index_files=report.index_files,
        checkpoint=checkpoint,
        mark=mark,
        batches=_batches(paths.root),
        opening=report.opening,
        topics=topics,
        findings=findings,
        next_steps=next_steps(paths, report.opening, findings, lost=_any_lost(topics), deep=True),
        seconds=report.seconds,
        verification=report,
    )


def _batches(path: str) -> int | None:
    """The number of applications in the ledger's file."""
    try:
        return len(saved_batches(path))
    except CommitLogError:
        return None


def _verdict(paths: StorePaths, topics: Sequence[TopicCount], findings: Sequence[Finding]) -> Verdict:
    errors = [one for one in findings if one.severity == "error"]
    if any(one.check == "opening.refused" for one in errors):
        return Verdict.DOES_NOT_OPEN
    if any(is_of_the_log(paths, one) for one in errors) or _any_lost(topics):
        return Verdict.DAMAGED
    return Verdict.WARNING if errors else Verdict.OK


def _any_lost(topics: Sequence[TopicCount]) -> bool:
    return any(topic.lost for topic in topics)


class _Look:
    """One quick look at a store."""

    def __init__(self, paths: StorePaths) -> None:
        self._started = time.perf_counter()
        self._paths = paths
        self._path = paths.root
        self._log_path = paths.commit_log
        self._findings = Findings()
        # Lost offsets by queue, and whether their records may only not be read; and what opening would cut off.
        self._lost: dict[tuple[str, int], list[tuple[int, int, bool]]] = {}
        self._cut: list[LostMessages] = []

    def assess(
        self, config: MessageStoreConfig | None, *, scan: bool = False, progress: ScanProgress | None = None
    ) -> Assessment:
        path, findings = self._path, self._findings
        aborted = disk.exists(os.path.join(path, ABORT))
        checkpoint, mark = Checkpoint(0, 0, 0), None
        if not (kept := is_kept_piece(path)):
            checkpoint, mark = read_claims(path, findings)
        # The queues first: all that they name was in the log before.
        queues, denied = find_queue_ends(path, findings)
        listed = NumberedFiles(self._log_path)
        listed.refresh()
        files = list_log_files(listed)
        check_log_files(self._log_path, files, findings, aborted=aborted)
        unit_files = [file.path for queue in queues for file in queue.files]
        names = [file.path for file in files]
        unreadable = [*check_readable(names, findings), *check_readable(denied, findings)]
        newest = max((queue.physical_offset for queue in queues), default=-1)
        unfinished_from = 0 if kept else newest if aborted else None
        misnamed = check_log_heads(files, findings, unfinished_from=unfinished_from)
        unreadable += [name for name in names if findings.has_error("access.read", name)]
        for queue in queues:
            check_unit_files(queue.topic, queue.queue_id, queue.files, findings, aborted=aborted)
        index_files = check_index_headers(os.path.join(path, INDEX), findings, aborted=aborted)
        check_config_files(path, findings)
        if kept:
            piece = read_kept_piece(path)
            opening, log_start = kept_piece(piece), piece.start
        else:
            written = [*names, *unit_files]
            opening = look_at_opening(self._paths, config, findings, written, scan=scan, progress=progress)
            log_start = files[0].base if files else 0
            absent = absent_stretches(files, denied=unreadable, misnamed=misnamed)
            cut = None if opening.forecast is None else opening.forecast.cut
            if cut is not None and not cut.uncommitted:
                absent.append(Absent(cut.start, NOWHERE, denied=False))
                self._cut = cut.lost
            self._look_at_range(files, queues, absent, aborted=aborted, in_use=opening.kind == "inUse")
            if not self._is_empty(files):
                report_fault(self._paths, opening, mark, findings)
        topics, found = self._topics(), findings.all()
        return Assessment(
            paths=self._paths,
            verdict=_verdict(self._paths, topics, found),
            deep=False,
            aborted=aborted,
            log_files=len(files),
            log_start=log_start,
            log_end=files[-1].base + files[-1].size if files else 0,
            queues=len(queues),
            index_files=index_files,
            checkpoint=checkpoint,
            mark=mark,
            batches=_batches(path),
            opening=opening,
            topics=topics,
            findings=found,
            next_steps=next_steps(self._paths, opening, found, lost=_any_lost(topics), deep=False),
            seconds=time.perf_counter() - self._started,
        )

    def _is_empty(self, files: Sequence[LogFile]) -> bool:
        """Whether no record was ever written to the log: then no queues need exist."""
        return not any(self._read(files[0], 0, MIN_RECORD_SIZE)) if len(files) == 1 else not files

    def _read(self, file: LogFile, position: int, size: int) -> bytes:
        """Bytes of a log file; none if it cannot be read."""
        return read_part(file.path, max(min(size, file.size - position), 0), position, self._findings)

    def _look_at_range(
        self, files: list[LogFile], queues: list[QueueEnd], absent: list[Absent], *, aborted: bool, in_use: bool
    ) -> None:
        """Compare the queues' units with the range of the log."""
        log_start = files[0].base if files else 0
        deleted = self._deleted()
        lost = {
            place: lost_offsets(queue, absent, self._begins_at(queue, log_start, deleted))
            for place, queue in enumerate(queues)
        }
        end = files[-1].base + files[-1].size if files else 0
        after = [
            place for place, queue in enumerate(queues) if queue.physical_offset + queue.size > end and lost[place]
        ]
        count = sum(lost[place][-1][1] - lost[place][-1][0] for place in after)
        newest = max((queues[place] for place in after), key=lambda one: one.physical_offset, default=None)
        if newest is not None and not in_use:
            reach = newest.physical_offset + newest.size
            check_log_end(self._log_path, files, reach, newest.physical_offset, count, self._findings, aborted=aborted)
        if count == 1 and files:
            lost[
                after[0]
            ].pop()  # one alone may be a damaged unit: only reading the log says whether its message is lost
        for place, queue in enumerate(queues):
            for start, stop, is_denied in lost[place]:
                self._lose(queue, start, stop, is_denied=is_denied)
        inside = (queue for queue in queues if 0 < queue.size <= MAX_SIZE and queue.physical_offset >= log_start)
        within = [queue for queue in inside if not _is_absent(absent, queue)]
        last = max(within, key=lambda one: one.physical_offset, default=None)
        if last is not None and not self._is_written(files, last.physical_offset, last.size):
            self._look_at_ends(files, absent, within, last, log_start, aborted=aborted)

    def _begins_at(self, queue: QueueEnd, log_start: int, deleted: DeletedTopics | None) -> int:
        """The physical offset before which a queue's messages have expired, or were deleted with their topic."""
        units_from = 0 if deleted is None else deleted.units_from(queue.topic, queue.queue_id)
        return max(log_start, units_from)

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
        file = _file_at(files, last.physical_offset)
        message = (
            f"The record of the newest message, at physical offset {last.physical_offset}, is not there: the log is "
            f"older than its queues, or damaged (topic {last.topic!r}, queue {last.queue_id}, offset {last.end - 1})."
        )
        self._findings.add(
            Finding(
                check="log.newest",
                severity="note" if aborted else "error",
                path=file.path,
                offset=last.physical_offset - file.base,
                message=message,
                topic=last.topic,
                queue_id=last.queue_id,
                queue_offset=last.end - 1,
            )
        )

        def is_written(physical_offset: int, size: int) -> bool:
            absent_there = any(one.start <= physical_offset < one.stop for one in absent)
            return physical_offset < log_start or absent_there or self._is_written(files, physical_offset, size)

        for queue in queues:
            if (
                not queue.is_light
                and queue.physical_offset >= log_start
                and not is_written(queue.physical_offset, queue.size)
            ):
                first = unwritten_from(queue, is_written)
                (unit,) = queue.units.read(first, first + 1)
                is_there = not aborted and self._has_bad_body(files, int(unit["physical_offset"]))
                self._lose(queue, first, first + is_there, is_denied=True)
                self._lose(queue, first + is_there, queue.end, is_denied=False)

    def _is_written(self, files: Sequence[LogFile], physical_offset: int, size: int) -> bool:
        """Whether a message's record is where its unit leads, or has expired; also where the disk fails to say."""
        found = self._record(files, physical_offset, size)
        if self._findings.has_error("access.read", _file_at(files, physical_offset).path):
            return True
        return physical_offset < files[0].base or (isinstance(found, Record) and found.total_size == size)

    def _has_bad_body(self, files: Sequence[LogFile], physical_offset: int) -> bool:
        """Whether a record is there, and its body does not match its CRC."""
        found = self._record(files, physical_offset, MIN_RECORD_SIZE)
        if isinstance(found, Torn):
            found = self._record(files, physical_offset, found.needed)
        return isinstance(found, Corrupt) and found.field == "BODYCRC"

    def _record(self, files: Sequence[LogFile], physical_offset: int, size: int) -> Decoded:
        """What the log holds at a physical offset, in so many bytes."""
        file = _file_at(files, physical_offset)
        return decode_record(self._read(file, physical_offset - file.base, size), physical_offset=physical_offset)

    def _deleted(self) -> DeletedTopics | None:
        found = DeletedTopics(self._path)
        try:
            iter(found)
        except CommitLogError:
            return None
        return found

    def _lose(self, queue: QueueEnd, start: int, stop: int, *, is_denied: bool) -> None:
        if start < stop:
            self._lost.setdefault((queue.topic, queue.queue_id), []).append((start, stop, is_denied))

    def _topics(self) -> list[TopicCount]:
        """The topics that have lost messages, each offset counted once."""
        for one in self._cut:
            if one.start < one.stop:
                self._lost.setdefault((one.topic, one.queue_id), []).append((one.start, one.stop, False))
        topics: dict[str, TopicCount] = {}
        for (topic, queue_id), found in sorted(self._lost.items()):
            count = topics.setdefault(topic, TopicCount(topic=topic))
            at = -1
            for start, stop, is_denied in _merged(found):
                count.lose(queue_id, max(start, at), stop)
                if is_denied:
                    count.cannot_read(queue_id, max(start, at), stop)
                at = stop
        for one in self._cut:
            if one.start == one.stop:  # prepared or rolled back: without a place in a queue
                topics.setdefault(one.topic, TopicCount(topic=one.topic)).lost += one.messages
        return [topics[topic] for topic in sorted(topics)]


def _merged(found: list[tuple[int, int, bool]]) -> Iterator[tuple[int, int, bool]]:
    """Ranges in order, those of one kind that touch or overlap as one; none within another one."""
    current: tuple[int, int, bool] | None = None
    for one in sorted(found):
        if current is None:
            current = one
        elif one[0] <= current[1] and (one[2] == current[2] or one[1] <= current[1]):
            current = (current[0], max(current[1], one[1]), current[2])
        else:
            yield current
            current = one
    if current is not None:
        yield current


def _file_at(files: Sequence[LogFile], physical_offset: int) -> LogFile:
    """The file that holds a byte of the log; the first one for bytes before it."""
    return next((one for one in reversed(files) if one.base <= physical_offset), files[0])


def _is_absent(absent: Sequence[Absent], queue: QueueEnd) -> bool:
    return any(one.start < queue.physical_offset + queue.size and queue.physical_offset < one.stop for one in absent)
