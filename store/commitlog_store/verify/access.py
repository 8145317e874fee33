"""Verification of permissions: files that this process may not read, or not write as the store's owner would."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable

from commitlog_store.errors import CommitLogError, ReadFailed
from commitlog_store.files import disk
from commitlog_store.files.copied_file import MOST_FAILED, PAGE_SIZE
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.log.store_directory import OWNERS_FILES, owners_file_fault
from commitlog_store.paths import CHECKPOINT, COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX, LOCK
from commitlog_store.verify.findings import Findings


def check_readable(paths: Iterable[str], findings: Findings) -> list[str]:
    """Report the files that this process may not read. Returns their paths."""
    denied = [path for path in paths if not disk.may_read(path) and disk.exists(path)]
    for path in denied:
        message = f"No permission to read {path}: run as the store's user, or change its mode."
        findings.add("access.read", "error", path, message)
    return denied


def check_owners_files(store_path: str, findings: Findings) -> None:
    """Report files of the owner's in the store's directory that are directories or links."""
    for name in OWNERS_FILES:
        path = os.path.join(store_path, name)
        if (fault := owners_file_fault(path)) is not None:
            findings.add("access.file", "error", path, fault)


def first_unwritable(store: StorePaths, files: Iterable[str]) -> str | None:
    """The first file or directory that an owner writes and this process may not; None when it may write all.

    ``files`` are those of log and queues that opening writes. The store's directory comes first: without it, this
    process is not meant to own the store.
    """
    names = (LOCK, CHECKPOINT, COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX)
    paths = [path for path in map(store.part, names) if disk.exists(path)]
    return next((path for path in (store.root, *paths, *files) if not disk.may_write(path)), None)


def read_part(path: str, size: int, position: int, findings: Findings | None = None) -> bytes:
    """Bytes of a file: fewer at its end, none if it cannot be read. A read that the disk fails is reported."""
    try:
        descriptor = disk.open_file(path)
    except (FileNotFoundError, CommitLogError):
        return b""
    try:
        return disk.read_at(descriptor, size, position)
    except OSError as error:
        if findings is not None:
            report_failed_read(path, error, findings)
        return b""
    finally:
        disk.close(descriptor)


def failed_head(path: str, size: int) -> int:
    """Bytes at the beginning of a file, whose first page the disk fails to read, that it fails to read; all of them
    when it is more pages than it is worth to try."""
    descriptor = disk.open_file(path)
    try:

        def fails(page: int) -> bool:
            try:
                disk.read_at(descriptor, PAGE_SIZE, page * PAGE_SIZE)
            except OSError:
                return True
            return False

        bad, good = 0, min(MOST_FAILED, (size - 1) // PAGE_SIZE)
        if good <= bad or fails(good):
            return size
        while good - bad > 1:
            middle = (bad + good) // 2
            bad, good = (middle, good) if fails(middle) else (bad, middle)
        return good * PAGE_SIZE
    finally:
        disk.close(descriptor)


def report_failed_read(path: str, error: OSError | ReadFailed, findings: Findings) -> None:
    """Report that the disk failed a read of a file (a bad sector), once."""
    if not findings.has_error("access.read", path):
        failed = error if isinstance(error, ReadFailed) else ReadFailed("read", path=path, cause=error)
        message = f"{failed} What it holds counts as unreadable. See the system's log (dmesg) for the disk's faults."
        findings.add("access.read", "error", path, message)


def report_failed_pages(path: str, pages: Collection[int], findings: Findings) -> None:
    """Report the pages of a log file that the disk fails to read, unless a failed read of it is reported."""
    if pages and not findings.has_error("access.read", path):
        failed = ReadFailed("read", path=path, cause=OSError(errno.EIO, os.strerror(errno.EIO)))
        bytes_of = f"{len(pages)} {'page' if len(pages) == 1 else 'pages'} of {PAGE_SIZE} bytes"
        message = f"{failed} {bytes_of}; messages there count as unreadable. See the system's log (dmesg)."
        at = min(pages) * PAGE_SIZE
        findings.add("access.read", "error", path, message, offset=at)
