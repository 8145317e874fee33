"""Quick look at a store: what names, sizes, the ends of queues, marks and JSON files show. It reads no records."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import CommitLogError
from commitlog_store.files import disk
from commitlog_store.files.copied_file import PAGE_SIZE
from commitlog_store.files.numbered_files import NumberedFiles
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.checkpoint import Checkpoint, CheckpointMark
from commitlog_store.format.record import MIN_RECORD_SIZE, Corrupt, Decoded, Record, Torn, decode_record
from commitlog_store.paths import ABORT, INDEX
from commitlog_store.progress import Progress
from commitlog_store.queue.deleted_topics import DeletedTopics
from commitlog_store.queue.loaded_ends import load_saved_ends
from commitlog_store.recovery.kept import LostMessages, is_kept_piece, read_kept_piece
from commitlog_store.verify.access import check_owners_files, check_readable, read_part, report_failed_pages
from commitlog_store.verify.config_files import check_config_files
from commitlog_store.verify.findings import NOWHERE, Finding, Findings
from commitlog_store.verify.index_file import check_index_headers
from commitlog_store.verify.log_files import LogFile, check_log_end, check_log_files, check_log_heads, list_log_files
from commitlog_store.verify.opening import Opening, kept_piece, look_at_opening, report_fault
from commitlog_store.verify.queue_ends import (
    Absent,
    QueueEnd,
    absent_stretches,
    find_queue_ends,
    lost_offsets,
    note_removed_head,
    unwritten_from,
)
from commitlog_store.verify.queue_files import MAX_SIZE, check_unit_files
from commitlog_store.verify.store import read_claims
from commitlog_store.verify.topics import TopicCount


@dataclass(frozen=True, kw_only=True)
class QuickLook:
    """What a quick look found. An ``Assessment`` adds to it."""

    aborted: bool
    log_files: int
    log_start: int
    log_end: int
    queues: int
    index_files: int
    checkpoint: Checkpoint
    mark: CheckpointMark | None
    opening: Opening
    topics: list[TopicCount]
    findings: list[Finding]


def look_quickly(
    paths: StorePaths, config: MessageStoreConfig | None, *, scan: bool = False, progress: Progress | None = None
) -> QuickLook:
    """Look at a store. ``scan``: also scan its log as opening it would, and find what that cuts off."""
    findings, aborted = Findings(), disk.exists(os.path.join(paths.root, ABORT))
    checkpoint, mark = Checkpoint(0, 0, 0), None
    if not (kept := is_kept_piece(paths.root)):
        checkpoint, mark = read_claims(paths.root, findings)
    # The queues first: all that they name was in the log before.
    saved = load_saved_ends(paths.root)
    queues, denied = find_queue_ends(paths.root, findings, saved)
    listed = NumberedFiles(paths.commit_log)
    listed.refresh()
    files = list_log_files(listed)
    absent = _look_at_files(paths, files, queues, denied, findings, aborted=aborted, kept=kept)
    index_files = check_index_headers(os.path.join(paths.root, INDEX), findings, aborted=aborted)
    check_config_files(paths.root, findings)
    check_owners_files(paths.root, findings)
    topics: list[TopicCount] = []
    log_start = files[0].base if files else 0
    if kept:
        piece = read_kept_piece(paths.root)
        opening, log_start = kept_piece(piece), piece.start
    else:
        written = [*(file.path for file in files), *(file.path for queue in queues for file in queue.files)]
        opening = look_at_opening(paths, config, findings, written, scan=scan, progress=progress, saved=saved)
        if files and not aborted:
            note_removed_head(paths.commit_log, mark, log_start, queues, findings)
        topics = _lost_topics(paths, files, queues, absent, opening, findings, mark, aborted=aborted)
        if not _is_empty(files, findings):
            report_fault(paths, opening, mark, findings)
    return QuickLook(
        aborted=aborted,
        log_files=len(files),
        log_start=log_start,
        log_end=files[-1].base + files[-1].size if files else 0,
        queues=len(queues),
        index_files=index_files,
        checkpoint=checkpoint,
        mark=mark,
        opening=opening,
        topics=topics,
        findings=findings.all(),
    )


def _look_at_files(
    paths: StorePaths,
    files: list[LogFile],
    queues: Sequence[QueueEnd],
    denied: Sequence[str],
    findings: Findings,
    *,
    aborted: bool,
    kept: bool,
) -> list[Absent]:
    """Check the files of log and queues. The stretches of the log that are not there, or cannot be read."""
    check_log_files(paths.commit_log, files, findings, aborted=aborted)
    names = [file.path for file in files]
    unreadable = [*check_readable(names, findings), *check_readable(denied, findings)]
    newest = max((queue.physical_offset for queue in queues), default=-1)
    unfinished_from = 0 if kept else newest if aborted else None
    misnamed, failed = check_log_heads(files, findings, unfinished_from=unfinished_from)
    unreadable += [name for name in names if findings.has_error("access.read", name)]
    for name, size in failed.items():
        report_failed_pages(name, range(size // PAGE_SIZE), findings)
    for queue in queues:
        check_unit_files(queue.topic, queue.queue_id, queue.files, findings, aborted=aborted)
    return absent_stretches(files, denied=unreadable, misnamed=misnamed, failed=failed)


def _lost_topics(
    paths: StorePaths,
    files: list[LogFile],
    queues: list[QueueEnd],
    absent: list[Absent],
    opening: Opening,
    findings: Findings,
    mark: CheckpointMark | None,
    *,
    aborted: bool,
) -> list[TopicCount]:
    """The topics that have lost messages, what opening would cut off among them."""
    cut = None if opening.forecast is None else opening.forecast.cut
    if cut is not None and not cut.uncommitted:
        absent = [*absent, Absent(cut.start, NOWHERE, denied=False)]
    losses = QuickLosses(paths, findings, [] if cut is None or cut.uncommitted else cut.lost, mark)
    losses.compare(files, queues, absent, aborted=aborted, in_use=opening.kind == "inUse")
    return losses.topics()


def _is_empty(files: Sequence[LogFile], findings: Findings) -> bool:
    """Whether no record was ever written to the log: then no queues need exist."""
    if len(files) != 1:
        return not files
    return not any(read_part(files[0].path, min(MIN_RECORD_SIZE, files[0].size), 0, findings))


class QuickLosses:
    """The lost messages of one quick look: ``compare`` finds them, ``topics`` counts them."""

    def __init__(
        self, paths: StorePaths, findings: Findings, cut: Sequence[LostMessages], mark: CheckpointMark | None
    ) -> None:
        """``cut``: what opening the store would cut off its log. ``mark`` says up to where it was flushed."""
        self._flushed_to = 0 if mark is None else mark.flushed_offset
        self._path = paths.root
        self._log_path = paths.commit_log
        self._findings = findings
        self._cut = cut
        # Lost offsets by queue, and whether their records may only not be read.
        self._lost: dict[tuple[str, int], list[tuple[int, int, bool]]] = {}

    def compare(
        self, files: list[LogFile], queues: list[QueueEnd], absent: list[Absent], *, aborted: bool, in_use: bool
    ) -> None:
        """Compare the queues' units with the range of the log."""
        log_start = files[0].base if files else 0
        deleted = self._deleted()
        lost: list[list[tuple[int, int, bool]]] = []
        for queue in queues:
            # Messages before that have expired, or were deleted with their topic.
            units_from = 0 if deleted is None else deleted.units_from(queue.topic, queue.queue_id)
            lost.append(lost_offsets(queue, absent, max(log_start, units_from)))
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
            # One alone may be a damaged unit: only reading the log says whether its message is lost.
            lost[after[0]].pop()
        for queue, ranges in zip(queues, lost, strict=True):
            for start, stop, is_denied in ranges:
                self._lose(queue, start, stop, is_denied=is_denied)
        inside = (queue for queue in queues if 0 < queue.size <= MAX_SIZE and queue.physical_offset >= log_start)
        within = [queue for queue in inside if not _is_absent(absent, queue)]
        last = max(within, key=lambda one: one.physical_offset, default=None)
        if last is not None and not self._is_written(files, last.physical_offset, last.size):
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
        file = _file_at(files, last.physical_offset)
        message = (
            f"The record of the newest message, at physical offset {last.physical_offset}, is not there: the log is "
            f"older than its queues, or damaged (topic {last.topic!r}, queue {last.queue_id}, offset {last.end - 1})."
        )
        self._findings.add(
            "log.newest",
            "note" if aborted and last.physical_offset + last.size > self._flushed_to else "error",
            file.path,
            message,
            offset=last.physical_offset - file.base,
            topic=last.topic,
            queue_id=last.queue_id,
            queue_offset=last.end - 1,
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

    def _read(self, file: LogFile, position: int, size: int) -> bytes:
        """Bytes of a log file; none if it cannot be read."""
        return read_part(file.path, max(min(size, file.size - position), 0), position, self._findings)

    def _deleted(self) -> DeletedTopics | None:
        found = DeletedTopics(self._path)
        try:
            return None if found.is_empty else found
        except CommitLogError:
            return None

    def _lose(self, queue: QueueEnd, start: int, stop: int, *, is_denied: bool) -> None:
        if start < stop:
            self._lost.setdefault((queue.topic, queue.queue_id), []).append((start, stop, is_denied))

    def topics(self) -> list[TopicCount]:
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
