"""Files and disk: the log's files, what retention takes of them and when, and when the disk will be full."""

from __future__ import annotations

import time
from collections.abc import Sequence

from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import CommitLogError
from commitlog_store.files.limits import disk_size, free_bytes, fullest_disk
from commitlog_store.reader import StoreReader
from commitlog_store.retention.decision import CleanReport, LogFile
from commitlog_store.serve.http.pages import past
from commitlog_store.serve.http.pages.views import Asked, Paging, Values, View
from commitlog_store.store import MessageStore

_ROWS = 50
_HOUR_MS = 3_600_000


def bytes_a_second(
    files: Sequence[LogFile], first_ms: int | None, log_end: int, now_ms: int
) -> tuple[float, int] | None:
    """The log's growth, and the time (ms) since which it was measured; None for a log without a message.

    It is measured from the begin of the newest file that is an hour old, or of the oldest file. ``first_ms`` is the
    time of the log's first message.
    """
    # A file's newest_ms is the time of the first message of the next one.
    begins = [(file.end, file.newest_ms) for file in files if file.newest_ms is not None]
    if first_ms is not None:
        begins.insert(0, (files[0].base, first_ms))
    older = [one for one in begins if now_ms - one[1] >= _HOUR_MS][-1:] or begins[:1]
    if not older or now_ms <= older[0][1]:
        return None
    (offset, since_ms) = older[0]
    return (log_end - offset) * 1000 / (now_ms - since_ms), since_ms


def full_at(free: int, rate: float, now_ms: int) -> int | None:
    """When (ms) so many free bytes are used at a rate; None if they never are."""
    return now_ms + int(free * 1000 / rate) if rate > 0 else None


def _look(reader: StoreReader, asked: Asked) -> Values:
    now_ms = time.time_ns() // 1_000_000
    found = asked.shared.log_files.of(reader)
    files = found.files
    end = found.end if asked.owned is None else asked.owned.physical_bounds()[1]
    log = reader.paths.commit_log
    free = free_bytes(log)
    rate = bytes_a_second(files, found.first_ms, end, now_ms)
    paging = Paging.of(asked, len(files), _ROWS)
    config = None if asked.owned is None else asked.owned.config
    report, problem = _forecast(asked.owned)
    reasons = {} if report is None else {one.file.base: one.reason.value for one in report.deleted}
    return {
        "path": log, "used_percent": round(100 * fullest_disk([log]).used, 1), "total": disk_size(log), "free": free,
        "rate": None if rate is None else int(rate[0]), "rate_since": None if rate is None else rate[1],
        "full_at": None if rate is None else full_at(free, rate[0], now_ms),
        "log_bytes": end - files[0].base if files else 0, "count": len(files), "config": config,
        "report": report, "problem": problem, "paging": paging, **past.charts_of(reader, past.DISK_CHARTS),
        "rows": [_row(one, end, reasons, config) for one in files[paging.start : paging.stop]],
    }  # fmt: skip


def _forecast(owned: MessageStore | None) -> tuple[CleanReport | None, str]:
    """What retention would take now by the store's settings, and what kept it from being known."""
    if owned is None or not owned.config.retention:
        return None, ""
    try:
        return owned.clean(dry_run=True), ""
    except CommitLogError as error:
        return None, str(error)


def _row(file: LogFile, log_end: int, reasons: dict[int, str], config: MessageStoreConfig | None) -> Values:
    """A file as the page shows it. ``old_at``: when (ms) its age lets it go, None without such a limit."""
    has_age = config is not None and config.retention_enable and file.newest_ms is not None
    return {
        "name": file.path.rpartition("/")[2], "base": file.base, "bytes": max(min(file.end, log_end) - file.base, 0),
        "newest_ms": file.newest_ms, "reason": reasons.get(file.base, ""),
        "old_at": (file.newest_ms or 0) + config.file_reserved_time * _HOUR_MS if has_age and config else None,
    }  # fmt: skip


# A look asks the owner's job thread: not again and again for each visitor.
VIEW = View(name="disk", path="/disk", look=_look, is_live=False)
