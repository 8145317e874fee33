"""The owner's lock: a POSIX record lock on byte 0 of ``<store>/lock``, the one that RocketMQ takes.

Such a lock belongs to the process and drops when *any* descriptor of the file is closed, so a second lock in the same
process would be granted, and its release would drop the first one. A table of the process's locks prevents both.

Source: RocketMQ ``store/DefaultMessageStore.java`` (``start``: ``lockFile.getChannel().tryLock(0, 1, false)``).
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import sys
import threading
import time
from collections.abc import Callable

from commitlog_store.errors import ReadFailed, StoreLocked
from commitlog_store.files import disk

try:
    import fcntl
except ImportError as error:
    raise ImportError("Writing a store needs POSIX record locks (fcntl), which this platform does not have.") from error


_CONTENT = b"lock"
_RETRY_SECONDS = 0.01

# Linux's struct flock with 64-bit offsets: l_type, l_whence, l_start, l_len, l_pid.
_FLOCK = struct.Struct("hhqqi4x")


class _Held:
    """The locks that this process holds, by device and inode of their files."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.keys: set[tuple[int, int]] = set()
        self.lock = threading.Lock()


_held = _Held()


class StoreLock:
    """The lock of one store, held from ``acquire`` to ``release``."""

    def __init__(self, path: str, descriptor: int, key: tuple[int, int]) -> None:
        self.path = path
        self._descriptor = descriptor
        self._key = key
        self._process = os.getpid()

    @classmethod
    def acquire(cls, path: str, *, timeout_s: float = 0.0, given_up: Callable[[], bool] = lambda: False) -> StoreLock:
        """Take the lock, waiting for its holder up to ``timeout_s`` seconds, or until ``given_up()``.

        ``StoreLocked`` names the holder.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return cls._acquire_now(path)
            except StoreLocked as error:
                if not timeout_s:
                    raise
                if time.monotonic() >= deadline or given_up():
                    waited = f"{error} Waited {timeout_s:g} s for it."
                    raise StoreLocked(waited, path=error.path, holder=error.holder) from error
            time.sleep(_RETRY_SECONDS)

    @classmethod
    def _acquire_now(cls, path: str) -> StoreLock:
        with _held.lock:
            # Checked before the file is opened: closing another descriptor would drop the lock that is held.
            found = disk.file_key(path)
            if found in _held.keys:
                raise _refusal(path, os.getpid())
            try:
                descriptor = disk.open_for_writing(path) if found is not None else disk.create_file(path)
            except FileExistsError:
                descriptor = disk.open_for_writing(path)
            identity = disk.identity(descriptor)
            key = (identity.device, identity.inode)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            except OSError as error:
                holder = _holder(descriptor)
                disk.close(descriptor)
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    raise _refusal(path, holder or None) from error
                raise ReadFailed("lock", path=path, cause=error) from error
            _held.keys.add(key)
        if identity.size == 0:
            # RocketMQ writes it too, and no program reads it: a full disk is not a reason to refuse.
            with contextlib.suppress(OSError):
                disk.write_at(descriptor, _CONTENT, 0)
        return cls(path, descriptor, key)

    def release(self) -> None:
        """Release the lock. In a forked child this does nothing: the lock is the parent's."""
        if os.getpid() != self._process:
            return
        with _held.lock:
            _held.keys.discard(self._key)
            disk.close(self._descriptor)


def lock_holder(path: str) -> int | None:
    """The id of the process that holds a store's lock; None without one.

    0 if it is a process that this one cannot see, as in another container. None too where the system does not report
    locks (only Linux does). Takes no lock and changes nothing. ``OSError``.
    """
    with _held.lock:  # this process must not take the lock before the descriptor is closed: that would drop it again
        if disk.file_key(path) in _held.keys:
            return os.getpid()
        try:
            descriptor = disk.open_file(path)
        except FileNotFoundError:
            return None
        try:
            return _holder(descriptor)
        finally:
            disk.close(descriptor)


def _holder(descriptor: int) -> int | None:
    """The id of the process that holds the lock; None where the system does not report it."""
    if sys.platform != "linux":
        return None
    wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    try:
        kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, wanted))
    except OSError:
        return None
    return max(process, 0) if kind != fcntl.F_UNLCK else None


def _process_name(process: int) -> str:
    """The program of a process, from ``/proc``; empty where that does not show it."""
    try:
        with open(f"/proc/{process}/cmdline", "rb") as stream:
            words = stream.read(4096).split(b"\0")
    except OSError:
        return ""
    return os.path.basename(words[0].decode("utf-8", "replace"))


def _refusal(path: str, holder: int | None) -> StoreLocked:
    if holder == os.getpid():
        owner = f"this process ({holder}) has it open already"
    elif not holder:
        owner = "another process, perhaps a RocketMQ broker, owns it"
    else:
        name = _process_name(holder)
        owner = f"process {holder}{f' ({name})' if name else ''} owns it"
        if name and "java" in name:
            owner += ", probably a RocketMQ broker"
    return StoreLocked(
        f"The store at {os.path.dirname(path)} cannot be opened for writing: {owner}. Stop it first, or read the store "
        "with StoreReader.",
        path=path,
        holder=holder,
    )


def _forget_in_child() -> None:
    # A forked child holds no lock of its parent's, and may open a store of its own. The parent's thread that held the
    # table's own lock does not exist in the child and cannot release it.
    _held.forget()


os.register_at_fork(after_in_child=_forget_in_child)
