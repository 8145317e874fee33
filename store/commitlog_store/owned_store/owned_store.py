"""OwnedStore: an open store with its parts and threads, from start to close. ``opening.py`` makes it.

``MessageStore`` is its public face. No thread refers to a ``MessageStore``, so one that is dropped is noticed.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
from collections.abc import Callable, Iterator

from commitlog_store.delayed.schedule_message import ScheduleMessageService
from commitlog_store.delayed.timer_message import TimerMessageService
from commitlog_store.engine.store_engine import StoreEngine
from commitlog_store.engine.subject import Subject
from commitlog_store.groups.group_positions import GroupPositions
from commitlog_store.half.transactional_message import TransactionalMessageService
from commitlog_store.log.owner_directory import OwnerDirectory
from commitlog_store.replication.replica_log import ReplicaLog
from commitlog_store.replication.service import HAService
from commitlog_store.retention.clean import Retention
from commitlog_store.threads.jobs import Job, JobThread
from commitlog_store.threads.worker import ServiceThread

_LOG = logging.getLogger(__name__)

# The open stores of this process: closed when the interpreter exits, refused in a forked child.
_OPEN: set[OwnedStore] = set()


class OwnedStore:
    """The parts of one open store. ``close`` ends it, ``leave`` leaves it as a killed process would."""

    def __init__(
        self,
        directory: OwnerDirectory,
        jobs: JobThread,
        engine: StoreEngine,
        half_messages: TransactionalMessageService,
        delayed: ScheduleMessageService,
        timer: TimerMessageService,
        groups: GroupPositions,
        retention: Retention,
        replication: HAService,
        archive_hold: Subject | None = None,
    ) -> None:
        """``jobs`` is the running job thread, whose last job waits for the calls under way.

        ``archive_hold`` is that of the archive which retention waits for.
        """
        self.path = directory.path
        self.engine = engine
        self.half_messages = half_messages
        self.delayed = delayed
        self.timer = timer
        self.groups = groups
        self.retention = retention
        self.replication = replication
        # Threads start and stop, and files are saved, in this order. Half messages before groups, which write their
        # positions.
        self._subjects: tuple[Subject, ...] = (engine, half_messages, delayed, timer, groups, retention, replication)
        self.archive_hold = archive_hold
        if archive_hold is not None:
            self._subjects += (archive_hold,)
        self._directory = directory
        self._jobs = jobs
        self._close_failure: BaseException | None = None

    @property
    def replica_log(self) -> ReplicaLog:
        """The log of a store in the role SLAVE."""
        return ReplicaLog(self.engine.log, self.engine.store_flush, self.engine.message_arrived)

    def start(self) -> None:
        """Start the threads, on the job thread."""
        _OPEN.add(self)
        for worker in self._workers():
            worker.start()

    def _workers(self) -> Iterator[ServiceThread]:
        return (worker for subject in self._subjects for worker in subject.workers())

    @property
    def is_closing(self) -> bool:
        """Whether the store was closed, or asked to close, or belongs to a parent process."""
        return self.engine.state.closed

    def close(self, *, wait: bool = True) -> None:
        """Reject new calls, and close when the calls under way have ended. See ``MessageStore.close``."""
        if self.engine.state.forked:
            return  # a forked child has no threads, and the files are its parent's
        closing = self._finish(self._close)
        if not wait or self.engine.calls.is_within() or any(worker.is_current for worker in self._workers()):
            return
        closing.wait()
        failure, self._close_failure = self._close_failure, None
        if failure is not None:
            raise failure

    def leave(self) -> None:
        """End the threads and close the files, and flush nothing: the store is as a killed process leaves it."""
        self._finish(self.end_unflushed).wait()

    def _finish(self, last: Callable[[], None]) -> Job[object]:
        self.engine.state.close()
        self.engine.waiters.wake_all()
        return self._jobs.finish(last)

    def _close(self) -> None:
        """The last job. No file is closed while a call or a thread uses it."""
        try:
            self.engine.log.writer.close()
            self._stop()
            clean = False
            try:
                self.engine.store_flush.close_cleanly(self._save)
                clean = self.engine.state.failure is None
            finally:
                try:
                    if not clean:
                        self.groups.save_unclean()
                finally:
                    self._close_files(clean=clean)
        except BaseException as error:  # noqa: BLE001 - the next ``close`` that waits raises it
            _LOG.exception("Closing the store at %s failed", self.path)
            self._close_failure = error

    def end_unflushed(self) -> None:
        """``leave``, on the job thread, as its last job."""
        self.engine.state.close()
        self._stop()
        self._close_files(clean=False)

    def _stop(self) -> None:
        """End all threads. Nothing is lost: a clean close repeats their steps."""
        for worker in self._workers():
            worker.stop()
        self.engine.async_puts.refuse_rest(self.path)

    def _save(self) -> None:
        """Write the files that follow the log, when all of it is on the device. What raises leaves no clean end."""
        for subject in self._subjects:
            subject.save()

    def _close_files(self, *, clean: bool) -> None:
        with contextlib.ExitStack() as last:
            # Until then, a forked child has to learn that the files are its parent's.
            last.callback(_OPEN.discard, self)
            last.callback(self._directory.close, clean=clean)
            for subject in self._subjects:
                last.callback(subject.close)

    def fork(self) -> None:
        """In a forked child: the store is the parent's."""
        self.engine.state.fork()
        self.engine.calls.forget()
        self.replication.forget()


def _close_all() -> None:
    """When the interpreter exits: close the stores that were not closed, so that the next open needs no recovery."""
    for store in list(_OPEN):
        try:
            store.close()
        except Exception:  # noqa: BLE001 - the others are to be closed too
            _LOG.exception("Cannot close the store at %s", store.path)


def _fork_all() -> None:
    for store in _OPEN:
        store.fork()
    _OPEN.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_fork_all)
