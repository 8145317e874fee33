"""RunningState: whether the store accepts puts, and the reason if it does not.

Source: RocketMQ ``store/RunningFlags.java``.
"""

from __future__ import annotations

import enum
import errno
import logging
import threading
from collections.abc import Callable

from commitlog_store.errors import Damaged, DiskFull, OutcomeUnknown, PutRefused, StoreClosed, StoreForked, StoreIOError
from commitlog_store.put_status import PutMessageStatus

_LOG = logging.getLogger(__name__)


class RunningFlags(enum.Flag):
    """RocketMQ's running flags, with its own names and bits."""

    NOT_READABLE = 1
    NOT_WRITEABLE = 1 << 1
    WRITE_LOGICS_QUEUE_ERROR = 1 << 2
    WRITE_INDEX_FILE_ERROR = 1 << 3
    DISK_FULL = 1 << 4


# What a program may set a store to reject or accept, in words.
_SETTABLE = {RunningFlags.NOT_READABLE: "new readers", RunningFlags.NOT_WRITEABLE: "messages"}


class RunningState:
    """The flags, and what halted the store. A halted store stays so until it is opened again (invariant 2)."""

    def __init__(self, path: str, on_halt: Callable[[], None], *, is_replica: bool = False) -> None:
        """``on_halt`` is called after a halt, to wake threads that wait for messages that will not come.

        ``is_replica``: the store has the role SLAVE, and rejects everything that is not its master's.
        """
        self.flags = RunningFlags(0)
        self.failure: BaseException | None = None
        self.closed = False
        self.forked = False
        # Read by every put: None, or the reason why puts are refused.
        self.refusal: str | None = None
        self._path = path
        self._on_halt = on_halt
        self.is_replica = is_replica
        self._disk_full = ""
        # Puts and commits that slaves have not confirmed since they confirmed one.
        self.unconfirmed = 0
        # A signal handler may call this while its own thread holds the lock.
        self._lock = threading.RLock()
        self._explain()

    def halt(self, failure: BaseException, flag: RunningFlags = RunningFlags.NOT_WRITEABLE) -> None:
        """Reject puts from now on. The first failure is the one that is reported."""
        with self._lock:
            self.flags |= flag | RunningFlags.NOT_WRITEABLE
            first = self.failure is None
            if first:
                self.failure = failure
            self._explain()
        if first:
            _LOG.error("%s is halted: it rejects messages until it is opened again. %s", self._path, _text_of(failure))
        self._on_halt()

    def refuse_failed(self) -> None:
        """Raise the error that halted the store, if any; a ``StoreIOError`` if it does not say what is in the log."""
        failure = self.failure
        if isinstance(failure, OutcomeUnknown | Damaged):
            raise failure.again() from failure
        if failure is not None:
            cause = OSError(errno.EIO, _text_of(failure))
            raise StoreIOError("continue with", path=self._path, cause=cause) from failure

    def refuse_closed(self) -> None:
        """``StoreClosed``, ``StoreForked``."""
        if self.forked:
            raise StoreForked(
                f"The store at {self._path} was opened by this process's parent; a forked child cannot use it. Open "
                "the store in one process, and fork before."
            )
        if self.closed:
            raise StoreClosed(f"The store at {self._path} is closed; open it again.")

    def refuse_puts(self) -> None:
        """``PutRefused``, ``StoreClosed`` or ``StoreForked`` while puts are not accepted."""
        if self.refusal is not None:
            self.refuse_closed()
            raise PutRefused(PutMessageStatus.SERVICE_NOT_AVAILABLE, self.refusal)

    def refuse_on_replica(self) -> None:
        """``PutRefused`` in the role SLAVE."""
        if self.is_replica:
            self.refuse_puts()

    def refuse_commits(self, *, frees_space: bool = False) -> None:
        """``DiskFull`` when a disk that is nearly full is the reason, else as ``refuse_puts``.

        ``frees_space``: retention deletes files after this commit, so a nearly full disk is no reason against it.
        """
        if frees_space and self.takes_what_frees_space:
            return
        if self.refusal is not None and self.disk_is_reason:
            cause = OSError(errno.ENOSPC, self._disk_full.removesuffix("."))
            raise DiskFull(
                "commit to the store at",
                path=self._path,
                cause=cause,
                advice="Nothing was written; commits succeed again once there is space.",
            )
        self.refuse_puts()

    @property
    def disk_is_reason(self) -> bool:
        """Whether puts are rejected because of the disk, and for no other reason that comes before."""
        others = self.closed or self.failure is not None or self.is_replica
        return bool(self.flags & RunningFlags.DISK_FULL) and not others

    @property
    def takes_what_frees_space(self) -> bool:
        """Whether the store is writable, or would be with more space on its disk."""
        return self.refusal is None or (self.disk_is_reason and not self.flags & RunningFlags.NOT_WRITEABLE)

    def set_disk_full(self, why: str | None) -> None:
        """Reject puts because the disk is full, as ``why`` says; None when it is not (any more)."""
        with self._lock:
            was_full = bool(self.flags & RunningFlags.DISK_FULL)
            self._disk_full = why or ""
            self.flags = self.flags & ~RunningFlags.DISK_FULL if why is None else self.flags | RunningFlags.DISK_FULL
            self._explain()
        if why is not None and not was_full:
            _LOG.warning("%s rejects puts and commits, since the disk is full. %s", self._path, why)
        elif why is None and was_full:
            _LOG.warning("%s accepts puts and commits again: the disk has space.", self._path)

    def set_flag(self, flag: RunningFlags, *, on: bool) -> None:
        """Set or clear a flag. A flag that a failure has set stays (invariant 2)."""
        with self._lock:
            before = self.flags
            self.flags = self.flags | flag if on else self.flags & ~flag
            if self.failure is not None:
                self.flags |= RunningFlags.NOT_WRITEABLE
            self._explain()
            changed = self.flags ^ before
        for one in changed:
            how = "was set to reject" if on else "was set to accept"
            _LOG.warning("%s %s %s.", self._path, how, _SETTABLE.get(one, one.name))

    def note_unconfirmed(self, reason: str) -> None:
        """Note that slaves have not confirmed a put or commit that waited for them; logged when it begins."""
        with self._lock:
            begins = not self.unconfirmed
            self.unconfirmed += 1
        if begins:
            _LOG.warning("%s: the slaves do not confirm what is put. %s", self._path, reason)

    def note_confirmed(self) -> None:
        """Note that slaves have confirmed a put or commit; logged when they had not confirmed the one before."""
        if self.unconfirmed:
            with self._lock:
                count, self.unconfirmed = self.unconfirmed, 0
            if count:
                text = "%s: the slaves confirm what is put again; %d puts and commits before were not confirmed."
                _LOG.warning(text, self._path, count)

    def close(self) -> None:
        """Reject puts and calls from now on."""
        with self._lock:
            self.closed = True
            self._explain()

    def fork(self) -> None:
        """In a forked child: reject everything. Another thread of the parent may have held the lock."""
        self.forked = self.closed = True
        self._lock = threading.RLock()
        self._explain()

    @property
    def writable(self) -> bool:
        return self.refusal is None

    def _explain(self) -> None:
        if self.closed:
            self.refusal = "The store is closed."
        elif self.failure is not None:
            self.refusal = f"The store rejects messages until it is opened again: {_text_of(self.failure)}"
        elif self.is_replica:
            self.refusal = (
                "The store is a replica (broker_role=SLAVE): only its master's messages come into it. Put to the "
                "master, or promote the replica."
            )
        elif self.flags & RunningFlags.DISK_FULL:
            self.refusal = f"The disk is full; messages are accepted again once there is space. {self._disk_full}"
        elif self.flags & RunningFlags.NOT_WRITEABLE:
            self.refusal = "The store was set to reject messages."
        else:
            self.refusal = None


def _text_of(failure: BaseException) -> str:
    """The text of a failure, or its type's name: an interrupt has no text."""
    return str(failure) or type(failure).__name__
