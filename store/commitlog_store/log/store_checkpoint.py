"""The checkpoint file of an owner: records how far everything is flushed, only after it was flushed (invariant 7).

Source: RocketMQ ``store/StoreCheckpoint.java``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable

from commitlog_store.errors import (
    CorruptCheckpoint,
    InvalidValue,
    NotAStore,
    ReadFailed,
    StoreAccessDenied,
)
from commitlog_store.files import disk
from commitlog_store.files.error_paths import failed_writes
from commitlog_store.files.mapped_file_writer import make_file
from commitlog_store.format.checkpoint import (
    CHECKPOINT_SIZE,
    Checkpoint,
    CheckpointMark,
    decode_checkpoint,
    decode_mark,
    encode_checkpoint,
)

_NEVER = Checkpoint(0, 0, 0)
# A read while the owner writes may see a part of each mark: how often to look before a mark counts as missing.
_LOOK_AGAIN_SECONDS = (0.0, 0.0005, 0.001, 0.002, 0.005)


def read_checkpoint(path: str) -> Checkpoint | None:
    """The times on disk; None without the file. ``CorruptCheckpoint``."""
    try:
        # Larger than any version of the file, and small enough to read in any case.
        return decode_checkpoint(disk.read_file(path, 16 * CHECKPOINT_SIZE))
    except FileNotFoundError:
        return None
    except (InvalidValue, OSError) as error:
        found = error.strerror if isinstance(error, OSError) else str(error)
        raise CorruptCheckpoint(
            "Checkpoint", path=path, offset=0, expected=f"{CHECKPOINT_SIZE} bytes of times", found=found
        ) from error


def read_mark(path: str) -> CheckpointMark | None:
    """The mark on disk, also beside a living owner; None when it is missing, or a broker has overwritten it."""
    for pause in _LOOK_AGAIN_SECONDS:
        time.sleep(pause)
        with contextlib.suppress(OSError):
            mark = decode_mark(disk.read_file(path, CHECKPOINT_SIZE))
            if mark is not None:
                return mark
    return None


def mark_if_readable(path: str) -> CheckpointMark | None:
    """``read_mark`` for what a mark only adds to; None also without a file, or where this process may not read it."""
    with contextlib.suppress(StoreAccessDenied, NotAStore):
        return read_mark(path) if disk.exists(path) else None
    return None


class StoreCheckpoint:
    """``<store>/checkpoint``. The times move forward only; ``flush`` brings them to the device."""

    def __init__(self, path: str, checkpoint: Checkpoint, mark: CheckpointMark | None) -> None:
        self.path = path
        self.values = checkpoint
        self.mark = mark
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        # The bytes that this process synced last.
        self._synced: tuple[Checkpoint, CheckpointMark | None] | None = None

    @classmethod
    def load(cls, path: str) -> StoreCheckpoint:
        """The checkpoint as it stands on disk. One that is missing or damaged claims nothing."""
        try:
            data = disk.read_file(path, CHECKPOINT_SIZE)
            return cls(path, decode_checkpoint(data), decode_mark(data))
        except (FileNotFoundError, InvalidValue):
            return cls(path, _NEVER, None)
        except OSError as error:
            raise ReadFailed("read", path=path, cause=error) from error

    def advance(self, *, physic: int = 0, logics: int = 0, index: int = 0) -> None:
        """Store times (ms) up to which the log, the queues and the index were flushed. Lower ones change nothing."""
        with self._lock:
            now = self.values
            self.values = dataclasses.replace(
                now,
                physic_msg_timestamp=max(now.physic_msg_timestamp, physic),
                logics_msg_timestamp=max(now.logics_msg_timestamp, logics),
                index_msg_timestamp=max(now.index_msg_timestamp, index),
            )

    def restart(self, *, physic: int, logics: int, index: int) -> None:
        """Set these times, lower ones too: after recovery, which may have cut off the messages of the old ones."""
        with self._lock:
            self.values = dataclasses.replace(
                self.values, physic_msg_timestamp=physic, logics_msg_timestamp=logics, index_msg_timestamp=index
            )

    def flush(self, mark: CheckpointMark | None) -> None:
        """Write the file and sync it. ``StoreIOError``."""
        self.flush_now(lambda: mark)

    def flush_now(self, make_mark: Callable[[], CheckpointMark | None], *, if_changed: bool = False) -> None:
        """``flush`` for several threads: the mark is made when no other one is being written, so that none goes back.

        ``if_changed``: unless the same bytes were synced last. ``StoreIOError``.
        """
        with self._lock:
            mark = make_mark()
            if not if_changed or self._synced != (self.values, mark):
                self._flush(mark)

    def _flush(self, mark: CheckpointMark | None) -> None:
        self.mark = mark
        self._synced = None
        with failed_writes(self.path):
            disk.write_at(self._opened(), encode_checkpoint(self.values, mark), 0)
        with failed_writes(self.path, "sync"):
            disk.sync(self._opened())
        self._synced = self.values, mark

    def _opened(self) -> int:
        if self._descriptor is None:
            if disk.file_size(self.path) != CHECKPOINT_SIZE:
                if disk.exists(self.path):
                    disk.unlink(self.path)
                make_file(self.path, CHECKPOINT_SIZE)
            self._descriptor = disk.open_for_writing(self.path)
        return self._descriptor

    def close(self) -> None:
        with self._lock:
            if self._descriptor is not None:
                disk.close(self._descriptor)
                self._descriptor = None
