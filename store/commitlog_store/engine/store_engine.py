"""StoreEngine: connects the parts of an open store that every put and commit needs, and runs its calls and jobs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from commitlog_store.batch_id import CommittedBatch
from commitlog_store.config import FlushDiskType, MessageStoreConfig
from commitlog_store.engine.arrivals import Arrivals
from commitlog_store.engine.async_puts import AsyncPutService
from commitlog_store.engine.commit_batch import CommitBatchService
from commitlog_store.engine.disk_watermark import DiskWatermarkService
from commitlog_store.engine.durability import Durability
from commitlog_store.engine.flush import CommitRealTimeService, FlushRealTimeService, GroupCommitService, LogFlusher
from commitlog_store.engine.group_transfer import GroupTransferService
from commitlog_store.engine.produced_message import ProducedMessages
from commitlog_store.engine.put_message import EncodedMessage, PutMessageService
from commitlog_store.engine.put_table import PutTableService
from commitlog_store.engine.reput import BuildConsumeQueue, BuildIndex, CommitLogDispatcher, ReputMessageService
from commitlog_store.engine.running_state import RunningState
from commitlog_store.engine.stats import CountStored, StoreStatsService
from commitlog_store.engine.store_flush import FlushConsumeQueueService, StoreFlush, halt_dispatch
from commitlog_store.engine.stored_messages import StoredMessages
from commitlog_store.engine.subject import Hold, Subject
from commitlog_store.errors import DiskFull, StoreClosed, StoreIOError
from commitlog_store.files.limits import DiskUse, fullest_disk
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.message import Message
from commitlog_store.paths import INDEX
from commitlog_store.recovery.open import OpenedLog
from commitlog_store.threads.calls import Calls
from commitlog_store.threads.jobs import JobThread
from commitlog_store.threads.wakeup import Wakeup
from commitlog_store.threads.worker import Service, Worker

_T = TypeVar("_T")
# How long a service of a closing store waits: it is woken to end.
_UNTIL_STOPPED_SECONDS = 3_600.0


class StoreThreads:
    """The parts of an open store that exist before its log is opened: its state, its job thread, and its waiters."""

    def __init__(self, path: str, *, is_replica: bool) -> None:
        # Woken for new messages, and when no more can come.
        self.waiters = Arrivals()
        self.state = RunningState(path, on_halt=self.waiters.wake_all, is_replica=is_replica)
        self.calls = Calls()
        # Its last job waits for the calls under way.
        self.jobs = JobThread("StoreJobs", self.calls.have_ended)
        # Wakes the thread that makes the log's next files.
        self.allocate = Wakeup()


class StoreEngine(Subject):
    """The parts of one open store that all subjects use. Puts, commits, flushes and dispatch are complete without them.

    ``run`` does work on the job thread, ``call`` on the calling thread.
    """

    def __init__(
        self,
        paths: StorePaths,
        config: MessageStoreConfig,
        log: OpenedLog,
        threads: StoreThreads,
        replicas: GroupTransferService,
        wake_slaves: Callable[[], None],
        dispatchers: Sequence[CommitLogDispatcher],
    ) -> None:
        """Puts wait for ``replicas`` under SYNC_MASTER; ``wake_slaves`` is called when the log has grown.

        ``dispatchers`` get all messages after queues and index.
        """
        self.paths = paths
        self.path = paths.root
        self.config = config
        self.log = log
        self.topics = log.topics
        self.waiters, self.state, self.calls, self._jobs = threads.waiters, threads.state, threads.calls, threads.jobs
        self.stats = StoreStatsService()
        # Called on the job thread when retention has removed log files: what only reads them closes them.
        self.after_removal: list[Callable[[], None]] = []
        self.disk_use = partial(_disk_use, self.path, log)
        self.watermark = DiskWatermarkService(config.disk_space_warning_level_ratio, self.state, self.disk_use)
        self.watermark.run_once()  # a put or commit right after opening may come before the thread's first step
        wake_puts, wake_flush, wake_reput = Wakeup(), Wakeup(), Wakeup()
        is_sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        on_full = self.watermark.dispatch_full
        others = [CountStored(self.stats), *dispatchers]
        self.reput = reput = _reput_service(log, config, others, self.waiters, on_full, is_sync=is_sync)

        def message_arrived() -> None:
            """Wake dispatch, if it is idle and may dispatch something, and slaves' threads that are idle."""
            if reput.idle and reput.undispatched_bytes:
                wake_reput.set()
            wake_slaves()

        self.message_arrived = arrived = message_arrived
        flusher = LogFlusher(log.files, on_flushed=arrived)
        group_commit = GroupCommitService(flusher, wake_flush)
        self.durability = safe = Durability(config, group_commit, replicas, self.state, wake_slaves)
        self.putter = PutMessageService(config, log.writer, safe, self.state, self.stats, self.topics, arrived)
        self.async_puts: AsyncPutService[Message | EncodedMessage] = AsyncPutService(self.putter, wake_puts)
        self.produced = ProducedMessages(config, self.putter.place_of)
        self.stored = StoredMessages(log.queues, log.files, log.gate, self.stats)
        self.bulk = PutTableService(config, log.writer, self.putter, safe, self.stats, self.topics, arrived)
        committer = CommitRealTimeService(log.files, config, arrived) if config.transient_store_pool_enable else None
        self.store_flush = flush = StoreFlush(log, self.state, flusher, committer, reput)
        self.batches = CommitBatchService(self.path, config, log, flush, self.state, self.topics, arrived)
        halt = self.state.halt
        self._workers = [
            Worker("AsyncPutService", self.async_puts, halt, wake_puts),
            Worker("AllocateMappedFileService", _Allocation(log.allocator, self.watermark), halt, threads.allocate),
            Worker("ReputMessageService", reput, partial(halt_dispatch, self.state), wake_reput),
            self.worker(group_commit if is_sync else FlushRealTimeService(flusher, config), wake_flush),
            *([] if committer is None else [self.worker(committer)]),
            self.worker(FlushConsumeQueueService(log.queues, config, flush.flush_thoroughly, flush.write_checkpoint)),
            self.worker(self.stats),
            self.worker(self.watermark),
        ]

    def workers(self) -> Sequence[Worker]:
        return self._workers

    def worker(self, service: Service, wakeup: Wakeup | None = None) -> Worker:
        """The thread of a service, with its class's name. When the service ends by an error, the store is halted."""
        return Worker(type(service).__name__, service, self.state.halt, wakeup)

    def job_worker(self, service: Service) -> Worker:
        """The thread of a service whose steps are jobs."""
        return Worker(type(service).__name__, _AsJob(self, service), self.state.halt)

    def run(self, work: Callable[[], _T]) -> _T:
        """Do ``work`` on the job thread, as a call of this thread. ``StoreClosed``, ``StoreForked``, ``NestedCall``."""
        with self.calls.enter():
            self.state.refuse_closed()
            return self._jobs.run(partial(self.call, work))

    def commit(self, work: Callable[[], CommittedBatch]) -> CommittedBatch:
        """``run`` for the commit of a batch; returns when the slaves that it has to wait for have it.

        ``PutNotConfirmed`` when they do not in time. The job thread does not wait: other commits continue.
        """
        with self.calls.enter():
            self.state.refuse_closed()
            committed = self._jobs.run(partial(self.call, work))
            self.durability.confirm(committed.end)
            return committed

    def call(self, work: Callable[[], _T]) -> _T:
        """Do ``work`` on this thread, as a call of it: another call that a signal handler or a finalizer makes in it
        is refused (``NestedCall``)."""
        with self.calls.enter():
            return work()

    def holds(self) -> Sequence[Hold]:
        """What is not flushed or dispatched yet, and the batch that is being dispatched."""
        files, gate = self.log.files, self.log.gate.state
        holds = [
            Hold(from_offset=self.reput.reput_from, holder="dispatch to the consume queues"),
            Hold(from_offset=files.flushed_where, holder="the flush of the log"),
        ]
        if not gate.is_open:
            holds.append(Hold(from_offset=gate.start, holder="a batch that is being dispatched"))
        return holds

    def save(self) -> None:
        self.batches.save()

    def close(self) -> None:
        self.log.close()


class _AsJob:
    """A service whose steps run on the store's job thread."""

    def __init__(self, engine: StoreEngine, service: Service) -> None:
        self._engine = engine
        self._service = service

    def run_once(self) -> float:
        try:
            return self._engine.run(self._service.run_once)
        except StoreClosed:
            return _UNTIL_STOPPED_SECONDS


class _Allocation:
    """Allocates space, and after each step compares the disk with its watermark: puts must not fill it in a second."""

    def __init__(self, allocator: Service, watermark: DiskWatermarkService) -> None:
        self._allocator = allocator
        self._watermark = watermark

    def run_once(self) -> float:
        pause = self._allocator.run_once()
        self._watermark.run_once()
        return pause


def _disk_use(path: str, log: OpenedLog) -> DiskUse:
    """The fullest disk of the store: log, queues and index may lie on others than its directory."""
    return fullest_disk((log.files.path, log.queues.path, os.path.join(path, INDEX), path))


def _reput_service(
    log: OpenedLog,
    config: MessageStoreConfig,
    others: Sequence[CommitLogDispatcher],
    arrivals: Arrivals,
    on_disk_full: Callable[[StoreIOError | DiskFull | None], None],
    *,
    is_sync: bool,
) -> ReputMessageService:
    files = log.files
    dispatchers: list[CommitLogDispatcher] = [BuildConsumeQueue(log.queues)]
    if log.index is not None:
        dispatchers.append(BuildIndex(log.index))
    return ReputMessageService(
        files,
        files.max_wrote,
        # How far readers may see: under SYNC_FLUSH the flushed bytes (invariant 3), else all bytes in the files.
        (lambda: files.flushed_where) if is_sync else (lambda: files.committed_where),
        [*dispatchers, *others],
        config.delay_levels_ms,
        arrivals,
        on_disk_full,
        log.queues.settle,
        log.gate,
        log.writer.recent_appends,
        last_store_timestamp=log.writer.last_store_timestamp,
    )
