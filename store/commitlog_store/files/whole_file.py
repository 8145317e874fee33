"""Atomic creation and replacement of files: a file is whole or does not exist, whenever the machine stops.

Each is written without a name, or under a temporary one, and synced before it gets its own. A file that a crash leaves
under the temporary name is removed when the file is made the next time.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable

from commitlog_store.errors import DiskFull, StoreIOError
from commitlog_store.files import disk
from commitlog_store.files.error_paths import errors_name, failed_writes
from commitlog_store.files.space import NO_SPACE

# The suffix of a file's name until it is whole.
TEMPORARY_SUFFIX = ".tmp"
# The suffix of the file that holds the space for the next content of another one.
RESERVE_SUFFIX = ".reserve"
# The errors of file systems without unnamed files, and of kernels without that call.
_NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
# The errors when naming an unnamed file is not supported, and where /proc is missing or may not be used for it.
_NO_NAMING = (errno.EOPNOTSUPP, errno.ENOENT, errno.EPERM, errno.EACCES, errno.EXDEV)


def new_file(path: str, prepare: Callable[[int], None], *, synced: bool = True) -> int:
    """Make a file whose name is on the device too; returns its descriptor, open for writing.

    Without ``synced``, neither its content nor its name is: the caller syncs both before anything relies on them.

    ``prepare`` gets the descriptor and gives the file its size. The file has no name during that: RocketMQ parses every
    name beside its own files as a number, and does not open a store with any other name. Where the file system has no
    unnamed files, the file gets a temporary name first. ``OSError``; then nothing is left.
    """
    made = path
    with errors_name(path):
        descriptor = _named_at_last(path, prepare, synced=synced)
        if descriptor is None:
            descriptor, made = _written(path, prepare, synced=synced), path + TEMPORARY_SUFFIX
    try:
        if made != path:
            disk.rename(made, path)
            made = path
        if synced:
            disk.sync_directory(os.path.dirname(path))
    except BaseException:
        disk.close(descriptor)
        # Also under its own name: while that is not on the device, the file must not be used.
        _remove_quietly(made)
        raise
    return descriptor


def _named_at_last(path: str, prepare: Callable[[int], None], *, synced: bool) -> int | None:
    """The named file; None where unnamed files are not supported. ``OSError``; then nothing is left."""
    if disk.exists(path):
        return None  # only a rename replaces another file
    try:
        descriptor = disk.create_unnamed_file(os.path.dirname(path))
    except OSError as error:
        if error.errno not in _NO_UNNAMED_FILES:
            raise
        return None
    try:
        prepare(descriptor)
        if synced:
            disk.sync(descriptor)
        disk.give_name(descriptor, path)
    except OSError as error:
        if error.errno in _NO_NAMING:
            return None
        raise
    finally:
        disk.close(descriptor)  # the system would still treat it as unnamed
    try:
        return disk.open_for_writing(path)
    except BaseException:
        _remove_quietly(path)
        raise


def make_file_once(path: str, data: bytes) -> bool | None:
    """Make a file of these bytes, whole and on the device before it has its name; False if there is one of that name.

    None where the file system has no unnamed files: nothing is made. The directories above it are made, too, and the
    name is on the device once the caller has synced them. ``OSError``.
    """
    with errors_name(path):
        _make_directory_of(path)
        try:
            descriptor = _named_at_last(path, lambda descriptor: disk.write_at(descriptor, data, 0), synced=True)
        except FileExistsError:
            return False
    if descriptor is None:
        return False if disk.exists(path) else None
    disk.close(descriptor)
    return True


def _make_directory_of(path: str) -> None:
    directory = os.path.dirname(path)
    if not disk.is_directory(directory):
        _make_directory_of(directory)
        with contextlib.suppress(FileExistsError):
            disk.make_directory(directory)


def replace_file(path: str, data: bytes, *, keep_as: str = "", from_reserve: bool = False) -> None:
    """Replace the file by a new, synced one of these bytes. ``OSError``; then the name has the old file.

    ``keep_as`` is the new name of the old file, if it exists. After a crash in between, or when it cannot be given its
    old name back, the old file has that name alone. The names are on the device once the caller has synced the
    directory. ``from_reserve``: on a full disk, the new file takes the space of ``reserve_space``.
    """
    with errors_name(path):
        try:
            disk.close(_written(path, lambda descriptor: disk.write_at(descriptor, data, 0)))
        except OSError as error:
            reserved = disk.file_size(path + RESERVE_SUFFIX) if from_reserve else -1
            if error.errno not in NO_SPACE or reserved < len(data):
                raise
            _write_into_reserve(path, data)
    is_kept = False
    try:
        if keep_as and disk.exists(path):
            disk.rename(path, keep_as)
            is_kept = True
        disk.rename(path + TEMPORARY_SUFFIX, path)
    except OSError as error:
        _remove_quietly(path + TEMPORARY_SUFFIX)
        if is_kept:
            try:
                disk.rename(keep_as, path)
            except OSError:  # none that says that the file is as it was
                raise OSError(errno.EIO, f"{error.strerror}; the old file is {keep_as}", path) from error
        raise


def replace_durably(path: str, data: bytes, *, keep_as: str = "", from_reserve: bool = False) -> None:
    """``replace_file``, then syncs the directory. ``DiskFull``, ``StoreIOError`` as ``replace_failed``.

    Once the file is replaced, every failure is ``StoreIOError``: after a crash, the old file may be there.
    """
    try:
        replace_file(path, data, keep_as=keep_as, from_reserve=from_reserve)
    except OSError as error:
        raise replace_failed(path, error) from error
    sync_names_beside(path)


def replace_synced(path: str, data: bytes) -> None:
    """``replace_file``, then syncs the directory. ``OSError``: the name has the old file, or the new one."""
    replace_file(path, data)
    disk.sync_directory(os.path.dirname(path))


def sync_names_beside(path: str) -> None:
    """Sync the directory of a file that was replaced. ``StoreIOError``: after a crash, the old one may be there."""
    with failed_writes(path):
        disk.sync_directory(os.path.dirname(path))


def reserve_space(path: str, size: int) -> None:
    """Reserve the space for a new content of a file, unless that much is reserved. ``OSError``; then none is.

    A file beside it has the space. It is not synced: after a crash it may be missing, and is made again.
    """
    reserve = path + RESERVE_SUFFIX
    with errors_name(reserve):
        if disk.file_size(reserve) >= size:
            return
        _remove_quietly(reserve)
        descriptor = disk.create_file(reserve)
        try:
            disk.allocate(descriptor, 0, size)
        except BaseException:
            _remove_quietly(reserve)
            raise
        finally:
            disk.close(descriptor)


def _write_into_reserve(path: str, data: bytes) -> None:
    """The file under its temporary name, synced, in the space of the reserve. ``OSError``; then the reserve is gone."""
    temporary = path + TEMPORARY_SUFFIX
    disk.rename(path + RESERVE_SUFFIX, temporary)
    try:
        descriptor = disk.open_for_writing(temporary)
        try:
            disk.write_at(descriptor, data, 0)
            disk.truncate(descriptor, len(data))
            disk.sync(descriptor)
        finally:
            disk.close(descriptor)
    except BaseException:
        _remove_quietly(temporary)
        raise


def replace_failed(path: str, error: OSError) -> DiskFull | StoreIOError:
    """The named error of a file that could not be replaced.

    ``DiskFull`` without space for it, else ``StoreIOError``, for a denied permission too: most of these files count
    what is in the log already, and no call may say then that nothing was written. ``JsonConfigFile``, whose call writes
    nothing else, raises ``StoreAccessDenied`` for that.
    """
    if error.errno in NO_SPACE:
        return DiskFull("write", path=path, cause=error, advice="It is as it was. Free some space and try again.")
    return StoreIOError("write", path=path, cause=error)


def _written(path: str, prepare: Callable[[int], None], *, synced: bool = True) -> int:
    """The file under its temporary name, open. ``OSError``; then nothing is left."""
    temporary = path + TEMPORARY_SUFFIX
    if disk.exists(temporary):
        disk.unlink(temporary)
    descriptor = disk.create_file(temporary)
    try:
        prepare(descriptor)
        if synced:
            disk.sync(descriptor)
    except BaseException:
        disk.close(descriptor)
        _remove_quietly(temporary)
        raise
    return descriptor


def _remove_quietly(path: str) -> None:
    with contextlib.suppress(OSError):  # it is removed when the file is made the next time
        disk.unlink(path)
