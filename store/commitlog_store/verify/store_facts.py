"""Facts about a store beside its queues: files, who delivers its delayed messages, what was kept, its assessment."""

from __future__ import annotations

import os
from dataclasses import dataclass

from commitlog_store.config import MessageStoreConfig
from commitlog_store.delayed.broker_marks import broker_mark, has_timer_wheel
from commitlog_store.errors import CommitLogError
from commitlog_store.files import disk
from commitlog_store.files.limits import free_bytes, fullest_disk
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.progress import Progress
from commitlog_store.recovery.indexed import was_indexed
from commitlog_store.recovery.kept import KeptPiece, kept_pieces
from commitlog_store.retention.archive_status import ArchiveHoldStatus, read_status
from commitlog_store.verify.assessment import Assessment, assess_store


@dataclass(frozen=True, kw_only=True)
class StoreFacts:
    """``disk_size`` is the bytes that all files take, holes not counted.

    ``delayed_left_to`` is what shows that a broker delivers delayed messages; None where ``MessageStore`` does.
    ``timer_wheel``: a broker keeps messages of its timer there. ``kept_problem`` is why ``kept`` or ``archive_hold``,
    the archive that retention waits for, cannot be read. ``log_disk_free`` is the bytes that are free on the
    log's disk, and ``log_disk_used`` the share of it that is used, 0.0 to 1.0; None where they are not known.
    ``fullest_disk`` is a path on the fullest of the store's disks, and the share of that which is used.
    """

    log_files: int
    disk_size: int
    delayed_left_to: str | None
    timer_wheel: bool
    kept: list[KeptPiece]
    kept_problem: str
    assessment: Assessment | None
    archive_hold: ArchiveHoldStatus | None = None
    log_disk_free: int | None = None
    log_disk_used: float | None = None
    fullest_disk: tuple[str, float] = ("", 0.0)


def facts_of(paths: StorePaths, *, assessed: bool) -> StoreFacts:
    """``assessed``: with the quick assessment, and its errors."""
    kept, problem = [], ""
    try:
        kept = kept_pieces(paths.root)
    except CommitLogError as error:
        problem = str(error)
    archive_hold = None
    try:
        archive_hold = read_status(paths.root)
    except CommitLogError as error:
        problem = problem or str(error)
    files, size = disk_use(paths)
    disk_path, disk_used = fullest_disk(paths.disks)
    return StoreFacts(
        log_files=files,
        disk_size=size,
        delayed_left_to=broker_mark(paths.root),
        timer_wheel=has_timer_wheel(paths.root),
        kept=kept,
        kept_problem=problem,
        assessment=assessment_of_paths(paths) if assessed else None,
        archive_hold=archive_hold,
        log_disk_free=free_bytes(paths.commit_log),
        log_disk_used=fullest_disk([paths.commit_log]).used,
        fullest_disk=(disk_path, disk_used),
    )


def assessment_of_paths(paths: StorePaths, *, deep: bool = False, progress: Progress | None = None) -> Assessment:
    """``assess_store``, with the settings that the store itself shows."""
    return assess_store(paths.root, deep=deep, config=shown_settings(paths), progress=progress)


def shown_settings(paths: StorePaths) -> MessageStoreConfig:
    """The settings with which a store is assessed that has no file of them."""
    return MessageStoreConfig(
        store_path_commit_log=paths.elsewhere, schedule_enable=False, message_index_enable=was_indexed(paths.root)
    )


def disk_use(paths: StorePaths) -> tuple[int, int]:
    """The number of CommitLog files, and the bytes all files of the store take on disk (holes not counted)."""
    files = size = 0
    for name, taken in (one for directory in paths.directories for one in disk.tree_files(directory)):
        directory, last = os.path.split(name)
        size += taken
        files += directory == paths.commit_log and last.isdigit()
    return files, size
