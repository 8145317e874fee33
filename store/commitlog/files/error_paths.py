"""Errors of the operating system that say which file they are of.

It names the file for whoever gave a name. For an operation on a descriptor it says what went wrong and not where, and
further up nobody knows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["errors_name"]


@contextlib.contextmanager
def errors_name(path: str) -> Iterator[None]:
    """Each ``OSError`` that comes out of the block without a file name has this one."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise
