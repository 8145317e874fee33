"""``MessageStore``: the owner of a store directory. The one place that wires everything together.

One owner at a time, in one process; readers of any number stand beside it (``StoreReader``). docs/durability.md says
what a put promises under which flush mode, and what a crash leaves.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import ParamSpec, SupportsFloat, TypeVar

from commitlog.batch.staging import remove_leftovers
from commitlog.batch_id import BatchId, CommittedBatch, StagedFile
from commitlog.columnar.input import Rows
from commitlog.config import MessageStoreConfig
from commitlog.errors import CommitLogError, InvalidValue, PutRefused, StoreClosed
from commitlog.format.message_rules import check_queue_place
from commitlog.log.owner_directory import OwnerDirectory
from commitlog.message import Message, PutMessageResult
from commitlog.queue.topic_config import TopicConfig
from commitlog.reader import StoreReader
from commitlog.recovery.open import OpenedLog, open_log
from commitlog.recovery.recover import Progress, Recovered
from commitlog.services.commit_batch import CommitBatchService
from commitlog.services.put_message import PutMessageService
from commitlog.services.put_messages import PutMessagesResult, PutMessagesService
from commitlog.services.running_state import RunningFlags, RunningState
from commitlog.services.service_group import ServiceGroup
from commitlog.services.stats import StoreStats
from commitlog.services.transaction import Transaction

__all__ = ["MessageStore"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class MessageStore:
    """A store that this process owns: put messages, wait for messages, close. (Who only reads needs ``StoreReader``.)

    Use it as a context manager. Any number of threads may put. A process that forks must not use it in the child. A
    signal handler may close it at any time; what it asks of it while its own thread is within a call is refused.
    """

    def __init__(self, directory: OwnerDirectory, log: OpenedLog, config: MessageStoreConfig) -> None:
        """Use ``MessageStore.open``."""
        self.path = directory.path
        self.config = config
        self._directory = directory
        self._log = log
        self._state = RunningState()
        # Locks that are let go to wake who waits for them; no lock is held for that, so a signal handler finds none.
        self._waiters: dict[threading.Lock, bool] = {}
        self._state.on_fence = self._on_dispatched
        self._topics = TopicConfig(self.path, config.default_topic_queue_nums, log.queues.highest_id)
        self._process = os.getpid()
        self._closing = threading.RLock()
        self._closer = 0  # the thread that is closing the store: its signal handlers leave that to it
        self._ended = False
        self._close_failure: CommitLogError | None = None  # of a close that was put off, for the next one to tell
        self._services = ServiceGroup(log, config, self._state, self._on_dispatched)
        wake = self._services.message_arrived
        self._putter = PutMessageService(
            config, log.writer, self._services.group_commit, self._state, self._services.stats, wake
        )
        self._bulk = PutMessagesService(
            config, log.writer, self._putter, self._state, self._services.stats, self._topics.queue_count, wake
        )
        self._batches = CommitBatchService(
            self.path, config, log, self._services, self._state, self._topics, self._putter.refuse_when_unwritable
        )
        self._services.start()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        config: MessageStoreConfig | None = None,
        *,
        lock_timeout: float = 0.0,
        accept_lost_log: bool = False,
        rebuild: bool = False,
        progress: Progress | None = None,
    ) -> MessageStore:
        """Open the store at ``path``, or make one there.

        After a clean close this takes constant time; after a crash the log is scanned, and ``progress`` is called with
        the bytes done and the bytes there are at most. ``lock_timeout`` is how many seconds to wait for another owner.
        ``rebuild`` builds all queues and index files anew from the log. ``accept_lost_log`` begins an empty store where
        queues are left of a log that is gone.

        ``StoreLocked``, ``LogLost``, ``NotAStore``, ``StoreAccessDenied``, ``UnsupportedStore``; ``CorruptStoreError``
        for damage that no crash explains (invariant 5); ``StoreIOError``; ``InvalidValue`` for what is no path.
        """
        config = _checked_config(config)
        directory = OwnerDirectory.open(os.path.abspath(_checked_path(path)), lock_timeout=lock_timeout)
        try:
            log = open_log(directory, config, accept_lost_log=accept_lost_log, rebuild=rebuild, progress=progress)
            try:
                remove_leftovers(directory.path, now=time.time())
                return cls(directory, log, config)
            except BaseException:
                log.close()
                raise
        except BaseException:
            directory.close(clean=False)
            raise

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def recovered(self) -> Recovered | None:
        """What recovery found when the store was opened; None after a clean close, which needs none."""
        return self._log.recovered

    @property
    def flags(self) -> RunningFlags:
        """RocketMQ's running flags: what the store does not do at the moment."""
        return self._state.flags

    @property
    def writable(self) -> bool:
        """Whether puts are taken."""
        return self._state.writable

    def set_writable(self, writable: bool) -> None:
        """Take puts, or answer them with SERVICE_NOT_AVAILABLE. A store that failed stays closed to them."""
        self._state.set_flag(RunningFlags.NOT_WRITEABLE, on=not writable)

    @property
    def readable(self) -> bool:
        """Whether ``reader`` gives readers."""
        return RunningFlags.NOT_READABLE not in self._state.flags

    def set_readable(self, readable: bool) -> None:
        """Give readers, or refuse them. Readers that are open, and those of other processes, read on."""
        self._state.set_flag(RunningFlags.NOT_READABLE, on=not readable)
        self._on_dispatched()

    def put_message(self, message: Message) -> PutMessageResult:
        """Append one message. The result says how it ended; nothing is raised for what message or disk are like."""
        try:
            with self._call():  # as ``_within`` does, and faster
                return self._putter.put_message(message)
        except PutRefused as error:
            return PutMessageResult(error.status, reason=error.reason)
        finally:
            if self._state.closed:
                self._after_last_calls()

    def put_message_batch(self, messages: Sequence[Message]) -> PutMessageResult:
        """Append messages of one queue in one piece, as RocketMQ's MessageExtBatch: one status for all of them."""
        try:
            return self._within(self._putter.put_batch, messages)
        except PutRefused as error:
            return PutMessageResult(error.status, reason=error.reason)

    def put_messages(self, table: Rows, *, topic: str | None = None) -> PutMessagesResult:
        """Append the rows of an Arrow table or record batch; status and offsets for each row.

        Columns (all but ``body`` may be left out or null): ``body`` or ``value``, ``topic`` (else the argument),
        ``tags``, ``keys`` or ``key``, ``queueId``, ``shardingKey``, ``properties``, ``flag``, ``bornTimestamp``,
        ``delayLevel``. Rows that no store takes get their status, the others are appended. ``InvalidValue`` for
        columns that cannot be, before anything is written.
        """
        try:
            return self._within(self._bulk.put_messages, table, topic=topic)
        except PutRefused as error:
            return self._bulk.refused(table, error, topic=topic)

    def transaction(self, app_id: str, version: int, fingerprint: str = "") -> Transaction:
        """Begin a batch: all that is put into it is in the store together, and at most once, or not at all.

        ::

            with store.transaction("orders-loader", version=7) as batch:
                batch.put_messages(table, topic="orders")

        Versions of an application ascend. One that was committed before is passed over (``already_there``), unless the
        fingerprint says that it is another batch: ``BatchConflict``. docs/durability.md has the rules.
        """
        batch = BatchId(app_id, version, fingerprint)
        if not app_id:
            raise InvalidValue("A transaction belongs to an application: give it an id, which is not empty.")
        committed = self._when_open(self._batches.check, batch)
        return Transaction(self.path, batch, self._bulk.encoded, self._when_open, self.commit_batch, committed)

    def commit_batch(self, batch: BatchId, staged: Sequence[StagedFile]) -> CommittedBatch:
        """Commit what was staged for a batch, perhaps by other processes: ``transaction`` does both.

        The rows of the files follow each other in the order of the files. When it returns, the batch is in the log (on
        the device, under SYNC_FLUSH), and all that is staged for this version of the application or an earlier one is
        removed. ``BatchConflict``, ``StagingLost``, ``CorruptStaging``, ``DiskFull``, ``PutRefused``: nothing was
        written. ``StoreIOError``: opening the store again decides, and the same batch may be committed again.
        """
        return self._when_open(self._batches.commit, batch, staged)

    def create_topic(self, topic: str, queues: int, *, read_queues: int = 0) -> None:
        """Note in ``config/topics.json`` over how many queues a topic is spread; one that is listed keeps its number.

        ``read_queues``: consumers are to look at so many, when messages name queues beyond the others. It is raised for
        a topic that is listed, too.

        ``InvalidValue``, ``CorruptConfig``, ``StoreIOError``.
        """
        self._when_open(self._topics.create_topic, topic, queues, read_queue_nums=read_queues)

    def batches(self) -> list[CommittedBatch]:
        """The last batch that every application committed, by application id."""
        return self._when_open(self._batches.batches)

    def forget_batches(self, app_id: str) -> CommittedBatch | None:
        """Forget what an application has committed: its next batch is written, whatever its version.

        Messages stay. Returns its last batch, None when the application is not known. ``StoreIOError``.
        """
        return self._when_open(self._batches.forget, app_id)

    def wait_for_messages(self, topic: str, queue_id: int, offset: int, timeout: float | None = None) -> bool:
        """Wait until the queue holds a message at ``offset`` or behind; False when ``timeout`` seconds have passed.

        ``StoreClosed`` when the store is closed meanwhile, or set to be not readable; ``InvalidValue`` for what cannot
        be a queue, an offset or a time. What fenced the store, when the message is not there: no more messages come.
        """
        check_queue_place(topic, queue_id, offset)
        deadline = time.monotonic() + _checked_timeout(timeout)
        while True:
            waiter = threading.Lock()
            waiter.acquire()
            self._waiters[waiter] = True  # before looking, so that no message comes between
            try:
                if self._readable_at(topic, queue_id, offset):
                    return True
                self._state.refuse_failed(self.path)
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                waiter.acquire(timeout=min(left, threading.TIMEOUT_MAX))
            finally:
                self._waiters.pop(waiter, None)

    def flush(self) -> None:
        """Bring everything that was put to the device, queues, index and checkpoint included. ``StoreIOError``."""
        self._when_open(self._services.flush_everything)

    def dispatch(self) -> None:
        """Return when everything that was put before (and flushed, under SYNC_FLUSH) is in its queue and the index."""
        self._when_open(self._services.dispatch)

    def reader(self) -> StoreReader:
        """A new reader of this store, to be closed by the caller. ``StoreClosed`` when it was set to give none."""
        self._refuse_unreadable()
        return StoreReader.open(self.path)

    def stats(self) -> StoreStats:
        """How many messages were put, how large, how fast; and how far dispatch is behind, in bytes."""
        return self._services.stats.snapshot(self._services.reput.behind)

    def physical_bounds(self) -> tuple[int, int]:
        """First byte of the log, and its end."""
        return self._log.files.min_offset, self._log.files.max_wrote

    def flushed_where(self) -> int:
        """The end of what is known to be on the device."""
        return self._log.files.flushed_where

    def close(self) -> None:
        """Flush, dispatch and close everything, so that the next open needs no scan. A second call does nothing.

        Calls under way end first. One of this very thread, which a signal handler has interrupted, closes the store
        when it ends. ``StoreIOError`` when closing fails (of a close that was put off: at the next call); the store is
        then as after a crash, and opening it finds out what is there.
        """
        if os.getpid() != self._process:
            self._state.abandon()  # a forked child has no threads, and the files are its parent's
            return
        thread = threading.get_ident()
        # Before the lock is waited for: who has it may wait for the call that this thread is within.
        if self._state.close_later() or self._closer == thread:
            return
        with self._closing:
            self._closer = thread
            try:
                self._close()
            finally:
                self._closer = 0

    def _close(self) -> None:
        if self._ended:
            failure, self._close_failure = self._close_failure, None
            if failure is not None:
                raise failure
            return
        self._state.close()
        self._on_dispatched()
        # Up to here nothing was given up: who interrupts may close again. No file is closed under a thread.
        self._log.writer.close()
        self._services.stop()
        self._ended, clean = True, False
        try:
            self._services.close_cleanly(self._batches.save)
            clean = self._state.failure is None
        finally:
            try:
                self._log.close()
            finally:
                self._directory.close(clean=clean)

    def _after_last_calls(self) -> None:
        """Close, if that was asked for within the call that has ended. The call has an answer of its own."""
        if os.getpid() == self._process and self._state.call_ended():
            try:
                self.close()
            except CommitLogError as error:
                self._close_failure = error

    def _on_dispatched(self) -> None:
        for waiter in list(self._waiters):
            if self._waiters.pop(waiter, False):
                waiter.release()

    def _next_offset(self, topic: str, queue_id: int) -> int:
        # Asking a queue for its offset makes the store remember it, so only what is there is asked.
        is_there = queue_id <= self._log.queues.highest_id(topic)
        return self._log.queues.next_offset(topic, queue_id) if is_there else 0

    def _readable_at(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a queue has a message there, and readers see it."""
        self._refuse_unreadable()
        if self._when_open(self._next_offset, topic, queue_id) <= offset:
            return False
        gate = self._log.gate.state
        if gate.is_open:
            return True
        # Units of a batch that is being dispatched are there, and not for readers yet.
        with self.reader() as reader:
            return reader.queue_info(topic, queue_id).max_offset > offset

    def _refuse_unreadable(self) -> None:
        if not self.readable:
            raise StoreClosed(f"The store of {self.path} was set to be not readable.")

    def _call(self) -> threading.Lock:
        """To be held during a call: as long as it is, ``close`` waits. See ``RunningState.call``."""
        if os.getpid() != self._process:
            raise StoreClosed(
                f"The store of {self.path} was opened by process {self._process}; a process that was forked from it "
                "cannot use it."
            )
        return self._state.call()

    def _within(self, call: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
        """Do what uses the store's files, and asks whether it is closed."""
        try:
            with self._call():
                return call(*arguments, **named)
        finally:
            if self._state.closed:
                self._after_last_calls()

    def _when_open(self, call: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
        """Do what uses the store's files; ``StoreClosed`` when the store is closed."""
        return self._within(self._checked, lambda: call(*arguments, **named))

    def _checked(self, call: Callable[[], _T]) -> _T:
        if self._state.closed:
            raise StoreClosed(f"The store of {self.path} is closed; open it again.")
        return call()


def _checked_path(path: object) -> str:
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidValue(f"path is the directory of a store, a text or a pathlib.Path, not {path!r}.")
    return text


def _checked_config(config: object) -> MessageStoreConfig:
    if config is not None and not isinstance(config, MessageStoreConfig):
        raise InvalidValue(f"config is a MessageStoreConfig (or MessageStoreConfig.from_mapping(...)), not {config!r}.")
    return config or MessageStoreConfig()


def _checked_timeout(timeout: object) -> float:
    """Seconds to wait: None for ever, which is as long as the platform can."""
    if timeout is None:
        return threading.TIMEOUT_MAX
    if not isinstance(timeout, SupportsFloat) or timeout != timeout:
        raise InvalidValue(f"timeout is a number of seconds, or None for no limit, not {timeout!r}.")
    return threading.TIMEOUT_MAX if timeout > threading.TIMEOUT_MAX else float(timeout)  # type: ignore[operator]
