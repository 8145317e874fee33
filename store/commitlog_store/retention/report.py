"""CleanReport: what a cleaning deleted, or would delete, and what it had to keep."""

from __future__ import annotations

from dataclasses import dataclass

from commitlog_store.retention.decision import DoomedFile, LogFile

__all__ = ["CleanReport"]


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
