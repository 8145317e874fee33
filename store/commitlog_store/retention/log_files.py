"""The files of a log with their ages, as retention looks at them.

A file's age is that of the first message of the file after it: all its own messages are at least as old. RocketMQ takes
the time of the file's last change, which in a copy or a restored backup is the time of copying.
"""

from __future__ import annotations

import contextlib
from itertools import pairwise
from typing import Literal

from commitlog_store.errors import CorruptRecord, MessageNotFound
from commitlog_store.files import disk
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.paths import file_name_for_offset
from commitlog_store.retention.decision import LogFile

__all__ = ["AgeClock", "log_files"]

AgeClock = Literal["store", "mtime"]
_MS = 1000


def log_files(log: CommitLog, clock: AgeClock, *, most: int | None = None) -> list[LogFile]:
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
        return log.read_record(base, check_crc=False).store_timestamp
    return None
