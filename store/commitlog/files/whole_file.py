"""Files that are whole or not there at all, whenever the machine stops.

Each is written without a name, or under another one, and synced before it gets its own. What a crash leaves under the
other name is removed by the next one who makes the file.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable

from commitlog.files import disk
from commitlog.files.error_paths import errors_name

__all__ = ["TEMPORARY_SUFFIX", "new_file", "replace_file"]

# What a file is called until it is whole.
TEMPORARY_SUFFIX = ".tmp"
# What file systems say that know no files without names, and kernels that do not know the question.
_NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
# What they say to one without a name that is to get one, and where there is no /proc, or no leave to use it so.
_NO_NAMING = (errno.EOPNOTSUPP, errno.ENOENT, errno.EPERM, errno.EACCES, errno.EXDEV)


def new_file(path: str, prepare: Callable[[int], None]) -> int:
    """Make a file whose name is on the device too; its descriptor, open for writing.

    ``prepare`` gets the descriptor and gives the file its size. It has no name meanwhile: RocketMQ takes every name
    that it finds beside its own files for a number, and does not open a store in which one is none. Where the file
    system knows no files without names it gets another one first. ``OSError``; then nothing is left.
    """
    made = path
    with errors_name(path):
        descriptor = _named_at_last(path, prepare)
        if descriptor is None:
            descriptor, made = _written(path, prepare), path + TEMPORARY_SUFFIX
    try:
        if made != path:
            disk.rename(made, path)
            made = path
        disk.sync_directory(os.path.dirname(path))
    except BaseException:
        disk.close(descriptor)
        # Also under its own name: with that not on the device, the file is not to be used.
        _remove_quietly(made)
        raise
    return descriptor


def _named_at_last(path: str, prepare: Callable[[int], None]) -> int | None:
    """The file, synced, and given its name; None where that cannot be done. ``OSError``; then nothing is left."""
    if disk.exists(path):
        return None  # only a rename takes a name from another file
    try:
        descriptor = disk.create_unnamed_file(os.path.dirname(path))
    except OSError as error:
        if error.errno not in _NO_UNNAMED_FILES:
            raise
        return None
    try:
        prepare(descriptor)
        disk.sync(descriptor)
        disk.give_name(descriptor, path)
    except OSError as error:
        if error.errno in _NO_NAMING:
            return None
        raise
    finally:
        disk.close(descriptor)  # to the system it would stay one without a name
    try:
        return disk.open_for_writing(path)
    except BaseException:
        _remove_quietly(path)
        raise


def replace_file(path: str, data: bytes, *, keep_as: str = "") -> None:
    """Let the name stand for a new, synced file of these bytes. ``OSError``; then it stands for what it did before.

    ``keep_as`` is the name that the file of before gets, if there is one; after an error, or a crash in between, it may
    have that name alone. The names are on the device once the caller has synced the directory.
    """
    with errors_name(path):
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
