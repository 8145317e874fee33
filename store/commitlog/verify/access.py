"""Verification of permissions: files that this process may not read, or not write as the store's owner would."""

from __future__ import annotations

from collections.abc import Iterable

from commitlog.files import disk
from commitlog.files.store_paths import StorePaths
from commitlog.paths import CHECKPOINT, COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX, LOCK
from commitlog.verify.findings import Finding, Findings

__all__ = ["check_readable", "first_unwritable"]


def check_readable(paths: Iterable[str], findings: Findings) -> list[str]:
    """Report the files that this process may not read. Returns their paths."""
    denied = [path for path in paths if not disk.may_read(path) and disk.exists(path)]
    for path in denied:
        message = f"No permission to read {path}: run as the store's user, or change its mode."
        findings.add(Finding(check="access.read", severity="error", path=path, message=message))
    return denied


def first_unwritable(store: StorePaths, files: Iterable[str]) -> str | None:
    """The first file or directory that an owner writes and this process may not; None when it may write all.

    ``files`` are those of log and queues that opening writes. The store's directory comes first: without it, this
    process is not meant to own the store.
    """
    names = (LOCK, CHECKPOINT, COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX)
    paths = [path for path in map(store.part, names) if disk.exists(path)]
    return next((path for path in (store.root, *paths, *files) if not disk.may_write(path)), None)
