"""File names for the operating system's errors.

The operating system names the file in errors of calls with a path. Its errors of calls with a descriptor have no file
name, and callers further up no longer know it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from commitlog_store.errors import ReadFailed, StoreIOError


@contextlib.contextmanager
def errors_name(path: str) -> Iterator[None]:
    """Each ``OSError`` that leaves the block without a file name gets this one."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise


@contextlib.contextmanager
def failed_reads(path: str, operation: str = "read") -> Iterator[None]:
    """``ReadFailed`` for each ``OSError`` that leaves the block, with its file's path; ``path`` where it names none."""
    try:
        yield
    except OSError as error:
        raise ReadFailed(operation, path=str(error.filename or path), cause=error) from error


@contextlib.contextmanager
def failed_writes(path: str, operation: str = "write", advice: str = "") -> Iterator[None]:
    """``StoreIOError`` for each ``OSError`` that leaves the block, with this path."""
    try:
        yield
    except OSError as error:
        raise StoreIOError(operation, path=path, cause=error, advice=advice) from error
