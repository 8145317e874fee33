"""StoreOpening: opens a store, step by step as docs/architecture.md describes it ("How a store is opened").

A step that fails undoes those before it.
"""

from __future__ import annotations

import contextlib
import logging
import time

from commitlog_store.batch.staging import remove_leftovers
from commitlog_store.config import BrokerRole, MessageStoreConfig
from commitlog_store.delayed.broker_marks import note_creation
from commitlog_store.delayed.schedule_message import ScheduleMessageService
from commitlog_store.delayed.timer_message import TimerMessageService
from commitlog_store.delayed.waiting_records import WakeScheduleService
from commitlog_store.engine.store_engine import StoreEngine, StoreThreads
from commitlog_store.errors import CommitLogError
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.timer_messages import TIMER_TOPIC
from commitlog_store.groups.group_positions import GroupPositions
from commitlog_store.half.transactional_message import TransactionalMessageService
from commitlog_store.log.owner_directory import OwnerDirectory
from commitlog_store.owned_store.owned_store import OwnedStore
from commitlog_store.progress import Progress
from commitlog_store.queue.topic_config import topic_list_signature
from commitlog_store.recovery.open import OpenedLog, open_log
from commitlog_store.recovery.start import OpenWishes
from commitlog_store.replication.replica_mark import refuse_replica
from commitlog_store.replication.service import HAService
from commitlog_store.retention.archive_status import forget_status
from commitlog_store.retention.clean import Retention
from commitlog_store.threads.wakeup import Wakeup

_LOG = logging.getLogger(__name__)


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
        self._is_replica = config.broker_role is BrokerRole.SLAVE
        self._threads = StoreThreads(path, is_replica=self._is_replica)
        self._opened: OwnedStore | None = None
        self._undone = False

    def run(self) -> OwnedStore:
        """Open the store and start its threads."""
        self._threads.jobs.start()
        return self._threads.jobs.run(self._open)

    def undo(self) -> None:
        """Close what was opened, or is still being opened: soon, on the job thread, without waiting for it."""
        self._undone = True
        if self._threads.jobs.has_started:
            self._threads.jobs.finish(self._leave)

    def _open(self) -> OwnedStore:
        with contextlib.ExitStack() as undo:
            directory = self._own()
            undo.callback(directory.close, clean=False)
            log = self._recover(directory)
            undo.callback(log.close)
            self._prepare_files(directory, log)
            replication = HAService(directory.path, self._config, log, self._threads.state)
            undo.callback(replication.close)
            store = self._connect(directory, log, replication)
            store.groups.restore_at_open()
            store.delayed.correct_positions()
            undo.pop_all()
        self._opened = store
        store.start()
        return store

    def _own(self) -> OwnerDirectory:
        """Take the store's lock; make the directory if need be."""
        if self._config.retention_archive:
            from commitlog_store.archive.holding import ArchiveHolder

            ArchiveHolder.check(StorePaths.of(self._path, self._config.store_path_commit_log), self._config)
        return OwnerDirectory.open(
            self._path,
            commit_log=self._config.store_path_commit_log,
            lock_timeout_s=self._lock_timeout_s,
            given_up=lambda: self._undone,
        )

    def _recover(self, directory: OwnerDirectory) -> OpenedLog:
        """Gather evidence, decide, recover, and mark the store as open."""
        if not self._takes_replica:
            refuse_replica(directory.path, self._config.broker_role)
        return open_log(
            directory,
            self._config,
            self._wishes,
            progress=self._report,
            on_failure=self._threads.state.halt,
            allocate=self._threads.allocate,
        )

    def _prepare_files(self, directory: OwnerDirectory, log: OpenedLog) -> None:
        """Write what the store lacks beside its log, and remove what nothing will commit."""
        if not self._is_replica:
            if not log.files.max_wrote:
                note_creation(directory.path)
            _list_known_topics(directory.path, log)
        if not self._config.retention_archive:
            forget_status(directory.path)
        remove_leftovers(directory.path, now=time.time())

    def _connect(self, directory: OwnerDirectory, log: OpenedLog, replication: HAService) -> OwnedStore:
        """Construct the parts, each from those before it."""
        config, threads, delayed_came, timer_came = self._config, self._threads, Wakeup(), Wakeup()
        engine = StoreEngine(
            *(directory.paths, config, log, threads, replication.transfer, replication.notify),
            [WakeScheduleService(delayed_came), WakeScheduleService(timer_came, TIMER_TOPIC)],
        )
        groups = GroupPositions(engine)
        half_messages = TransactionalMessageService(engine, groups)
        delayed = ScheduleMessageService(engine, delayed_came)
        timer = TimerMessageService(engine, timer_came)
        archive_hold = None
        if config.retention_archive:
            from commitlog_store.archive.holding import ArchiveHolder  # a store without archives does not import it

            archive_hold = ArchiveHolder.open(directory.paths, config)
        retention = Retention(
            *(engine, groups, (delayed, timer, half_messages, groups, *filter(None, [archive_hold]))),
            lambda: delayed.waiting_topics() + timer.waiting_topics(),
        )
        parts = directory, threads.jobs, engine, half_messages, delayed, timer, groups, retention, replication
        return OwnedStore(*parts, archive_hold)

    def _leave(self) -> None:
        if self._opened is not None:
            self._opened.end_unflushed()

    def _report(self, done: int, total: int) -> None:
        if self._undone:
            raise _OpeningUndone
        if self._progress is not None:
            self._progress(done, total)


class _OpeningUndone(Exception):
    """Ends a recovery that no caller waits for any more."""


def _list_known_topics(store_path: str, log: OpenedLog) -> None:
    """List the topics that have queues, in one write, if the list is missing. A failure is logged: puts list theirs."""
    try:
        if not any(topic_list_signature(log.topics.path)):
            log.topics.list_queues(log.queues.known_queues())
    except (CommitLogError, OSError) as error:
        _LOG.warning("%s: topics that are not listed stay so, and brokers do not offer them: %s", store_path, error)
