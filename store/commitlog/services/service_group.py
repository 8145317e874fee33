"""The services of an open store, and the order in which they start and stop."""

from __future__ import annotations

from collections.abc import Callable

from commitlog.config import FlushDiskType, MessageStoreConfig
from commitlog.errors import CommitLogError, CorruptStoreError, IndexIOError, StoreIOError
from commitlog.files.mapped_file_writer import is_out_of_space
from commitlog.recovery.open import OpenedLog
from commitlog.services.disk_watermark import DiskWatermarkService
from commitlog.services.flush import FOREVER, CommitRealTimeService, FlushRealTimeService, GroupCommitService
from commitlog.services.flush_consume_queue import FlushConsumeQueueService
from commitlog.services.reput import BuildConsumeQueue, BuildIndex, CommitLogDispatcher, ReputMessageService
from commitlog.services.running_state import RunningFlags, RunningState
from commitlog.services.stats import StoreStatsService
from commitlog.threads.worker import Worker

__all__ = ["ServiceGroup"]


class ServiceGroup:
    """Flush, dispatch, allocation and statistics of one store, each on a thread of its own."""

    def __init__(
        self, log: OpenedLog, config: MessageStoreConfig, state: RunningState, on_dispatched: Callable[[], None]
    ) -> None:
        self._log = log
        self._state = state
        self._sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.stats = StoreStatsService()
        self.group_commit = GroupCommitService(log.files, self.message_arrived)
        dispatchers: list[CommitLogDispatcher] = [BuildConsumeQueue(log.queues)]
        if log.index is not None:
            dispatchers.append(BuildIndex(log.index))
        self.watermark = DiskWatermarkService(log.files.path, config.disk_space_warning_level_ratio, state)
        self.reput = ReputMessageService(
            log.files,
            log.files.max_wrote,
            self._confirm,
            dispatchers,
            config.delay_levels_ms,
            on_dispatched,
            self.watermark.dispatch_full,
            log.gate,
            log.writer.recent_appends,
        )
        self.reput.last_store_timestamp = log.writer.last_store_timestamp
        self._committer: CommitRealTimeService | None = None
        flush_queues = FlushConsumeQueueService(log.queues, config, self._checkpoint, self._write_checkpoint)
        self._reput_worker = Worker("ReputMessageService", self.reput, self._dispatch_failed)
        self._allocate_worker = Worker("AllocateMappedFileService", log.allocator, self._failed)
        log.allocator.wake = self._allocate_worker.wake
        self._workers = [
            self._allocate_worker,
            self._reput_worker,
            Worker("FlushRealTimeService", FlushRealTimeService(log.files, self.group_commit, config), self._failed),
            Worker("FlushConsumeQueueService", flush_queues, self._failed),
            Worker("StoreStatsService", self.stats, self._failed),
            Worker("DiskWatermarkService", self.watermark, self._failed),
        ]
        if config.transient_store_pool_enable:
            self._committer = CommitRealTimeService(log.files, config, self.message_arrived)
            self._workers.append(Worker("CommitRealTimeService", self._committer, self._failed))

    def start(self) -> None:
        try:
            for worker in self._workers:
                worker.start()
        except BaseException:
            self.stop()  # the files will be closed under those that have begun
            raise

    def stop(self) -> None:
        """End all threads; nothing is lost by that, since the steps are taken once more by ``close_cleanly``.

        When it is interrupted, threads may go on; it can be called again.
        """
        for worker in self._workers:
            worker.stop()

    def message_arrived(self) -> None:
        """Called after every put: dispatch is woken when it does not look by itself."""
        if self.reput.idle:
            self._reput_worker.wake()

    def _confirm(self) -> int:
        """How far readers may see: under SYNC_FLUSH what is on the device (invariant 3), else what is in the files."""
        return self._log.files.flushed_where if self._sync else self._log.files.committed_where

    def _write_checkpoint(self) -> None:
        self._log.checkpoint.flush_if_changed(self._log.mark(closed=False))

    def dispatch(self) -> None:
        """Everything that readers may see goes to queues and index. ``StoreIOError``, ``CorruptStoreError``."""
        self._refuse_failed()
        self._dispatch()

    def _dispatch(self) -> None:
        try:
            self.reput.dispatch()
        except CommitLogError as error:
            if not is_out_of_space(error):
                self._dispatch_failed(error)
            raise
        except OSError as error:
            failure = StoreIOError("dispatch to", path=str(error.filename or self._log.queues.path), cause=error)
            self._dispatch_failed(failure)
            raise failure from error

    def _refuse_failed(self) -> None:
        """Do nothing more for a store that is fenced: the next sync would say that all is well (invariants 2 and 7)."""
        self._state.refuse_failed(self._log.files.path)

    def flush_log_to(self, end: int) -> None:
        """Return when the log is on the device up to there. ``StoreIOError``; the store is fenced then."""
        self._refuse_failed()
        try:
            if self._committer is not None:
                self._committer.commit()
            while self._log.files.flushed_where < end:
                self.group_commit.flush_to(end, FOREVER)
                self._refuse_failed()
        except StoreIOError as error:
            self._state.fence(error)
            raise

    def flush_everything(self) -> None:
        """Log, queues, index, then the checkpoint that says so. ``StoreIOError``."""
        self._flush_all()
        try:
            self._log.checkpoint.flush(self._log.mark(closed=False))
        except StoreIOError as error:
            self._state.fence(error)
            raise

    def _flush_all(self) -> None:
        self._refuse_failed()
        try:
            if self._committer is not None:
                self._committer.commit()
            self.group_commit.flush()
        except StoreIOError as error:
            self._state.fence(error)
            raise
        self._dispatch()
        try:
            # What is dispatched by now is what the flush of queues and index covers, and this one of the log: messages
            # that arrived since the first flush are dispatched too, unless that waits for the device.
            dispatched = self.reput.last_store_timestamp
            self.group_commit.flush()
            self._log.gate.sync()  # before the units that it hides can be on the device for good
            self._log.queues.flush_all()
            if self._log.index is not None:
                self._flush_index()
            indexed = dispatched if self._log.index is not None else 0
            self._log.checkpoint.advance(physic=dispatched, logics=dispatched, index=indexed)
        except StoreIOError as error:
            self._state.fence(error)
            raise

    def _checkpoint(self) -> None:
        """The thorough flush. Without space for a queue's file it waits: dispatch has said so, and tries again."""
        try:
            self.flush_everything()
        except CommitLogError as error:
            if self._state.failure is not None or not is_out_of_space(error):
                raise

    def _flush_index(self) -> None:
        index = self._log.index
        assert index is not None
        try:
            index.flush()
        except OSError as error:
            raise IndexIOError("flush the index in", path=index.path, cause=error) from error

    def close_cleanly(self, save_batches: Callable[[], None]) -> None:
        """Flush everything and leave the mark that lets the next open go without a scan. ``StoreIOError``."""
        self._log.writer.fence_if_unsettled()
        if self._state.failure is not None:
            return
        self._flush_all()
        try:
            save_batches()
            self._close_index()
            self._log.checkpoint.flush(self._log.mark(closed=True))
        except StoreIOError as error:
            self._state.fence(error)
            raise

    def _close_index(self) -> None:
        index = self._log.index
        if index is not None:
            try:
                index.close()
            except OSError as error:
                raise IndexIOError("close the index in", path=index.path, cause=error) from error

    def _failed(self, error: BaseException) -> None:
        self._state.fence(error)

    def _dispatch_failed(self, error: BaseException) -> None:
        flag = RunningFlags.NOT_WRITEABLE
        if isinstance(error, CorruptStoreError):
            flag = RunningFlags.WRITE_LOGICS_QUEUE_ERROR
        elif isinstance(error, IndexIOError):
            flag = RunningFlags.WRITE_INDEX_FILE_ERROR
        self._state.fence(error, flag)
