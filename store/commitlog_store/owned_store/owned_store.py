"""OwnedStore: an open store with its files, services and threads, from opening to closing.

``MessageStore`` is its public face. No thread refers to a ``MessageStore``, so one that is dropped is noticed.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from commitlog_store.batch.staging import remove_leftovers
from commitlog_store.batch_id import CommittedBatch
from commitlog_store.config import BrokerRole, FlushDiskType, MessageStoreConfig
from commitlog_store.delayed.broker_marks import note_creation
from commitlog_store.delayed.schedule_message import ScheduleMessageService, WakeScheduleService
from commitlog_store.engine.async_puts import AsyncPutService
from commitlog_store.engine.commit_batch import CommitBatchService
from commitlog_store.engine.disk_watermark import DiskWatermarkService
from commitlog_store.engine.durability import Durability
from commitlog_store.engine.flush import CommitRealTimeService, FlushRealTimeService, GroupCommitService, LogFlusher
from commitlog_store.engine.flush_consume_queue import FlushConsumeQueueService
from commitlog_store.engine.put_message import PutMessageService
from commitlog_store.engine.put_table import PutTableService
from commitlog_store.engine.reput import BuildConsumeQueue, BuildIndex, CommitLogDispatcher, ReputMessageService
from commitlog_store.engine.running_state import RunningState
from commitlog_store.engine.stats import StoreStatsService
from commitlog_store.engine.store_flush import StoreFlush, fence_dispatch
from commitlog_store.errors import CommitLogError, StoreClosed
from commitlog_store.files.limits import DiskUse, fullest_disk
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.half_messages import HALF_QUEUE_ID, HALF_TOPIC, OP_TOPIC
from commitlog_store.groups.flush_consumer_offset import FlushConsumerOffsetService
from commitlog_store.groups.group_positions import GroupPositions
from commitlog_store.half.transactional_message import HalfQueueEnds, TransactionalMessageService
from commitlog_store.log.owner_directory import OwnerDirectory
from commitlog_store.owned_store.list_topics import list_old_topics
from commitlog_store.owned_store.service_group import ServiceGroup
from commitlog_store.paths import INDEX
from commitlog_store.recovery.log_end import Progress
from commitlog_store.recovery.open import OpenedLog, OpenWishes, open_log
from commitlog_store.replication.replica_log import ReplicaLog
from commitlog_store.replication.replica_mark import refuse_replica
from commitlog_store.replication.replication import open_replication
from commitlog_store.replication.service import HAService
from commitlog_store.retention.clean import (
    CleanCommitLogService,
    CleanConsumeQueueService,
    RetentionSettings,
    StoreCleaner,
)
from commitlog_store.retention.delete_topic import TopicDeletion
from commitlog_store.threads.calls import Calls
from commitlog_store.threads.jobs import Job, JobThread
from commitlog_store.threads.wakeup import Waiters, Wakeup
from commitlog_store.threads.worker import Service, Worker

__all__ = ["OwnedStore", "StoreOpening"]

_T = TypeVar("_T")
_LOG = logging.getLogger(__name__)
# How long a service of a closing store waits: it is woken to end.
_UNTIL_STOPPED_SECONDS = 3_600.0

# The open stores of this process: closed when the interpreter exits, refused in a forked child.
_OPEN: set[OwnedStore] = set()


class _Wakeups(NamedTuple):
    """What ends the waits of the services that others wake."""

    allocate: Wakeup
    flush: Wakeup
    puts: Wakeup
    reput: Wakeup
    schedule: Wakeup


class OwnedStore:
    """The parts of one open store. ``close`` ends it, ``leave`` leaves it as a killed process would."""

    def __init__(
        self,
        directory: OwnerDirectory,
        log: OpenedLog,
        config: MessageStoreConfig,
        state: RunningState,
        waiters: Waiters,
        allocate: Wakeup,
        calls: Calls,
        jobs: JobThread,
        replication: HAService,
    ) -> None:
        """``waiters`` are woken for new messages and when no more can come, ``allocate`` for a new file.

        ``jobs`` is the running job thread, whose last job waits for ``calls``.
        """
        self.path = directory.path
        self.log = log
        self.state = state
        self.waiters = waiters
        self.calls = calls
        self.replication = replication
        self.stats = StoreStatsService()
        self.topics = log.topics
        self._directory = directory
        self._jobs = jobs
        self._close_failure: BaseException | None = None
        self._watermark = DiskWatermarkService(config.disk_space_warning_level_ratio, state, self._disk_use)
        self._watermark.run_once()  # a put or commit right after opening may come before the thread's first look
        wakeups = _Wakeups(allocate, Wakeup(), Wakeup(), Wakeup(), Wakeup())
        self._sync = sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.reput = _reput(log, config, waiters, self._watermark, wakeups.schedule, sync=sync)

        def message_arrived() -> None:
            """Wake dispatch and slaves' threads that are idle."""
            if self.reput.idle:
                wakeups.reput.set()
            if replication.connections:
                replication.notify()

        self._message_arrived = message_arrived
        flusher = LogFlusher(log.files, on_flushed=message_arrived)
        group_commit = GroupCommitService(flusher, wakeups.flush)
        self.durability = Durability(config, group_commit, replication.transfer, state, replication.notify)
        self.putter = PutMessageService(
            config, log.writer, self.durability, state, self.stats, self.topics, message_arrived
        )
        self.async_puts = AsyncPutService(self.putter, wakeups.puts)
        self.bulk = PutTableService(
            config, log.writer, self.putter, self.durability, self.stats, self.topics, message_arrived
        )
        pool = config.transient_store_pool_enable
        committer = CommitRealTimeService(log.files, config, message_arrived) if pool else None
        self.store_flush = StoreFlush(log, state, flusher, committer, self.reput)
        self.batches = CommitBatchService(self.path, config, log, self.store_flush, state, self.topics, message_arrived)
        self.consumer_offsets = FlushConsumerOffsetService(self.path, config, self.store_flush.flush_log)
        self.group_positions = GroupPositions(self.path, log, self.consumer_offsets)
        self.half_messages = self._half_messages(config)
        self.schedule = _schedule(self, config)
        self.cleaner = self._cleaner(log, state)
        self.retention = RetentionSettings(config, self._disk_use)
        flush_log = group_commit if sync else FlushRealTimeService(flusher, config)
        workers = [*self._woken_workers(config, flush_log, wakeups), *self._timed_workers(config, committer)]
        self._services = ServiceGroup([*workers, *self._cleaning(config)])

    def _woken_workers(self, config: MessageStoreConfig, flush_log: Service, wakeups: _Wakeups) -> list[Worker]:
        """The threads that others wake."""
        fence = self.state.fence
        allocate = _ThenLook(self.log.allocator, self._watermark)
        workers = [
            Worker("AsyncPutService", self.async_puts, fence, wakeups.puts),
            Worker("AllocateMappedFileService", allocate, fence, wakeups.allocate),
            Worker("ReputMessageService", self.reput, partial(fence_dispatch, self.state), wakeups.reput),
            Worker(type(flush_log).__name__, flush_log, fence, wakeups.flush),
        ]
        if config.schedule_enable is not False and config.broker_role is not BrokerRole.SLAVE:
            workers.append(Worker("ScheduleMessageService", self.schedule, fence, wakeups.schedule))
        return workers

    def _cleaner(self, log: OpenedLog, state: RunningState) -> StoreCleaner:
        reput, positions, on_freed = self.reput, self.consumer_offsets, self._watermark.run_once
        delayed_from = self.schedule.waiting_from
        return StoreCleaner(
            self.path, log, reput, self.store_flush, self.batches, positions, delayed_from, state, on_freed
        )

    def _timed_workers(self, config: MessageStoreConfig, committer: CommitRealTimeService | None) -> list[Worker]:
        """The threads that work at intervals alone."""
        flush_queues = FlushConsumeQueueService(
            self.log.queues, config, self.store_flush.flush_thoroughly, self.store_flush.write_checkpoint
        )
        services: list[Service] = [flush_queues, self.consumer_offsets, self.stats, self._watermark]
        if committer is not None:
            services.insert(0, committer)
        return [Worker(type(one).__name__, one, self.state.fence) for one in services]

    @property
    def paths(self) -> StorePaths:
        """Where the store and its log lie."""
        return self._directory.paths

    @property
    def replica_log(self) -> ReplicaLog:
        """The log of a store in the role SLAVE."""
        return ReplicaLog(self.log, self.store_flush, self._message_arrived)

    @property
    def deletion(self) -> TopicDeletion:
        """What deletes topics, once: it counts the delayed messages that wait now."""
        count_delayed = self.schedule.waiting_topics
        return TopicDeletion(self.path, self.log, self.store_flush, self.topics, self.consumer_offsets, count_delayed)

    def _disk_use(self) -> DiskUse:
        """The fullest disk of the store: log, queues and index may lie on others than its directory."""
        index = os.path.join(self.path, INDEX)
        return fullest_disk((self.log.files.path, self.log.queues.path, index, self.path))

    def _cleaning(self, config: MessageStoreConfig) -> list[Worker]:
        """The threads that delete old files, if the settings ask for it. Each step is a job, as is every use of the
        ledger."""
        if not config.retention:
            return []
        clean_log = CleanCommitLogService(self.cleaner, config, self.retention)
        services = clean_log, CleanConsumeQueueService(self.cleaner, config)
        return [Worker(type(one).__name__, _AsJob(self, one), self.state.fence) for one in services]

    def _half_messages(self, config: MessageStoreConfig) -> TransactionalMessageService:
        return TransactionalMessageService(
            self.path,
            config,
            self.putter,
            self.batches,
            self.store_flush,
            self.topics,
            lambda: self.consumer_offsets.offsets,
            HalfQueueEnds(_end(self.log, HALF_TOPIC), _end(self.log, OP_TOPIC)),
            self.run,
            self.commit,
            self._put,
            self._start_service,
        )

    def _start_service(self, service: Service) -> None:
        """Give a service its thread while the store is open. On the job thread."""
        self._services.add(Worker(type(service).__name__, service, self.state.fence))

    def correct_positions(self) -> None:
        """Before the first message is put: make positions that stand for lost messages from the log again."""
        self.group_positions.restore_at_open()
        self.schedule.correct_positions()

    def start(self) -> None:
        """Start the services, on the job thread."""
        _OPEN.add(self)
        self._services.start()
        self.replication.start()

    def run(self, work: Callable[[], _T]) -> _T:
        """Do ``work`` on the job thread, as a call of this thread. ``StoreClosed``, ``StoreForked``, ``NestedCall``."""
        with self.calls.enter():
            self.state.refuse_closed()
            return self._jobs.run(partial(self._do, work))

    def commit(self, work: Callable[[], CommittedBatch]) -> CommittedBatch:
        """``run`` for the commit of a batch; returns when the slaves that it has to wait for have it.

        ``PutNotConfirmed`` when they do not in time. The job thread does not wait: other commits continue.
        """
        with self.calls.enter():
            self.state.refuse_closed()
            committed = self._jobs.run(partial(self._do, work))
            self.durability.confirm(committed.end)
            return committed

    def _do(self, work: Callable[[], _T]) -> _T:
        """A job is a call of the job thread: a finalizer that runs there is refused, as a signal handler elsewhere."""
        with self.calls.enter():
            return work()

    def _put(self, work: Callable[[], _T]) -> _T:
        """Do ``work`` on this thread, as a call of it."""
        with self.calls.enter():
            return work()

    def close(self, *, wait: bool = True) -> None:
        """Reject new calls, and close when the calls under way have ended. See ``MessageStore.close``."""
        closing = self._begin_closing()
        if closing is None or not wait or self.calls.is_within() or self._services.is_within():
            return
        closing.wait()
        failure, self._close_failure = self._close_failure, None
        if failure is not None:
            raise failure

    @property
    def is_closing(self) -> bool:
        """Whether the store was closed, or asked to close, or belongs to a parent process."""
        return self.state.closed

    def _begin_closing(self) -> Job[object] | None:
        if self.state.forked:
            return None  # a forked child has no threads, and the files are its parent's
        self.state.close()
        self.waiters.wake_all()
        return self._jobs.finish(self._close)

    def _close(self) -> None:
        """The last job. No file is closed while a call or a thread uses it."""
        try:
            self.log.writer.close()
            self._services.stop()
            self.replication.stop()
            self.async_puts.refuse_rest(self.path)
            clean = False
            try:
                self.store_flush.close_cleanly(self._save)
                clean = self.state.failure is None
            finally:
                try:
                    if not clean and self._sync:  # otherwise they may stand for messages that are not on the device
                        self.consumer_offsets.run_once()
                finally:
                    self._close_files(clean=clean)
        except BaseException as error:  # noqa: BLE001 - the next ``close`` that waits raises it
            _LOG.exception("Closing the store of %s failed", self.path)
            self._close_failure = error

    def _save(self) -> None:
        """Write the files that follow the log, when all of it is on the device. What raises leaves no clean end."""
        self.batches.save()
        self.half_messages.save()
        self.schedule.save()
        self.consumer_offsets.flush()

    def leave(self) -> None:
        """End the threads, close the files, flush nothing: the store is as a killed process leaves it.

        On the job thread, as its last job.
        """
        self.state.close()
        self._services.stop()
        self.replication.stop()
        self.async_puts.refuse_rest(self.path)
        self._close_files(clean=False)

    def _close_files(self, *, clean: bool) -> None:
        try:
            self.half_messages.close()
            self.log.close()
        finally:
            self._directory.close(clean=clean)
            _OPEN.discard(self)  # last: until then, a forked child has to learn that the files are its parent's

    def fork(self) -> None:
        """In a forked child: the store is the parent's."""
        self.state.fork()
        self.calls.forget()
        self.replication.forget()


class StoreOpening:
    """Opens a store on its job thread, so that no signal handler ends it in the middle with the lock held.

    ``run``, and if that or what follows it raises, ``undo``. See ``MessageStore.open``.
    """

    def __init__(
        self,
        path: str,
        config: MessageStoreConfig,
        *,
        lock_timeout_s: float,
        wishes: OpenWishes,
        progress: Progress | None,
        takes_replica: bool = False,
    ) -> None:
        """``takes_replica``: also a mirror, which is to be promoted."""
        self._path = path
        self._takes_replica = takes_replica
        self._config = config
        self._lock_timeout_s = lock_timeout_s
        self._wishes = wishes
        self._progress = progress
        self._calls = Calls()
        self._jobs = JobThread("StoreJobs", self._calls.have_ended)
        self._opened: OwnedStore | None = None
        self._undone = False

    def run(self) -> OwnedStore:
        """Lock the directory, recover, connect the parts, start the threads."""
        self._jobs.start()
        return self._jobs.run(self._open)

    def undo(self) -> None:
        """Close what was opened, or is still being opened: soon, on the job thread, without waiting for it."""
        self._undone = True
        if self._jobs.has_started:
            self._jobs.finish(self._leave)

    def _leave(self) -> None:
        if self._opened is not None:
            self._opened.leave()

    def _open(self) -> OwnedStore:
        waiters, allocate = Waiters(), Wakeup()
        is_replica = self._config.broker_role is BrokerRole.SLAVE
        state = RunningState(self._path, on_fence=waiters.wake_all, is_replica=is_replica)
        directory = OwnerDirectory.open(
            self._path,
            commit_log=self._config.store_path_commit_log,
            lock_timeout_s=self._lock_timeout_s,
            given_up=lambda: self._undone,
        )
        with contextlib.ExitStack() as undo:
            undo.callback(directory.close, clean=False)
            if not self._takes_replica:
                refuse_replica(directory.path, self._config.broker_role)
            log = open_log(
                directory,
                self._config,
                self._wishes,
                progress=self._report,
                on_failure=state.fence,
                allocate=allocate,
            )
            undo.callback(log.close)
            if not is_replica:
                if not log.files.max_wrote:
                    note_creation(directory.path)
                list_old_topics(directory.path, log)
            remove_leftovers(directory.path, now=time.time())
            replication = open_replication(directory.path, self._config, log, state)
            undo.callback(replication.close)
            store = OwnedStore(
                directory, log, self._config, state, waiters, allocate, self._calls, self._jobs, replication
            )
            if not is_replica:  # the positions of a mirror are its master's
                store.correct_positions()
            undo.pop_all()
        self._opened = store
        store.start()
        return store

    def _report(self, done: int, total: int) -> None:
        if self._undone:
            raise _OpeningUndone
        if self._progress is not None:
            self._progress(done, total)


class _OpeningUndone(Exception):
    """Ends a recovery that no caller waits for any more."""


class _AsJob:
    """A service whose steps run on the store's job thread."""

    def __init__(self, store: OwnedStore, service: Service) -> None:
        self._store = store
        self._service = service

    def run_once(self) -> float:
        try:
            return self._store.run(self._service.run_once)
        except StoreClosed:
            return _UNTIL_STOPPED_SECONDS


class _ThenLook:
    """The service that allocates space, and after each step a look at the disk: puts must not fill it in a second."""

    def __init__(self, allocator: Service, watermark: DiskWatermarkService) -> None:
        self._allocator = allocator
        self._watermark = watermark

    def run_once(self) -> float:
        pause = self._allocator.run_once()
        self._watermark.run_once()
        return pause


def _end(log: OpenedLog, topic: str) -> int | None:
    """The end of queue 0 of a topic, 0 without it; None where it cannot be read: the store opens nevertheless."""
    try:
        bounds = log.queues.written_bounds(topic, HALF_QUEUE_ID)
    except (CommitLogError, OSError):
        return None
    return 0 if bounds is None else bounds[1]


def _reput(
    log: OpenedLog,
    config: MessageStoreConfig,
    waiters: Waiters,
    watermark: DiskWatermarkService,
    schedule: Wakeup,
    *,
    sync: bool,
) -> ReputMessageService:
    files = log.files
    dispatchers: list[CommitLogDispatcher] = [BuildConsumeQueue(log.queues)]
    if log.index is not None:
        dispatchers.append(BuildIndex(log.index))
    # After the queues: a message that wakes it is in its queue.
    dispatchers.append(WakeScheduleService(schedule))
    return ReputMessageService(
        files,
        files.max_wrote,
        # How far readers may see: under SYNC_FLUSH the flushed bytes (invariant 3), else all bytes in the files.
        (lambda: files.flushed_where) if sync else (lambda: files.committed_where),
        dispatchers,
        config.delay_levels_ms,
        waiters.wake_all,
        watermark.dispatch_full,
        log.queues.settle,
        log.gate,
        log.writer.recent_appends,
        last_store_timestamp=log.writer.last_store_timestamp,
    )


def _schedule(store: OwnedStore, config: MessageStoreConfig) -> ScheduleMessageService:
    return ScheduleMessageService(
        store.path,
        config.schedule_enable,
        config.delay_levels_ms,
        store.log,
        store.batches,
        store.topics,
        store.state,
        store.stats,
        store.store_flush,
        store.run,
        flush_interval_s=config.flush_delay_offset_interval / 1000,
    )


def _close_all() -> None:
    """When the interpreter exits: close the stores that were not closed, so that the next open needs no recovery."""
    for store in list(_OPEN):
        try:
            store.close()
        except Exception:  # noqa: BLE001 - the others are to be closed too
            _LOG.exception("Cannot close the store of %s", store.path)


def _fork_all() -> None:
    for store in _OPEN:
        store.fork()
    _OPEN.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_fork_all)
