"""The store directory of an owner: created if missing, locked, and marked as in use by ``abort``.

``abort`` exists while an owner runs, and so after a crash; the owner's process id stands in it, as RocketMQ 5.x
writes it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from commitlog_store.errors import DiskFull, ReadFailed, StoreAccessDenied, StoreIOError
from commitlog_store.files import disk
from commitlog_store.files.error_paths import failed_writes
from commitlog_store.files.space import NO_SPACE
from commitlog_store.files.store_lock import StoreLock
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.files.whole_file import replace_synced
from commitlog_store.log.store_directory import (
    check_log_directory,
    check_store_directory,
    not_a_directory,
    refuse_batch_queues,
    refuse_kept_piece,
    refuse_linked_directories,
    refuse_odd_files,
    refuse_store_within,
)
from commitlog_store.paths import ABORT, CHECKPOINT, COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX, LOCK
from commitlog_store.timestamps import checked_seconds

_DIRECTORIES = (COMMIT_LOG, CONSUME_QUEUE, INDEX, CONFIG)


class OwnerDirectory:
    """A store directory that this process owns, from ``open`` to ``close``."""

    def __init__(self, paths: StorePaths, lock: StoreLock) -> None:
        self.paths = paths
        self.path = paths.root
        self._lock = lock
        # Whether the previous owner did not close the store.
        self.aborted = disk.exists(self.of(ABORT))

    @classmethod
    def open(
        cls,
        path: str,
        *,
        commit_log: str | None = None,
        lock_timeout_s: float = 0.0,
        given_up: Callable[[], bool] = lambda: False,
    ) -> OwnerDirectory:
        """Make the directory if need be, and take its lock, for which it does not wait once ``given_up()``.

        ``commit_log`` is the log's directory, if that is not in the store's.

        ``StoreLocked``, ``NotAStore`` for a directory with other content, ``StoreAccessDenied``,
        ``UnsupportedStore``, ``StoreIOError``.
        """
        paths = StorePaths.of(path, commit_log)
        try:
            cls._make(paths)
            timeout_s = checked_seconds("lock_timeout_s", lock_timeout_s)
            lock = StoreLock.acquire(os.path.join(path, LOCK), timeout_s=timeout_s, given_up=given_up)
            return cls(paths, lock)
        except PermissionError as error:
            raise StoreAccessDenied(f"No permission to write in {path}: {error}.", path=path) from error
        except OSError as error:
            if error.errno in NO_SPACE:
                raise DiskFull("make the store at", path=path, cause=error, advice="Free some space.") from error
            raise ReadFailed("open the store at", path=path, cause=error) from error

    @classmethod
    def _make(cls, paths: StorePaths) -> None:
        check_log_directory(paths, exists=False)
        missing = []
        at = path = paths.root
        while not disk.exists(at):
            missing.append(at)
            at = os.path.dirname(at)
        if disk.is_file(at):
            raise not_a_directory(at)
        is_new = bool(missing) or not disk.list_names(path)
        if is_new:
            refuse_store_within(path)
        for directory in reversed(missing):
            with contextlib.suppress(FileExistsError):  # another process is creating the same store
                disk.make_directory(directory)
            # ``prepare`` syncs the store's own name: that takes time, and until the lock is in the directory readers
            # find no store there.
            if directory != path:
                disk.sync_directory(os.path.dirname(directory))
        if is_new:
            return
        check_store_directory(path)
        refuse_kept_piece(path)
        refuse_batch_queues(path)
        refuse_linked_directories(paths)
        refuse_odd_files(path)

    def of(self, name: str) -> str:
        return self.paths.part(name)

    def prepare(self) -> None:
        """Make the directories that are missing, and bring them and the store's own name to the device.

        ``StoreIOError``.
        """
        with failed_writes(self.path, "make the directories of"):
            if not disk.exists(self.of(CHECKPOINT)):
                # No owner has come this far yet: the maker of the store's directory may not have synced its name.
                # (Where the parent may not be read, it cannot be synced either.)
                with contextlib.suppress(PermissionError):
                    disk.sync_directory(os.path.dirname(self.path))
            for name in _DIRECTORIES:
                if not disk.exists(self.of(name)):
                    disk.make_directory(self.of(name))
                    # One by one: a crash must leave a recognisable store directory, and "config" alone is not one.
                    disk.sync_directory(os.path.dirname(self.of(name)))
            disk.sync_directory(self.path)

    def mark_in_use(self) -> None:
        """Make ``abort``: from now on, a store that is not closed was interrupted. ``StoreIOError``.

        An existing one, with another process in it, exists at every moment: without it a crash would look like a clean
        close.
        """
        path = self.of(ABORT)
        with failed_writes(path):
            try:
                replace_synced(path, str(os.getpid()).encode())
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
                replace_synced(path, b"")  # it counts that the file exists, and an empty one takes no space

    def close(self, *, clean: bool) -> None:
        """Release the store; ``clean`` when everything is on the device. ``StoreIOError``."""
        try:
            if clean and disk.exists(self.of(ABORT)):
                disk.unlink(self.of(ABORT))
                disk.sync_directory(self.path)
        except OSError as error:
            raise StoreIOError("remove", path=self.of(ABORT), cause=error) from error
        finally:
            self._lock.release()

    def __enter__(self) -> OwnerDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close(clean=False)
