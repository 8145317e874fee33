"""File operations: every system call on a store's files stands here, so that tests can fail or cut each one.

A refusal by the operating system to open something is ``StoreAccessDenied`` at once, whatever the file was for, and a
directory, a pipe or (for writing) a symbolic link where a file should be is ``NotAStore``. Without a free descriptor it
is ``TooManyOpenFiles``. Other failures stay ``OSError``; the callers, which know the file's purpose, turn those they
expect into the named errors.

A store is changed only through ``create_file``, ``open_for_writing``, ``allocate``, ``punch_hole``, ``write_at``,
``store_mapped``, ``sync``, ``truncate``, ``rename``, ``unlink``, ``make_directory``, ``remove_directory`` and
``sync_directory``: a test that records these calls knows every byte that a crash could lose.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import mmap
import os
import stat
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from commitlog_store.errors import InvalidValue, NotAStore, StoreAccessDenied, TooManyOpenFiles
from commitlog_store.files.held_files import held_file
from commitlog_store.files.limits import most_open_files
from commitlog_store.paths import is_encodable, path_fault, without_secrets

# The flag with which reading leaves the time of the last access as it is.
_NO_ACCESS_TIME = getattr(os, "O_NOATIME", 0)

# The flag with which a read does not wait for the device; Linux has it.
_NOT_WAITING = getattr(os, "RWF_NOWAIT", None)
# The answers of systems and file systems that do not know it.
_UNKNOWN_FLAG = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})

# Data to write: anything with a buffer. (numpy's arrays have one; their type says so from Python 3.12 on.)
Bytes: TypeAlias = Any
_Fields = TypeVar("_Fields")

_STAT_BLOCK_SIZE = 512  # the unit of st_blocks on every file system


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Device, inode and size of a file. Another file at the same path has another identity."""

    device: int
    inode: int
    size: int


class DirectorySignature(NamedTuple):
    """Signature of a directory: differs after a name is added or removed, or another directory takes its place."""

    device: int
    inode: int
    modified_ns: int


def absolute_path(path: object) -> str:
    """The absolute path of a store's directory that a caller names; ``~/`` is the home directory, as in a shell.

    ``InvalidValue`` if it cannot be one: an empty text comes from a variable that was not set. ``NotAStore`` for a URI
    and for a network address.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or not text or "\0" in text or not is_encodable(text):
        raise InvalidValue(f"path is the directory of a store, a text or a pathlib.Path, not {path!r}.")
    if fault := path_fault(text):
        text = without_secrets(text)
        raise NotAStore(f"{text!r} is not the path of a store's directory. {fault}", path=text)
    return os.path.abspath(with_home(text))


def _denied(path: str) -> StoreAccessDenied:
    return StoreAccessDenied(f"No permission to read {path}: run as a user who may, or change its mode.", path=path)


def _no_file(path: str) -> NotAStore:
    return NotAStore(f"{path} should be a file of the store, but is a directory, a pipe or a device.", path=path)


def _no_file_to_write(path: str) -> NotAStore:
    if not os.path.islink(path):
        return _no_file(path)
    return NotAStore(
        f"{path} is a symbolic link, which an owner does not follow: put the file in its place. Readers follow it.",
        path=path,
    )


@contextlib.contextmanager
def taking_descriptor(path: str | int) -> Iterator[None]:
    """A system call that takes a descriptor of a path, or another one of an open file.

    ``TooManyOpenFiles`` when none is free; nothing has changed then.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        limit = most_open_files() if error.errno == errno.EMFILE else None
        name = path if isinstance(path, str) else _path_of(path)
        raise TooManyOpenFiles(path=name, cause=error, limit=limit) from error


def _path_of(descriptor: int) -> str:
    """The path of an open file, where the system reports it."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return "a file"


def _open(path: str, flags: int, mode: int = 0) -> int:
    try:
        return os.open(path, flags, mode)
    except OSError:
        with taking_descriptor(path):  # only here: entering it takes as long as half of the call
            raise


def _open_unseen(path: str, flags: int) -> int:
    """Open for reading, and leave the time of the last access as it is, where the system allows that."""
    try:
        return _open(path, flags | _NO_ACCESS_TIME)
    except PermissionError:
        if not _NO_ACCESS_TIME:
            raise
        return _open(path, flags)  # another user's file


def open_file(path: str) -> int:
    """Open a regular file for reading. Anything else at the path is refused: a pipe would block the reader."""
    try:
        descriptor = _open_unseen(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except PermissionError as error:
        raise _denied(path) from error
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ELOOP):  # a socket; a link that leads to itself
            raise _no_file(path) from error
        raise
    return _of_regular_file(descriptor, path)


def _of_regular_file(descriptor: int, path: str) -> int:
    """The descriptor; of anything else than a regular file, it is closed and refused."""
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
    while missing and (data := os.pread(descriptor, missing, offset + length - missing)):
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


class CachedUnknown(OSError):
    """The system, or the file system, cannot say which parts of a file are in memory."""


def read_cached(descriptor: int, length: int, offset: int) -> bytearray | None:
    """``length`` bytes from ``offset`` if the page cache has them all; None where the read would wait for the device.

    ``CachedUnknown``.
    """
    if _NOT_WAITING is None:
        raise CachedUnknown
    data = bytearray(length)
    try:
        return data if os.preadv(descriptor, [data], offset, _NOT_WAITING) == length else None
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno in _UNKNOWN_FLAG:
            raise CachedUnknown from error
        raise


def read_into(descriptor: int, buffer: memoryview, offset: int) -> int:
    """Fill ``buffer`` with the bytes from ``offset``; returns their number, smaller only at the end of the file."""
    done = 0
    while done < len(buffer) and (count := os.preadv(descriptor, [buffer[done:]], offset + done)):
        done += count
    return done


def read_file(path: str, limit: int) -> bytes:
    """The whole of a small file, also of one in memory (``HeldFiles``); ``OSError`` (EFBIG) when it is longer than
    ``limit``."""
    held = held_file(path)
    if held is not None:
        return _short(held, path, limit)
    descriptor = open_file(path)
    try:
        length = min(size_of(descriptor), limit) + 1  # not the limit: so much memory may not be available
        data = read_at(descriptor, length, 0)
        while len(data) == length <= limit:  # it has grown
            length = min(2 * length, limit + 1)
            data = read_at(descriptor, length, 0)
    finally:
        os.close(descriptor)
    return _short(data, path, limit)


def _short(data: bytes, path: str, limit: int) -> bytes:
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"longer than {limit} bytes", path)
    return data


def size_of(descriptor: int) -> int:
    return os.fstat(descriptor).st_size


def identity(descriptor: int) -> FileIdentity:
    found = os.fstat(descriptor)
    return FileIdentity(found.st_dev, found.st_ino, found.st_size)


def identity_of(path: str) -> FileIdentity:
    """``identity`` of a file that is to be opened for writing later. ``NotAStore`` for anything but a regular file."""
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode):
        raise _no_file_to_write(path)
    return FileIdentity(found.st_dev, found.st_ino, found.st_size)


def _open_directory(path: str) -> int:
    try:
        return _open_unseen(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    except PermissionError as error:
        raise _denied(path) from error


def check_may_list(path: str) -> None:
    """``StoreAccessDenied`` for a directory that ``list_names`` may not read, without the time that its names take."""
    os.close(_open_directory(path))


def list_names(path: str) -> list[str]:
    descriptor = _open_directory(path)
    try:
        return os.listdir(descriptor)
    except OSError:
        with taking_descriptor(path):  # only here, as in _open
            raise
    finally:
        os.close(descriptor)


def list_directories(path: str) -> list[str]:
    """The names in a directory that are directories; what the listing itself says, so that none is looked at."""
    descriptor = _open_directory(path)
    try:
        with taking_descriptor(path), os.scandir(descriptor) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    finally:
        os.close(descriptor)


def directory_signature(path: str) -> DirectorySignature:
    """``NotADirectoryError`` when the path is something else."""
    try:
        found = os.stat(path)
    except PermissionError as error:
        raise _denied(path) from error
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    return signature_of(found)


def signature_of(found: os.stat_result) -> DirectorySignature:
    """The signature of a directory of which the system said this."""
    return DirectorySignature(found.st_dev, found.st_ino, found.st_mtime_ns)


def shows_mapped_writes(device: int) -> bool:
    """Whether a write through a mapping sets the times of a file on this device, for every process at once.

    Not in tmpfs; and a network file system asks for times every few seconds only. These have no device of their own.
    """
    return os.major(device) > 0


def stamp(path: str) -> os.stat_result | None:
    """What the system says of a file or directory, links not followed; None when it does not exist or is denied.

    Every change of a file's bytes or of a directory's names sets ``st_ctime_ns``, which no program can set back.
    """
    try:
        return os.lstat(path)
    except OSError:
        return None


def stamps(paths: Sequence[str], fields_of: Callable[[os.stat_result], _Fields]) -> list[_Fields | None]:
    """What ``fields_of`` makes of the ``stamp`` of each path; None where it is None."""
    try:
        return [fields_of(os.lstat(path)) for path in paths]
    except OSError:
        return [None if (found := stamp(path)) is None else fields_of(found) for path in paths]


def boot_id() -> bytes:
    """The id of this start of the machine, 16 bytes; empty where the system has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return bytes.fromhex(file.read(64).decode("ascii").replace("-", ""))[:16]
    except (OSError, ValueError):
        return b""


def surely_has_names(path: str) -> bool:
    """Whether a directory has others in it, by its number of links: at a fifth of the cost of a list.

    False says nothing: files have no part in the number, and some file systems do not count directories.
    """
    try:
        found = os.stat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_nlink > _LINKS_OF_EMPTY


def exists(path: str) -> bool:
    return os.path.lexists(path)


def mode_of(path: str) -> int | None:
    """The kind and permissions of what is at the path, a link's own; None when nothing is. ``OSError``."""
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return None


def is_directory(path: str) -> bool:
    return os.path.isdir(path)


def is_file(path: str) -> bool:
    """Whether the path is a regular file, and not a link to one."""
    return os.path.isfile(path) and not os.path.islink(path)


def may_read(path: str) -> bool:
    """Whether this process may read a file, or list a directory."""
    return _may(path, os.R_OK | (os.X_OK if os.path.isdir(path) else 0))


def may_write(path: str) -> bool:
    """Whether this process may write a file, or make and remove names in a directory. False on a read-only mount."""
    return _may(path, os.W_OK | (os.X_OK if os.path.isdir(path) else 0))


def _may(path: str, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def file_size(path: str) -> int:
    """Bytes of a file; 0 when it does not exist (any more)."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _raise_without_descriptor(error: OSError) -> None:
    """For a walk that skips directories that it cannot list."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        with taking_descriptor(str(error.filename)):
            raise error


def tree_files(directory: str) -> Iterator[tuple[str, int]]:
    """Every file below a directory with the bytes it takes on disk, holes not counted. Links are not followed."""
    parents = [directory]
    while parents:
        try:
            with os.scandir(parents.pop()) as listed:
                entries = list(listed)
        except OSError as error:
            _raise_without_descriptor(error)
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                parents.append(entry.path)
            elif not (entry.is_symlink() and os.path.isdir(entry.path)):
                with contextlib.suppress(FileNotFoundError):
                    yield entry.path, entry.stat(follow_symlinks=False).st_blocks * _STAT_BLOCK_SIZE


def map_file(descriptor: int, size: int) -> mmap.mmap:
    """The first ``size`` bytes, shared and read-only."""
    with taking_descriptor(descriptor):  # Python's mmap takes one of its own
        return mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)


def mapped_bytes(mapping: mmap.mmap, start: int, stop: int) -> npt.NDArray[np.uint8]:
    """The bytes ``[start, stop)`` of a mapping, without a copy. The array keeps the mapping alive."""
    return np.frombuffer(mapping, np.uint8, stop - start, start)


# Links of an empty directory: its name and ``.``; each directory in it adds one.
_LINKS_OF_EMPTY = 2
# Files and directories that the store creates are accessible to its user only; those for others as the umask says.
_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700
_SHARED_FILE_MODE = 0o666
_SHARED_DIRECTORY_MODE = 0o777
# Linux's flags for a call that makes a hole, and leaves the file's size as it is.
_FALLOC_KEEP_SIZE, _FALLOC_PUNCH_HOLE = 1, 2
# The call for a sync on macOS, where fsync leaves the bytes in the drive's cache.
_F_FULLFSYNC = 51
# The call for a hole on macOS, and its argument (fpunchhole_t): flags, reserved, offset, length.
_F_PUNCHHOLE = 99
_FPUNCHHOLE = struct.Struct("=IIqq")
_ZEROS = bytes(1 << 20)


def create_file(path: str, *, shared: bool = False) -> int:
    """Make a new file, and open it for reading and writing. ``FileExistsError``.

    ``shared``: other users get the permissions that the umask leaves them.
    """
    mode = _SHARED_FILE_MODE if shared else _FILE_MODE
    return _open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)


def create_unnamed_file(directory: str) -> int:
    """Make a file without a name, open for reading and writing. ``OSError`` where the file system has no such files."""
    if not hasattr(os, "O_TMPFILE"):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), directory)
    return _open(directory, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, _FILE_MODE)


def give_name(descriptor: int, path: str) -> None:
    """Give a file without a name one. ``FileExistsError``."""
    # Any number serves as src_dir_fd, since the path is absolute; without one, os.link would link the link in /proc.
    os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)


def open_for_writing(path: str) -> int:
    """Open a regular file for reading and writing; a symbolic link is not followed (invariant 10)."""
    try:
        descriptor = _open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except PermissionError as error:
        raise StoreAccessDenied(
            f"No permission to write {path}: run as the store's user, or change its mode.", path=path
        ) from error
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ELOOP, errno.EISDIR):
            raise _no_file_to_write(path) from error
        raise
    return _of_regular_file(descriptor, path)


def allocate(descriptor: int, offset: int, length: int) -> None:
    """Give the bytes ``[offset, offset + length)`` space on the device, the file extended to hold them. New space is
    zero. ``OSError`` (ENOSPC) without room: better here than as a SIGBUS at the first touch of a page."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, offset, length)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:  # of musl, for a file system that cannot; glibc writes then, as here
                raise
        else:
            return
    if os.fstat(descriptor).st_size < offset + length:
        os.ftruncate(descriptor, offset + length)
    _fill_holes(descriptor, offset, offset + length)


def _fill_holes(descriptor: int, start: int, stop: int) -> None:
    """Write zeros into the holes of ``[start, stop)``, where no other thread writes.

    So it is done on macOS: its F_PREALLOCATE adds space at the end of a file only, and these have their full size.
    """
    at = start
    for first, last in [*data_extents(descriptor, start, stop), (stop, stop)]:
        for piece in range(at, first, len(_ZEROS)):
            write_at(descriptor, memoryview(_ZEROS)[: first - piece], piece)
        at = last


def punch_hole(descriptor: int, offset: int, length: int) -> None:
    """Take the space of the bytes ``[offset, offset + length)``, which are zero from then on; the size stays.

    ``OSError`` (EOPNOTSUPP) where the system, or the file system, has no such call.
    """
    if sys.platform == "darwin":
        _punch_on_macos(descriptor, offset, length)
        return
    call = _fallocate()
    if call is None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    while call(descriptor, _FALLOC_KEEP_SIZE | _FALLOC_PUNCH_HOLE, offset, length):
        if (code := ctypes.get_errno()) != errno.EINTR:
            raise OSError(code, os.strerror(code))


def _punch_on_macos(descriptor: int, offset: int, length: int) -> None:
    import fcntl

    try:
        fcntl.fcntl(descriptor, _F_PUNCHHOLE, _FPUNCHHOLE.pack(0, 0, offset, length))
    except OSError as error:
        # For bytes that are not whole blocks, and of APFS at times for a hole beside another one.
        if error.errno == errno.EINVAL:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP)) from error
        raise


@functools.cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """Linux's ``fallocate``, which Python has no name for."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return call


def write_at(descriptor: int, data: Bytes, offset: int) -> None:
    """Write all of ``data`` at ``offset``. ``OSError``; then an unknown part of it may have been written."""
    written = os.pwrite(descriptor, data, offset)
    while written < len(data):
        written += os.pwrite(descriptor, memoryview(data)[written:], offset + written)


def sync(descriptor: int) -> None:
    """Return when the file's written bytes are on the device. Dirty pages of its mappings count as written."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(descriptor, _F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


def sync_directory(path: str) -> None:
    """Return when the names in the directory are on the device."""
    descriptor = _open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def truncate(descriptor: int, size: int) -> None:
    """Cut the file to ``size`` bytes, or extend it with a hole that reads as zero."""
    os.ftruncate(descriptor, size)


def rename(source: str, target: str) -> None:
    """Give a file another name; a file that had that name is replaced in the same moment."""
    os.replace(source, target)


def unlink(path: str) -> None:
    """Remove a file's name. Open descriptors and mappings keep its content."""
    os.unlink(path)


def make_directory(path: str, *, shared: bool = False) -> None:
    """Make one directory. ``FileExistsError``. ``shared`` as for ``create_file``."""
    os.mkdir(path, _SHARED_DIRECTORY_MODE if shared else _DIRECTORY_MODE)


def remove_directory(path: str) -> None:
    """Remove an empty directory."""
    os.rmdir(path)


def real_path(path: str) -> str:
    """The path without symbolic links; of one that does not exist, those of its directories are resolved."""
    return os.path.realpath(path)


def with_home(path: str) -> str:
    """The path with a home directory in place of a ``~`` at its start, as a shell has it."""
    return os.path.expanduser(path)


def is_symlink(path: str) -> bool:
    return os.path.islink(path)


def data_extents(descriptor: int, start: int, stop: int) -> list[tuple[int, int]]:
    """The stretches of ``[start, stop)`` that are not holes of the file, all of them before one is read.

    Where the file system cannot tell holes, all is one stretch.

    Allocated space that was never written counts as data once the kernel has read it ahead: a caller that asked again
    after each stretch would chase that through the whole file.
    """
    at, extents = start, []
    try:
        while at < stop and (first := os.lseek(descriptor, at, os.SEEK_DATA)) < stop:
            at = min(os.lseek(descriptor, first, os.SEEK_HOLE), stop)
            extents.append((first, at))
    except OSError as error:
        if error.errno == errno.EINVAL:
            return [(start, stop)]
        if error.errno != errno.ENXIO:  # no more data up to the end
            raise
    return extents


def first_hole(descriptor: int, start: int) -> int:
    """Where the first hole at or after ``start`` begins; the file's end, if none comes before it.

    In tmpfs the kernel looks at each page up to there: 17 ms for 1 GiB.
    """
    try:
        return os.lseek(descriptor, start, os.SEEK_HOLE)
    except OSError as error:
        if error.errno == errno.EINVAL:  # the file system cannot tell holes
            return size_of(descriptor)
        if error.errno != errno.ENXIO:  # the file ends before
            raise
        return start


def map_for_writing(descriptor: int, size: int) -> mmap.mmap:
    """The first ``size`` bytes, shared and writable. A write to one without space kills the process on a full disk."""
    try:
        with taking_descriptor(descriptor):
            return mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    except ValueError as error:  # raised by mmap, not by the operating system, for a shorter file
        raise OSError(errno.ESTALE, f"the file has less than {size} bytes: another program truncated it") from error


def store_mapped(
    target: npt.NDArray[Any], indexes: npt.NDArray[np.int64], values: npt.NDArray[Any], *, descriptor: int, offset: int
) -> None:
    """Scatter ``values`` into an array over a writable mapping: ``target[indexes] = values``.

    ``target`` starts at byte ``offset`` of the file that ``descriptor`` has open. Of equal indexes the last wins.
    """
    del descriptor, offset  # for tests that record writes
    target[indexes] = values


def write_mapped(mapping: mmap.mmap, data: Bytes, offset: int, *, descriptor: int) -> None:
    """Write ``data`` at ``offset`` through a writable mapping of the file that ``descriptor`` has open."""
    del descriptor  # for tests that record writes
    mapping[offset : offset + len(data)] = data


def file_signature(path: str) -> tuple[int, ...]:
    """Signature of a file: differs after a write, or when another file takes its place. ``FileNotFoundError``."""
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def modified_at(path: str) -> float:
    """When a file or a directory's names changed last, in seconds since the epoch; a link's own time."""
    return os.lstat(path).st_mtime


def size_at(path: str) -> int:
    """The bytes of a file; a link's own."""
    return os.lstat(path).st_size


def file_key(path: str) -> tuple[int, int] | None:
    """Device and inode of the path's file or directory; None when it does not exist."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
