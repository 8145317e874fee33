"""The survey of a store before a cleaning: its log files, what holds them, and the decision. It changes nothing.

A file's age is that of the first message of the file after it: all its own messages are at least as old. RocketMQ takes
the time of the file's last change, which in a copy or a restored backup is the time of copying.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import UnionType
from typing import Any, Literal, get_args

from commitlog_store.engine.subject import Hold
from commitlog_store.errors import CorruptRecord, InvalidValue, MessageNotFound
from commitlog_store.files import disk
from commitlog_store.files.error_paths import failed_reads
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.store_checkpoint import read_mark
from commitlog_store.log.store_directory import check_store_directory
from commitlog_store.paths import ARCHIVE_HOLDER, CHECKPOINT, checked_choice, file_name_for_offset
from commitlog_store.queue.catalog import QueueCatalog
from commitlog_store.queue.lost_log import refuse_lost_log
from commitlog_store.retention.decision import CleanReport, Decision, LogFile, RetentionLimits, decide
from commitlog_store.retention.holders import delayed_messages, hold_of, positions_of, unapplied_positions

KEEP_AT_MOST_HOURS = 168.0
_HOUR_MS = 3_600_000
_TOO_MANY = 2**63
_MS = 1000

AgeClock = Literal["store", "mtime"]


@dataclass(frozen=True, kw_only=True)
class CleanRequest:
    """What a cleaning is to delete: the limits, how age is measured, and the readers that hold files, for how long.

    ``holds`` are those of the archives that ``with_archives`` has asked. ``most``: at most so many files, the oldest.
    ``first``: none, unless the log begins at this physical offset.
    """

    limits: RetentionLimits
    clock: AgeClock = "store"
    keep_for: Sequence[str] = field(default=())
    holds: Sequence[Hold] = field(default=())
    keep_at_most_ms: int | None = None
    most: int | None = None
    first: int | None = None


@dataclass(frozen=True, kw_only=True)
class Survey:
    """A decision, and the bounds of the log that it was made for."""

    decision: Decision
    log_start: int
    log_end: int

    def report(
        self, path: str, *, dry_run: bool, queue_files: int = 0, index_files: int = 0, ext_files: int = 0
    ) -> CleanReport:
        """The report of a cleaning that did, or would do, what was decided."""
        doomed = self.decision.doomed
        return CleanReport(
            path=path,
            dry_run=dry_run,
            deleted=doomed,
            log_start=doomed[-1].file.end if doomed else self.log_start,
            log_end=self.log_end,
            held=self.decision.held,
            holders=self.decision.holders,
            queue_files=queue_files,
            index_files=index_files,
            ext_files=ext_files,
        )


def clean_request(
    *,
    older_than_hours: float | None,
    max_bytes: int | None,
    keep_for: Sequence[str | os.PathLike[str]] = (),
    keep_at_most_hours: float = KEEP_AT_MOST_HOURS,
    clock: str = "store",
) -> CleanRequest:
    """A request with these limits; None: no limit. ``InvalidValue``."""
    if older_than_hours is None and max_bytes is None:
        raise InvalidValue(
            "Nothing says what may be deleted: give older_than_hours or max_bytes, or open the store with "
            "retention_enable or retention_bytes."
        )
    _check_number("older_than_hours", older_than_hours, "hours", int | float)
    _check_number("keep_at_most_hours", keep_at_most_hours, "hours", int | float)
    _check_number("max_bytes", max_bytes, "bytes", int)
    checked_choice("clock", clock, get_args(AgeClock))
    if isinstance(keep_for, str | bytes) or not isinstance(keep_for, Iterable):
        raise InvalidValue(f"keep_for is a list of checkpoints and groups, not {keep_for!r}.")
    holders = tuple(_holder(one) for one in keep_for)
    if holders and older_than_hours is not None and keep_at_most_hours <= older_than_hours:
        raise InvalidValue(
            f"keep_at_most_hours ({keep_at_most_hours:g}) is above older_than_hours ({older_than_hours:g}): otherwise "
            "those in keep_for hold nothing."
        )
    return CleanRequest(
        limits=RetentionLimits(
            older_than_ms=None if older_than_hours is None else int(older_than_hours * _HOUR_MS), max_bytes=max_bytes
        ),
        clock="mtime" if clock == "mtime" else "store",
        keep_for=holders,
        keep_at_most_ms=int(keep_at_most_hours * _HOUR_MS),
    )


def with_archives(request: CleanRequest, paths: StorePaths) -> CleanRequest:
    """The request with the holds of the archives that ``keep_for`` names: they are asked now, before any file is.

    ``InvalidValue``, ``ArchiveMismatch``, ``ArchiveFailed``, ``ArchiveDamaged``, ``UnsupportedArchive``.
    """
    urls = [one.removeprefix(ARCHIVE_HOLDER) for one in request.keep_for if one.startswith(ARCHIVE_HOLDER)]
    if not urls:
        return request
    from commitlog_store.archive.holding import archive_hold  # a store without archives does not import it

    return replace(
        request,
        keep_for=tuple(one for one in request.keep_for if not one.startswith(ARCHIVE_HOLDER)),
        holds=tuple(archive_hold(paths, url, at_most_ms=request.keep_at_most_ms) for url in urls),
    )


def _holder(given: object) -> str:
    try:
        return os.fsdecode(given)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidValue(f"keep_for lists checkpoints and groups by their paths and names, not {given!r}.") from None


def _check_number(name: str, value: Any, unit: str, kind: type | UnionType) -> None:
    is_number = isinstance(value, kind) and not isinstance(value, bool)
    if value is not None and not (is_number and 0 <= float(value) < _TOO_MANY):
        raise InvalidValue(f"{name} is a number of {unit} of at least 0, not {value!r}.")


def survey(
    paths: StorePaths,
    request: CleanRequest,
    now_ms: int,
    *,
    holds: Sequence[Hold] | None = None,
    log_end: int | None = None,
    most: int | None = None,
) -> Survey:
    """Read a store's files, and decide. Only its owner knows ``holds`` and ``log_end``: what is not finished yet, and
    which delayed messages wait. None for a survey from outside.

    ``most``: at most so many files. ``InvalidValue`` for an unknown reader, ``CorruptConfig``, ``CorruptConsumeQueue``,
    ``ReadFailed``.
    """
    store_path = paths.root
    with contextlib.closing(CommitLog(paths.commit_log)) as log:
        with failed_reads(store_path, "look at"):
            log.refresh()
            files = _log_files(log, request.clock, most=most)
            end = _end_of(store_path, files) if log_end is None else log_end
            catalog = QueueCatalog(store_path, log)
            named = [
                hold_of(positions_of(store_path, one), catalog, log, at_most_ms=request.keep_at_most_ms)
                for one in request.keep_for
            ]
            named += request.holds
            named.append(unapplied_positions(store_path, catalog))
            unfinished = delayed_messages(store_path, catalog, log) if holds is None else holds
            needed = [*unfinished, *(one for one in named if one is not None)]
        decision = Decision()
        if request.first in (None, log.min_offset):
            decision = decide(files, end, request.limits, needed, now_ms, most=most)
        return Survey(decision=decision, log_start=log.min_offset, log_end=end)


def _log_files(log: CommitLog, clock: AgeClock, *, most: int | None = None) -> list[LogFile]:
    """The files that messages were written to, oldest first; the last one is the one being written.

    ``most``: only so many of the oldest, and one that follows them. ``OSError``.
    """
    bases = log.bases if most is None else log.bases[: most + 2]
    files: list[LogFile] = []
    for base, following in pairwise(bases):
        begins_ms = _first_time(log, following)
        path = f"{log.path}/{file_name_for_offset(base)}"
        newest_ms = begins_ms if clock == "store" else int(disk.modified_at(path) * _MS)
        files.append(LogFile(base=base, end=following, path=path, newest_ms=newest_ms))
        if begins_ms is None and log.header(following) is None:
            return files  # the next one was made ahead, and is empty
    if bases:
        path = f"{log.path}/{file_name_for_offset(bases[-1])}"
        files.append(LogFile(base=bases[-1], end=log.bounds()[1], path=path, newest_ms=None))
    return files


def _first_time(log: CommitLog, base: int) -> int | None:
    """The store time of the first message of a file; None when the file does not begin with one."""
    with contextlib.suppress(MessageNotFound, CorruptRecord):
        return log.read_without_body(base).store_timestamp
    return None


def _end_of(store_path: str, files: Sequence[LogFile]) -> int:
    """The log's end as far as it shows from outside: what the checkpoint says, and at least the last file's begin."""
    mark = read_mark(os.path.join(store_path, CHECKPOINT))
    begin = max((one.base for one in files), default=0)
    return begin if mark is None else max(begin, mark.flushed_offset, mark.end_offset)


@dataclass(frozen=True, kw_only=True)
class LogFiles:
    """The log's files that messages were written to, oldest first, and its end as far as it shows from outside.

    ``first_ms`` is the store time of the log's first message, None without one.
    """

    files: list[LogFile]
    first_ms: int | None
    end: int


def log_files(paths: StorePaths) -> LogFiles:
    """The files of a store's log. Takes no lock, also beside a live owner. ``ReadFailed``."""
    with contextlib.closing(CommitLog(paths.commit_log)) as log, failed_reads(paths.root, "look at"):
        log.refresh()
        files = _log_files(log, "store")
        first_ms = _first_time(log, files[0].base) if files else None
        return LogFiles(files=files, first_ms=first_ms, end=_end_of(paths.root, files))


def forecast_clean(
    path: str | os.PathLike[str],
    request: CleanRequest,
    *,
    store_path_commit_log: str | os.PathLike[str] | None = None,
    clock: Callable[[], float] = time.time,
) -> CleanReport:
    """What a cleaning of a store would delete. Takes no lock and changes nothing, also beside a live owner.

    The log's end is the one in the checkpoint. ``StoreOpenError`` if the path is not a store; the errors of ``survey``.
    """
    directory = disk.absolute_path(path)
    check_store_directory(directory)
    paths = StorePaths.of(directory, store_path_commit_log)
    with contextlib.closing(CommitLog(paths.commit_log)) as log:
        refuse_lost_log(directory, log)
    return survey(paths, with_archives(request, paths), int(clock() * 1000)).report(directory, dry_run=True)
