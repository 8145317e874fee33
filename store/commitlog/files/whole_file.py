"""Files that are whole or not there at all, whenever the machine stops.

Each is written under another name and synced before it gets its own. What a crash leaves under the other name is
removed by the next one who makes the file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from commitlog.files import disk

__all__ = ["TEMPORARY_SUFFIX", "new_file", "replace_file"]

# What a file is called until it is whole.
TEMPORARY_SUFFIX = ".tmp"


def new_file(path: str, prepare: Callable[[int], None]) -> int:
    """Make a file whose name is on the device too; its descriptor, open for writing.

    ``prepare`` gets the descriptor and gives the file its size. ``OSError``; then nothing is left.
    """
    descriptor = _written(path, prepare)
    made = path + TEMPORARY_SUFFIX
    try:
        disk.rename(made, path)
        made = path
        disk.sync_directory(os.path.dirname(path))
    except BaseException:
        disk.close(descriptor)
        # Also under its own name: with that not on the device, the file is not to be used.
        _remove_quietly(made)
        raise
    return descriptor


def replace_file(path: str, data: bytes, *, keep_as: str = "") -> None:
    """Let the name stand for a new, synced file of these bytes. ``OSError``; then it stands for what it did before.

    ``keep_as`` is the name that the file of before gets, if there is one; after an error, or a crash in between, it may
    have that name alone. The names are on the device once the caller has synced the directory.
    """
    disk.close(_written(path, lambda descriptor: disk.write_at(descriptor, data, 0)))
    try:
        if keep_as and disk.exists(path):
            disk.rename(path, keep_as)
        disk.rename(path + TEMPORARY_SUFFIX, path)
    except OSError:
        _remove_quietly(path + TEMPORARY_SUFFIX)
        raise


def _written(path: str, prepare: Callable[[int], None]) -> int:
    """The file under its other name, synced and open. ``OSError``; then nothing is left."""
    temporary = path + TEMPORARY_SUFFIX
    if disk.exists(temporary):
        disk.unlink(temporary)
    descriptor = disk.create_file(temporary)
    try:
        prepare(descriptor)
        disk.sync(descriptor)
    except BaseException:
        disk.close(descriptor)
        _remove_quietly(temporary)
        raise
    return descriptor


def _remove_quietly(path: str) -> None:
    with contextlib.suppress(OSError):  # the next one who makes the file removes it first
        disk.unlink(path)
