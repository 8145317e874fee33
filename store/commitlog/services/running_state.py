"""Whether the store takes puts, and why not.

Source: RocketMQ ``store/RunningFlags.java``.
"""

from __future__ import annotations

import enum
import errno
import threading
from collections.abc import Callable

from commitlog.errors import CommitLogError, StoreIOError

__all__ = ["RunningFlags", "RunningState"]


class RunningFlags(enum.Flag):
    """RocketMQ's flags, by its own names and bits."""

    NOT_READABLE = 1
    NOT_WRITEABLE = 1 << 1
    WRITE_LOGICS_QUEUE_ERROR = 1 << 2
    WRITE_INDEX_FILE_ERROR = 1 << 3
    DISK_FULL = 1 << 4


_NONE = RunningFlags(0)


class RunningState:
    """The flags, and what fenced the store. A fenced store stays so until it is opened again (invariant 2)."""

    def __init__(self) -> None:
        self.flags = _NONE
        self.failure: BaseException | None = None
        self.closed = False
        # Called after a fence, for those who wait for what will not come any more.
        self.on_fence: Callable[[], None] | None = None
        # Read by every put: None, or why none is taken.
        self.refusal: str | None = None
        self._disk_full = ""
        self._lock = threading.Lock()
        # The threads that are within a call; a set's methods are atomic, and cheaper than a lock.
        self._inside: set[int] = set()
        self._left = threading.Condition()

    @property
    def crowded(self) -> bool:
        """Whether several threads are within a call."""
        return len(self._inside) > 1

    def enter(self) -> None:
        """A call that uses the store's files begins; whether the store is closed is to be asked after this."""
        self._inside.add(threading.get_ident())

    def leave(self) -> None:
        """The call is done."""
        self._inside.discard(threading.get_ident())
        if self.closed:
            with self._left:
                self._left.notify_all()

    def fence(self, failure: BaseException, flag: RunningFlags = RunningFlags.NOT_WRITEABLE) -> None:
        """Take no more puts. The first failure is the one that is told."""
        with self._lock:
            self.flags |= flag | RunningFlags.NOT_WRITEABLE
            if self.failure is None:
                self.failure = failure
            self._explain()
        if self.on_fence is not None:
            self.on_fence()

    def refuse_failed(self, path: str) -> None:
        """Raise what fenced the store, if anything did; a ``StoreIOError`` of ``path`` for what is no error of ours."""
        failure = self.failure
        if isinstance(failure, CommitLogError):
            raise failure
        if failure is not None:
            raise StoreIOError("go on with", path=path, cause=OSError(errno.EIO, _told(failure))) from failure

    def set_disk_full(self, why: str | None) -> None:
        """Take no puts because of a disk that is full, as ``why`` says; None when it is not (any more)."""
        with self._lock:
            self._disk_full = why or ""
            self.flags = self.flags & ~RunningFlags.DISK_FULL if why is None else self.flags | RunningFlags.DISK_FULL
            self._explain()

    def set_flag(self, flag: RunningFlags, *, on: bool) -> None:
        with self._lock:
            self.flags = self.flags | flag if on else self.flags & ~flag
            self._explain()

    def close(self) -> None:
        """Take nothing more, and return when the calls under way are done. It may be called again.

        Closing the files under a put that is being written would let it write into whatever opens a file next.
        """
        with self._lock:
            self.closed = True
            self._explain()
        own = {threading.get_ident()}
        with self._left:
            self._left.wait_for(lambda: not self._inside - own)

    def abandon(self) -> None:
        """Closed without a wait: in a forked child, which has none of the threads that are within a call."""
        self.closed = True
        self._explain()

    @property
    def writable(self) -> bool:
        return self.refusal is None

    def _explain(self) -> None:
        if self.closed:
            self.refusal = "The store is closed."
        elif self.failure is not None:
            self.refusal = f"The store takes no more messages until it is opened again: {_told(self.failure)}"
        elif self.flags & RunningFlags.DISK_FULL:
            self.refusal = f"The disk is full; messages are taken again once there is space. {self._disk_full}"
        elif self.flags & RunningFlags.NOT_WRITEABLE:
            self.refusal = "The store was set to take no messages."
        else:
            self.refusal = None


def _told(failure: BaseException) -> str:
    """What there is to say of a failure: an interrupt has no text of its own."""
    return str(failure) or type(failure).__name__
