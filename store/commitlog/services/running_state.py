"""Whether the store takes puts, and why not.

Source: RocketMQ ``store/RunningFlags.java``.
"""

from __future__ import annotations

import enum
import errno
import threading
from collections.abc import Callable

from commitlog.errors import CommitLogError, PutRefused, StoreIOError
from commitlog.message import PutMessageStatus
from commitlog.threads.wakeup import Wakeup

__all__ = ["RunningFlags", "RunningState"]


class RunningFlags(enum.Flag):
    """RocketMQ's flags, by its own names and bits."""

    NOT_READABLE = 1
    NOT_WRITEABLE = 1 << 1
    WRITE_LOGICS_QUEUE_ERROR = 1 << 2
    WRITE_INDEX_FILE_ERROR = 1 << 3
    DISK_FULL = 1 << 4


_NONE = RunningFlags(0)
# An interrupt may have kept a call from telling that it ended, and of several who close the store one is told.
_LOOK_AGAIN_S = 0.1
_NESTED = (
    "This thread is in the middle of another call of the store, which a signal handler has interrupted, say, and which "
    "may hold what this call would wait for. Nothing was done; call again when the other call is over."
)


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
        # A signal handler may come here while its own thread is here.
        self._lock = threading.RLock()
        # A thread holds its lock while it is within a call, and nobody else takes it. ``with`` takes and lets go of a
        # lock in one step, so no interrupt leaves it behind. Numbers of threads are used again: there are never many.
        self._calls: dict[int, threading.Lock] = {}
        self._left = Wakeup()
        # The threads that asked for a close within a call of their own.
        self._close_due: set[int] = set()

    @property
    def crowded(self) -> bool:
        """Whether several threads are within a call."""
        found = False
        for call in list(self._calls.values()):
            if call.locked():
                if found:
                    return True
                found = True
        return False

    def call(self) -> threading.Lock:
        """What this thread holds during a call that uses the store's files; ask under it whether the store is closed.

        ``PutRefused`` within another call of the same thread. Only a signal handler comes there, or a finalizer, and
        what it interrupted may hold a lock of the store, for which it would wait for ever.
        """
        thread = threading.get_ident()
        call = self._calls.get(thread)
        if call is None:
            return self._calls.setdefault(thread, threading.Lock())
        if call.locked():
            raise PutRefused(PutMessageStatus.SERVICE_NOT_AVAILABLE, _NESTED)
        return call

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
        """Set or clear a flag. What a failure has set stays (invariant 2)."""
        with self._lock:
            self.flags = self.flags | flag if on else self.flags & ~flag
            if self.failure is not None:
                self.flags |= RunningFlags.NOT_WRITEABLE
            self._explain()

    def close(self) -> None:
        """Take nothing more, and return when the calls under way are done. It may be called again.

        Closing the files under a put that is being written would let it write into whatever opens a file next.
        """
        self._refuse_all()
        own = threading.get_ident()
        while any(call.locked() for thread, call in list(self._calls.items()) if thread != own):
            self._left.wait(_LOOK_AGAIN_S)

    def close_later(self) -> bool:
        """Whether this thread is within a call: then nothing more is taken, and a close is due when the call ends."""
        thread = threading.get_ident()
        call = self._calls.get(thread)
        if call is None or not call.locked():
            return False
        self._close_due.add(thread)
        self._refuse_all()
        return True

    def call_ended(self) -> bool:
        """Told after each call on a closed store: lets ``close`` go on. True, once, when a close was put off until now.

        A call that was refused within another one is not that one's end.
        """
        self._left.set()
        thread = threading.get_ident()
        if thread not in self._close_due or self._calls[thread].locked():
            return False
        self._close_due.discard(thread)
        return True

    def _refuse_all(self) -> None:
        with self._lock:
            self.closed = True
            self._explain()

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
