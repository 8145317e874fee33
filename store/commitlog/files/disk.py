"""Every call to the operating system that touches a store's files stands here, so that tests can fail or cut each one.

A refusal by the operating system is ``StoreAccessDenied`` at once, whatever the file was for, and a directory or a pipe
where a file should be is ``NotAStore``. Other failures stay ``OSError``; the callers, who know what the file is for,
turn those they expect into the named errors.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from commitlog.errors import NotAStore, StoreAccessDenied

__all__ = [
    "DirectorySignature",
    "FileIdentity",
    "close",
    "directory_signature",
    "drop_pages",
    "exists",
    "file_size",
    "identity",
    "is_directory",
    "list_names",
    "map_file",
    "mapped_bytes",
    "open_file",
    "populate_pages",
    "read_at",
    "read_file",
    "size_of",
    "tree_files",
]


# Linux's number; Python's mmap module has no name for it.
_MADV_POPULATE_READ = 22
# What it answers where touching a page would kill the process: beyond the end, or a page the memory has lost.
_UNREADABLE = (errno.EFAULT, getattr(errno, "EHWPOISON", errno.EFAULT))
# The unit of st_blocks, whatever the file system's own is.
_STAT_BLOCK_SIZE = 512


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Which file a path led to, and how long it was. Another file at the same path has another identity."""

    device: int
    inode: int
    size: int


class DirectorySignature(NamedTuple):
    """Changes whenever a name in the directory appears or goes, or another directory takes its place."""

    device: int
    inode: int
    modified_ns: int


def _denied(path: str) -> StoreAccessDenied:
    return StoreAccessDenied(f"No permission to read {path}: run as a user who may, or change its mode.", path=path)


def _no_file(path: str) -> NotAStore:
    return NotAStore(f"{path} should be a file of the store, but is a directory, a pipe or a device.", path=path)


def open_file(path: str) -> int:
    """Open a regular file for reading. Anything else at the path is refused: a pipe would block the reader for ever."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except PermissionError as error:
        raise _denied(path) from error
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ELOOP):  # a socket; a link that leads to itself
            raise _no_file(path) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _no_file(path)
    return descriptor


def close(descriptor: int) -> None:
    os.close(descriptor)


def read_at(descriptor: int, length: int, offset: int) -> bytes:
    """Up to ``length`` bytes from ``offset``; fewer only at the end of the file."""
    data = os.pread(descriptor, length, offset)
    if len(data) == length or not data:
        return data
    parts = [data]
    missing = length - len(data)
    while missing:
        data = os.pread(descriptor, missing, offset + length - missing)
        if not data:
            break
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


def read_file(path: str, limit: int) -> bytes:
    """The whole of a small file; ``OSError`` (EFBIG) when it is longer than ``limit``."""
    descriptor = open_file(path)
    try:
        data = read_at(descriptor, limit + 1, 0)
    finally:
        os.close(descriptor)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"longer than {limit} bytes", path)
    return data


def size_of(descriptor: int) -> int:
    return os.fstat(descriptor).st_size


def identity(descriptor: int) -> FileIdentity:
    found = os.fstat(descriptor)
    return FileIdentity(found.st_dev, found.st_ino, found.st_size)


def list_names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except PermissionError as error:
        raise _denied(path) from error


def directory_signature(path: str) -> DirectorySignature:
    """``NotADirectoryError`` when the path is something else."""
    try:
        found = os.stat(path)
    except PermissionError as error:
        raise _denied(path) from error
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    return DirectorySignature(found.st_dev, found.st_ino, found.st_mtime_ns)


def exists(path: str) -> bool:
    return os.path.lexists(path)


def is_directory(path: str) -> bool:
    return os.path.isdir(path)


def file_size(path: str) -> int:
    """Bytes of a file; 0 when it is not there (any more)."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def tree_files(directory: str) -> Iterator[tuple[str, int]]:
    """Every file below a directory with the bytes it takes on disk, holes not counted."""
    for parent, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(parent, name)
            try:
                yield path, os.lstat(path).st_blocks * _STAT_BLOCK_SIZE
            except FileNotFoundError:
                continue


def map_file(descriptor: int, size: int) -> mmap.mmap:
    """The first ``size`` bytes, shared and read-only."""
    return mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)


def populate_pages(mapping: mmap.mmap, start: int, stop: int) -> bool:
    """Fault in ``[start, stop)`` in one call, which is cheaper than page by page; False where there is no such call
    (before Linux 5.14). ``OSError`` (EFAULT) where a page cannot be had: touching it would kill the process."""
    first = start - start % mmap.PAGESIZE
    try:
        mapping.madvise(_MADV_POPULATE_READ, first, stop - first)
    except OSError as error:
        if error.errno in _UNREADABLE:
            raise
        # Not every kernel has it, and not every sandbox allows it; page by page works everywhere.
        return False
    return True


def drop_pages(mapping: mmap.mmap, start: int, stop: int) -> None:
    """Give back the pages of ``[start, stop)``: they stay in the page cache, but no longer count as this process's."""
    first = start - start % mmap.PAGESIZE
    if hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED, first, stop - first)


def mapped_bytes(mapping: mmap.mmap, start: int, stop: int) -> npt.NDArray[np.uint8]:
    """The bytes ``[start, stop)`` of a mapping, without a copy. The array keeps the mapping alive."""
    return np.frombuffer(mapping, np.uint8, stop - start, start)
