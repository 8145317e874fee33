"""The decision which CommitLog files go: a pure function of the files, the limits, the time, and what is still needed.

``CleanReport`` reports a decision, and what was done.

Files go from the oldest on, and the first one that stays ends it: a log never gets a hole. The last file always stays.

Source of the limits: RocketMQ ``store/MappedFileQueue.java`` (``deleteExpiredFileByTime``) and
``store/DefaultMessageStore.java`` (``CleanCommitLogService``); the limit of bytes is this package's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from commitlog_store.engine.subject import Hold


class Reason(str, Enum):
    """Why a file goes."""

    AGE = "age"
    BYTES = "bytes"
    DISK = "disk"


@dataclass(frozen=True, kw_only=True)
class LogFile:
    """A CommitLog file: its first byte, the byte after its last one, and its path.

    ``newest_ms`` is a time (ms) that no message of the file is newer than; None when it is not known.
    """

    base: int
    end: int
    path: str
    newest_ms: int | None


@dataclass(frozen=True, kw_only=True)
class RetentionLimits:
    """What a log may hold: messages younger than ``older_than_ms``, and ``max_bytes``; None for no limit.

    ``at_once``: the disk is so full that files go whatever their age.
    """

    older_than_ms: int | None = None
    max_bytes: int | None = None
    at_once: bool = False


@dataclass(frozen=True, kw_only=True)
class DoomedFile:
    """A file that goes, and why. ``overruled`` are those that still needed it, for longer than they may hold it."""

    file: LogFile
    reason: Reason
    overruled: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The files that go, in this order; and the file that should go next but is held, with its holders."""

    doomed: list[DoomedFile] = field(default_factory=list)
    held: LogFile | None = None
    holders: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CleanReport:
    """The outcome of a cleaning, or with ``dry_run`` its forecast.

    ::

        with MessageStore.open("/data/store") as store:
            report = store.clean(older_than_hours=72)
            print(report.freed_bytes, report.log_start, report.holders)

    ``deleted`` are the CommitLog files, oldest first, each with its reason and with the readers that it was taken from.
    ``log_start`` is the physical offset at which the log begins afterwards. ``held`` is the file that the limits take
    next but that ``holders`` still need; None without one. Queue and index files follow the log, and ``ext_files`` of a
    broker's ``consumequeue_ext``; a forecast counts none of them.
    """

    path: str
    dry_run: bool
    deleted: list[DoomedFile]
    log_start: int
    log_end: int
    held: LogFile | None
    holders: tuple[str, ...]
    queue_files: int = 0
    index_files: int = 0
    ext_files: int = 0

    @property
    def freed_bytes(self) -> int:
        """The bytes of the deleted CommitLog files."""
        return sum(one.file.end - one.file.base for one in self.deleted)


def decide(
    files: Sequence[LogFile],
    log_end: int,
    limits: RetentionLimits,
    holds: Sequence[Hold],
    now_ms: int,
    *,
    most: int | None = None,
) -> Decision:
    """Which of a log's files go, at most ``most`` of them. ``files`` are all of them, in order."""
    doomed: list[DoomedFile] = []
    for file in files[:-1]:
        if most is not None and len(doomed) == most:
            break
        reason = _reason(file, log_end, limits, now_ms)
        if reason is None:
            break
        needing = [hold for hold in holds if hold.from_offset < file.end]
        holders = tuple(hold.holder for hold in needing if not _has_held_enough(hold, file, limits, now_ms))
        if holders:
            return Decision(doomed=doomed, held=file, holders=holders)
        doomed.append(DoomedFile(file=file, reason=reason, overruled=tuple(hold.holder for hold in needing)))
    return Decision(doomed=doomed)


def _reason(file: LogFile, log_end: int, limits: RetentionLimits, now_ms: int) -> Reason | None:
    if _is_older(file, limits.older_than_ms, now_ms):
        return Reason.AGE
    if limits.max_bytes is not None and log_end - file.base > limits.max_bytes:
        return Reason.BYTES
    return Reason.DISK if limits.at_once else None


def _has_held_enough(hold: Hold, file: LogFile, limits: RetentionLimits, now_ms: int) -> bool:
    return (hold.yields_to_disk and limits.at_once) or _is_older(file, hold.at_most_ms, now_ms)


def _is_older(file: LogFile, age_ms: int | None, now_ms: int) -> bool:
    return age_ms is not None and file.newest_ms is not None and now_ms - file.newest_ms >= age_ms
