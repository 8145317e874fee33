"""Quick look at a store: what names, sizes, the ends of queues, marks and JSON files show. It reads no records."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from commitlog_store.config import MessageStoreConfig
from commitlog_store.files import disk
from commitlog_store.files.copied_file import PAGE_SIZE
from commitlog_store.files.numbered_files import NumberedFiles
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.checkpoint import Checkpoint, CheckpointMark
from commitlog_store.format.record import MIN_RECORD_SIZE
from commitlog_store.paths import ABORT, INDEX
from commitlog_store.progress import Progress
from commitlog_store.queue.saved_ends import load_saved_ends
from commitlog_store.recovery.kept import is_kept_piece, read_kept_piece
from commitlog_store.verify.access import check_owners_files, check_readable, read_part, report_failed_pages
from commitlog_store.verify.config_files import check_config_files
from commitlog_store.verify.findings import NOWHERE, Finding, Findings
from commitlog_store.verify.index_file import check_index_headers
from commitlog_store.verify.log_files import LogFile, check_log_files, check_log_heads, list_log_files
from commitlog_store.verify.opening import Opening, kept_piece, look_at_opening, report_fault
from commitlog_store.verify.queue_ends import Absent, QueueEnd, absent_stretches, find_queue_ends, note_removed_head
from commitlog_store.verify.queue_files import check_unit_files
from commitlog_store.verify.quick_losses import QuickLosses
from commitlog_store.verify.store import read_claims
from commitlog_store.verify.topics import TopicCount


@dataclass(frozen=True, kw_only=True)
class QuickLook:
    """What a quick look found. The fields are those of ``Assessment``."""

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
