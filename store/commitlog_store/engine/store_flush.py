"""StoreFlush: flushes of a whole store: log, queues, index and checkpoint, each after the one it depends on.

The checkpoint is written last, so that it never claims more than was flushed (invariant 7).

``FlushConsumeQueueService`` flushes periodically. Source: RocketMQ ``store/DefaultMessageStore.java``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from commitlog_store.config import MessageStoreConfig
from commitlog_store.engine.flush import CommitRealTimeService, LogFlusher
from commitlog_store.engine.reput import ReputMessageService
from commitlog_store.engine.running_state import RunningFlags, RunningState
from commitlog_store.errors import (
    CommitLogError,
    CorruptStoreError,
    DiskFull,
    IndexIOError,
    StoreIOError,
    TooManyOpenFiles,
)
from commitlog_store.files.mapped_file_writer import is_out_of_space
from commitlog_store.index.writer import IndexWriter
from commitlog_store.queue.consume_queue_store import ConsumeQueueStore
from commitlog_store.recovery.open import OpenedLog

_MS = 1000.0


def halt_dispatch(state: RunningState, error: BaseException) -> None:
    """Fence the store after a failed dispatch, with the flag of the part that failed."""
    flag = RunningFlags.NOT_WRITEABLE
    if isinstance(error, CorruptStoreError):
        flag = RunningFlags.WRITE_LOGICS_QUEUE_ERROR
    elif isinstance(error, IndexIOError):
        flag = RunningFlags.WRITE_INDEX_FILE_ERROR
    state.halt(error, flag)


class StoreFlush:
    """Flushes a whole store. A failure halts the store, and a halted store is not flushed any more."""

    def __init__(
        self,
        log: OpenedLog,
        state: RunningState,
        flusher: LogFlusher,
        committer: CommitRealTimeService | None,
        reput: ReputMessageService,
    ) -> None:
        self._log = log
        self._state = state
        self._flusher = flusher
        self._committer = committer
        self._reput = reput

    def flush_log(self) -> None:
        """Bring everything that was appended to the device. ``StoreIOError``."""
        self._halting(self._flush_log)

    def flush_log_and_note(self) -> None:
        """``flush_log``, and write to the checkpoint how far it came, before positions are saved that stand for it.

        A log that loses these bytes is refused (``LogShort``) then, instead of continuing after work that is lost.
        ``StoreIOError``.
        """
        self.flush_log()
        self.write_checkpoint()

    def dispatch(self) -> None:
        """Bring everything that readers may see to queues and index. ``StoreIOError``, ``CorruptStoreError``."""
        self._state.refuse_failed()
        try:
            self._reput.dispatch()
        except TooManyOpenFiles:
            raise  # the messages are in the log, and are dispatched later
        except (DiskFull, StoreIOError) as error:
            if not is_out_of_space(error):
                halt_dispatch(self._state, error)
                raise
            # Not a refusal here: the messages are in the log.
            advice = "The messages are in the log; they are dispatched once the disk has space."
            cause = OSError(error.errno, error.reason)
            raise StoreIOError("dispatch to", path=error.path, cause=cause, advice=advice) from error
        except CommitLogError as error:
            halt_dispatch(self._state, error)
            raise
        except OSError as error:
            failure = StoreIOError("dispatch to", path=str(error.filename or self._log.queues.path), cause=error)
            halt_dispatch(self._state, failure)
            raise failure from error

    def flush_everything(self) -> None:
        """Flush log, queues and index, then write the checkpoint. ``StoreIOError``."""
        self._flush_all()
        self._halting(lambda: self._log.checkpoint.flush_now(partial(self._log.mark, closed=False)))

    def flush_dispatched(self) -> None:
        """``flush_everything`` as far as dispatch has come by now: it takes no space on the disk. ``StoreIOError``."""
        self.flush_log()
        self._halting(self._flush_dispatched)
        self._halting(lambda: self._log.checkpoint.flush_now(partial(self._log.mark, closed=False)))

    def flush_thoroughly(self) -> None:
        """The periodic ``flush_everything``. Without space for a queue's file it waits: dispatch tries again."""
        try:
            self.flush_everything()
        except CommitLogError as error:
            if self._state.failure is not None or not is_out_of_space(error):
                raise

    def write_checkpoint(self) -> None:
        """Write to the checkpoint how far everything is flushed. ``StoreIOError``."""
        self._log.checkpoint.flush_now(partial(self._log.mark, closed=False), if_changed=True)

    def close_cleanly(self, save_batches: Callable[[], None]) -> None:
        """Flush everything and write the mark with which the next open needs no scan. ``StoreIOError``."""
        self._log.writer.halt_if_unsettled()
        if self._state.failure is not None:
            return
        self._flush_all()
        self._halting(lambda: self._leave_mark(save_batches))

    def _leave_mark(self, save_batches: Callable[[], None]) -> None:
        self._reput.settle()
        save_batches()
        if self._log.index is not None:
            _of_index("close", self._log.index, self._log.index.close)
        self._log.queues.save_ends()
        self._log.checkpoint.flush_now(partial(self._log.mark, closed=True))

    def _flush_log(self) -> None:
        if self._committer is not None:
            self._committer.commit()
        self._flusher.flush()

    def _flush_all(self) -> None:
        self.flush_log()
        self.dispatch()
        self._halting(self._flush_dispatched)

    def _flush_dispatched(self) -> None:
        # The flush of queues and index covers everything dispatched by now, and so must this one of the log: messages
        # that arrived since the first flush are dispatched too, unless dispatch waits for the device.
        dispatched = self._reput.last_store_timestamp
        self._flusher.flush()
        self._log.gate.sync()  # before the units that it hides can be on the device
        self._log.queues.flush_all()
        if self._log.index is not None:
            _of_index("flush", self._log.index, self._log.index.flush)
        indexed = dispatched if self._log.index is not None else 0
        self._log.checkpoint.advance(physic=dispatched, logics=dispatched, index=indexed)

    def _halting(self, step: Callable[[], None]) -> None:
        """Do a step on a store that is not halted, and halt it when the step fails.

        A halted store is not flushed: the next sync would report success (invariants 2 and 7).
        """
        self._state.refuse_failed()
        try:
            step()
        except StoreIOError as error:
            self._state.halt(error)
            raise


def _of_index(operation: str, index: IndexWriter, step: Callable[[], None]) -> None:
    try:
        step()
    except OSError as error:
        raise IndexIOError(f"{operation} the index in", path=index.path, cause=error) from error


class FlushConsumeQueueService:
    """Flushes queues with enough dirty pages; after the thorough interval everything, by ``checkpoint``."""

    def __init__(
        self,
        queues: ConsumeQueueStore,
        config: MessageStoreConfig,
        checkpoint: Callable[[], None],
        note_flushed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queues = queues
        self._least_pages = config.flush_consume_queue_least_pages
        self._interval = config.flush_interval_consume_queue / _MS
        self._thorough = config.flush_consume_queue_thorough_interval / _MS
        self._checkpoint = checkpoint
        self._note_flushed = note_flushed
        self._clock = clock
        self._flushed_at = clock()

    def run_once(self) -> float:
        now = self._clock()
        if now - self._flushed_at >= self._thorough:
            self._checkpoint()
            self._flushed_at = now
        else:
            self._queues.flush(self._least_pages)
            self._note_flushed()
        return self._interval
