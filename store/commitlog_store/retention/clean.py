"""Retention of an open store: deletes the oldest CommitLog files, then the queue and index files that point into them.

Everything here runs on the store's job thread: between commits, never beside one. Before a file goes, everything that
was dispatched from it is flushed, and the ledger of batches is saved. docs/decisions/0019-retention.md has the reasons.

Source: RocketMQ ``store/DefaultMessageStore.java`` (``CleanCommitLogService``, ``CleanConsumeQueueService``).
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from commitlog_store.config import MessageStoreConfig, parse_hours
from commitlog_store.engine.store_engine import StoreEngine
from commitlog_store.engine.subject import Hold, Subject
from commitlog_store.errors import CommitLogError, IndexIOError, StoreIOError
from commitlog_store.files.limits import DiskUse
from commitlog_store.files.mapped_file_writer import passes
from commitlog_store.groups.group_positions import GroupPositions
from commitlog_store.paths import checked_topics_to_retain
from commitlog_store.retention.decision import CleanReport, Decision, DoomedFile, RetentionLimits
from commitlog_store.retention.delete_topic import TopicDeletion
from commitlog_store.retention.survey import CleanRequest, Survey, clean_request, survey, with_archives
from commitlog_store.threads.worker import Worker

_LOG = logging.getLogger(__name__)
_MS = 1000.0
_HOUR_MS = 3_600_000
# RocketMQ's pause before its first round.
_FIRST_ROUND_SECONDS = 60.0


class Retention(Subject):
    """Which old files and topics of an open store go: by its settings, and when the program asks for it."""

    def __init__(
        self,
        engine: StoreEngine,
        groups: GroupPositions,
        holders: Sequence[Subject],
        count_delayed: Callable[[], Counter[str]],
    ) -> None:
        """``holders`` are the subjects that may need old messages.

        ``count_delayed`` returns the number of delayed messages that wait, by the topic that they go to.
        """
        config = self._config = engine.config
        self._engine = engine
        self._groups = groups
        self._count_delayed = count_delayed
        self.cleaner = StoreCleaner(engine, groups, holders)
        self._settings = RetentionSettings(config, engine.disk_use)
        self._workers: list[Worker] = []
        if config.retention:
            # Each step is a job, as is every use of the ledger.
            clean_log = CleanCommitLogService(self.cleaner, config, self._settings)
            services = clean_log, CleanConsumeQueueService(self.cleaner, config)
            self._workers = [engine.job_worker(one) for one in services]

    def workers(self) -> Sequence[Worker]:
        return self._workers

    @property
    def disk_is_filling(self) -> bool:
        """``MessageStore.disk_is_filling``."""
        return self._settings.disk_is_filling

    def clean(
        self,
        *,
        dry_run: bool,
        older_than_hours: float | None,
        max_bytes: int | None,
        keep_for: Sequence[str | os.PathLike[str]],
        keep_at_most_hours: float,
        clock: str,
    ) -> CleanReport:
        """``MessageStore.clean``."""
        config, by_settings = self._config, older_than_hours is None and max_bytes is None
        if by_settings:
            older_than_hours = config.file_reserved_time if config.retention_enable else None
            max_bytes = config.retention_bytes or None
        request = clean_request(
            older_than_hours=older_than_hours,
            max_bytes=max_bytes,
            keep_for=keep_for,
            keep_at_most_hours=keep_at_most_hours,
            clock=clock,
        )
        if not by_settings or dry_run:
            return self.clean_as(request, dry_run=dry_run)
        request = with_archives(request, self._engine.paths)
        now_ms = time.time_ns() // 1_000_000
        return self._engine.run(lambda: self.cleaner.clean_by_settings(self._settings, request, now_ms))

    def clean_as(self, request: CleanRequest, *, dry_run: bool) -> CleanReport:
        """``MessageStore.clean_as``. Archives are asked here, so that the job thread waits for no network."""
        request = with_archives(request, self._engine.paths)
        now_ms = time.time_ns() // 1_000_000
        return self._engine.run(lambda: self.cleaner.clean(request, now_ms, dry_run=dry_run))

    def expired_topics(self) -> list[str]:
        """``MessageStore.expired_topics``."""
        return self._engine.run(lambda: self._deletion().expired_topics())

    def delete_topic(self, topic: str, on_deleted: Callable[[str], None], *, with_messages: bool) -> None:
        """``MessageStore.delete_topic``. ``on_deleted`` is called on the job thread."""

        def delete() -> None:
            self._deletion().delete(topic, with_messages=with_messages)
            on_deleted(topic)

        self._engine.run(delete)

    def clean_unused_topics(
        self, retain: Iterable[str], on_deleted: Callable[[str], None], *, dry_run: bool
    ) -> list[str]:
        """``MessageStore.clean_unused_topics``. ``on_deleted`` is called on the job thread, for each topic."""
        kept = checked_topics_to_retain(retain)

        def clean() -> list[str]:
            deletion = self._deletion()
            unused = deletion.unused_topics(kept)
            for topic in [] if dry_run else unused:
                deletion.delete(topic, with_messages=True)
                on_deleted(topic)
            return unused

        return self._engine.run(clean)

    def _deletion(self) -> TopicDeletion:
        """For one deletion: it counts the delayed messages that wait now."""
        return TopicDeletion(self._engine, self._groups, self._count_delayed)


class RetentionSettings:
    """What the settings let a log hold at this moment."""

    def __init__(self, config: MessageStoreConfig, disk_use: Callable[[], DiskUse]) -> None:
        """``disk_use`` returns how full the fullest disk of the store is."""
        self._config = config
        self._disk_use = disk_use
        self._hours = parse_hours(config.delete_when)

    def limits(self) -> RetentionLimits:
        """The limits of age and bytes, whatever the hour."""
        config = self._config
        older_than_ms = config.file_reserved_time * _HOUR_MS if config.retention_enable else None
        return RetentionLimits(older_than_ms=older_than_ms, max_bytes=config.retention_bytes or None)

    def limits_at(self, now: float) -> RetentionLimits:
        """The limits at a time (seconds): by age only in the hours of delete_when, unless the disk hurries it."""
        found = self.limits()
        if not self._config.retention_enable:
            return found
        if not self.disk_is_filling and time.localtime(now).tm_hour not in self._hours:
            found = replace(found, older_than_ms=None)
        return replace(found, at_once=self.forcibly)

    @property
    def disk_is_filling(self) -> bool:
        """Whether the disk is so full that old files go at any hour."""
        return self._disk_use().used > self._config.disk_max_used_space_ratio / 100

    @property
    def forcibly(self) -> bool:
        """Whether the disk is so full that files go whatever their age."""
        config = self._config
        ratio = min(config.disk_space_clean_forcibly_ratio, config.disk_space_warning_level_ratio)
        return config.retention_enable and config.clean_file_forcibly_enable and self._disk_use().used > ratio


class _RetentionLog:
    """Logs when something begins and ends to keep retention from deleting, once each."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._holders: frozenset[str] = frozenset()
        self._finds_nothing = False

    def note(self, decision: Decision, limits: RetentionLimits) -> None:
        """What a cleaning has found. Without a file that goes or is held, the limits took none: nothing has changed."""
        if decision.held is not None or decision.doomed:
            holders = frozenset(decision.holders)
            for holder in sorted(holders - self._holders):
                _LOG.warning("%s: retention keeps %s for %s", self._path, _name_of(decision), holder)
            for holder in sorted(self._holders - holders):
                _LOG.info("%s: %s no longer keeps retention from deleting", self._path, holder)
            self._holders = holders
        finds_nothing = limits.at_once and decision.held is None and not decision.doomed
        if finds_nothing and not self._finds_nothing:
            _LOG.warning(
                "%s: the disk is so full that files go whatever their age, and there is none to delete: the log has "
                "only the file that is being written.",
                self._path,
            )
        if finds_nothing:
            self._finds_nothing = True
        else:
            self.note_relief()

    def note_relief(self) -> None:
        """Nothing has to go at once, or something goes."""
        if self._finds_nothing:
            _LOG.warning("%s: retention finds files to delete again, or the disk has space.", self._path)
        self._finds_nothing = False


def _name_of(decision: Decision) -> str:
    return "a file" if decision.held is None else os.path.basename(decision.held.path)


class StoreCleaner:
    """Deletes files of one open store, when the services or the program ask for it."""

    def __init__(self, engine: StoreEngine, groups: GroupPositions, holders: Sequence[Subject]) -> None:
        """``holders`` are the subjects that may need old messages."""
        self.path = engine.path
        self._engine = engine
        self._log = engine.log
        self._reput = engine.reput
        self._store_flush = engine.store_flush
        self._batches = engine.batches
        self._groups = groups
        self._holders = holders
        self._state = engine.state
        # Up to there, everything that dispatch made of the log is on the device; so it is when a store was opened.
        self._covered = engine.reput.reput_from
        self._on_freed = engine.watermark.run_once
        self._after_removal = engine.after_removal
        self._reported = _RetentionLog(self.path)

    def note_no_limits(self) -> None:
        """Nothing asks for a cleaning of the log now."""
        self._reported.note_relief()

    @property
    def log_start(self) -> int:
        """The first byte of the log."""
        return self._log.files.min_offset

    def clean(self, request: CleanRequest, now_ms: int, *, dry_run: bool) -> CleanReport:
        """Delete everything that the request takes, and what points into it; with ``dry_run`` only report that.

        Errors: ``survey`` and ``clean_log``.
        """
        if dry_run:
            return self._survey(request, now_ms, None, self._held()).report(self.path, dry_run=True)
        return self._with_queues(self.clean_log(request, now_ms, most=request.most))

    def clean_by_settings(self, settings: RetentionSettings, request: CleanRequest, now_ms: int) -> CleanReport:
        """Delete what the settings take, and then, file by file, as long as the disk is too full."""
        done = self.clean_log(replace(request, limits=settings.limits()), now_ms)
        doomed = done.decision.doomed
        while settings.forcibly:
            done = self.clean_log(replace(request, limits=RetentionLimits(at_once=True)), now_ms, most=1)
            if not done.decision.doomed:
                break
            doomed = [*doomed, *done.decision.doomed]
        return self._with_queues(replace(done, decision=replace(done.decision, doomed=doomed)))

    def _with_queues(self, done: Survey) -> CleanReport:
        """After log files went: delete the queue and index files that point only into them."""
        queue_files = 0
        for topic, queue_id, count in self.expired_queue_files():
            self._log.queues.remove_expired(topic, queue_id, count)
            queue_files += count
        index_files, ext_files = self.clean_beside_queues()
        return done.report(
            self.path, dry_run=False, queue_files=queue_files, index_files=index_files, ext_files=ext_files
        )

    def clean_log(self, request: CleanRequest, now_ms: int, *, most: int | None = None) -> Survey:
        """Delete the CommitLog files that the request takes, oldest first, at most ``most``.

        ``StoreIOError``: files before it are deleted, and if it is not the deletion that failed, the store is halted.
        """
        self._state.refuse_failed()
        # What is not in their file holds the log; without space for it, that stays so.
        self._groups.run_once()
        first_look = self._survey(request, now_ms, most, self._held())
        doomed = first_look.decision.doomed
        if not doomed:
            self._reported.note(first_look.decision, request.limits)
            return first_look
        self._cover(doomed[-1].file.end)
        needed_from = self._batches.save_for_cleaning()
        covered = Hold(from_offset=self._covered, holder="the flush of the consume queues")
        holds = [*self._held(), *self._engine.holds(), covered]
        if needed_from is not None:
            holds.append(
                Hold(from_offset=needed_from, holder="the ledger of batches, which finds no space on the disk")
            )
        found = self._survey(request, now_ms, most, holds)
        self._reported.note(found.decision, request.limits)
        for one in found.decision.doomed:
            self._remove_first(one)
        if found.decision.doomed:
            self._on_freed()
            for release in list(self._after_removal):  # one that is closed at the same time leaves it
                try:
                    release()
                except (CommitLogError, OSError):
                    _LOG.warning("A removed log file may stay open, and keep its space", exc_info=True)
        return found

    def _survey(self, request: CleanRequest, now_ms: int, most: int | None, holds: list[Hold]) -> Survey:
        return survey(self._engine.paths, request, now_ms, holds=holds, log_end=self._log.files.max_wrote, most=most)

    def _held(self) -> list[Hold]:
        """What other subjects still need: delayed messages that are not delivered, for one."""
        return [hold for subject in self._holders for hold in subject.holds()]

    def _cover(self, end: int) -> None:
        """Bring to the device what dispatch made of the log up to there, or as much of it as it has space for."""
        if end <= self._covered:
            return
        if self._reput.reput_from < end:
            self._dispatch()
        dispatched = self._reput.reput_from
        self._store_flush.flush_dispatched()
        self._covered = dispatched

    def _dispatch(self) -> None:
        try:
            self._store_flush.flush_log()  # under SYNC_FLUSH, dispatch waits for it
            self._store_flush.dispatch()
        except CommitLogError as error:
            if self._state.failure is not None or not passes(error):
                raise

    def _remove_first(self, doomed: DoomedFile) -> None:
        files = self._log.files
        assert files.min_offset == doomed.file.base, "files go from the oldest on"
        try:
            files.remove_first(self._log.writer.lock)
        except StoreIOError as error:
            if error.operation != "delete":
                self._state.halt(error)
            raise
        for holder in doomed.overruled:
            _LOG.warning("%s: deleted, though %s still needs it", doomed.file.path, holder)
        _LOG.info("%s: deleted by %s", doomed.file.path, doomed.reason.value)

    def expired_queue_files(self) -> list[tuple[str, int, int]]:
        """Topic, queue id and number of the queue files to remove. The checkpoint counts them no more. ``OSError``."""
        found = self._log.queues.discount_expired(self.log_start)
        if found:
            self._store_flush.write_checkpoint()
        return found

    def remove_queue_files(self, topic: str, queue_id: int, count: int) -> None:
        """Remove a queue's oldest files. ``StoreIOError``."""
        self._log.queues.remove_expired(topic, queue_id, count)

    def clean_beside_queues(self) -> tuple[int, int]:
        """Remove the index files, and those of brokers' ``consumequeue_ext``, that only deleted messages have; forget
        deleted topics of which the log has no message. Returns the numbers of the files. ``StoreIOError``."""
        index_files = self._clean_index()
        ext_files = self._log.queues.remove_expired_ext(self.log_start)
        self._log.queues.deleted.forget_expired(self.log_start)
        return index_files, ext_files

    def _clean_index(self) -> int:
        index = self._log.index
        if index is None:
            return 0
        try:
            count = index.discount_expired(self.log_start)
            if count:
                self._store_flush.write_checkpoint()
                index.remove_oldest(count)
        except OSError as error:
            raise IndexIOError("delete from", path=index.path, cause=error) from error
        return count


class CleanCommitLogService:
    """Deletes CommitLog files by age, by bytes, and by how full the disk is; one in a step."""

    def __init__(
        self,
        cleaner: StoreCleaner,
        config: MessageStoreConfig,
        settings: RetentionSettings,
        *,
        first_round_s: float = _FIRST_ROUND_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``first_round_s``: the pause before the first round. ``clock`` returns the seconds since the epoch."""
        self._cleaner = cleaner
        self._config = config
        self._settings = settings
        self._first_round_s = first_round_s
        self._clock = clock
        self._has_begun = False
        self._passing = _Passing(f"the log of {cleaner.path}")
        # The number of files that may still go in this round.
        self._left = config.delete_file_batch_max

    def run_once(self) -> float:
        config = self._config
        if not self._has_begun:
            self._has_begun = True
            return self._first_round_s
        now = self._clock()
        limits = self._settings.limits_at(now)
        if self._left and limits != RetentionLimits():
            try:
                done = self._cleaner.clean_log(CleanRequest(limits=limits), int(now * _MS), most=1)
            except CommitLogError as error:
                self._passing.note(error)
                return config.redelete_hanged_file_interval / _MS
            self._passing.over()
            if done.decision.doomed:
                self._left -= 1
                return config.delete_commit_log_files_interval / _MS
        elif limits == RetentionLimits():
            self._cleaner.note_no_limits()
        self._left = config.delete_file_batch_max
        return config.clean_resource_interval / _MS


class CleanConsumeQueueService:
    """Deletes queue and index files when the log's beginning has moved; the files of one queue in a step."""

    def __init__(self, cleaner: StoreCleaner, config: MessageStoreConfig) -> None:
        self._cleaner = cleaner
        self._config = config
        self._expired: list[tuple[str, int, int]] = []
        # The beginning of the log for which the queues were cleaned last.
        self._cleaned_to = -1
        self._passing = _Passing(f"the queues of {cleaner.path}")

    def run_once(self) -> float:
        try:
            pause = self._step()
        except CommitLogError as error:
            self._passing.note(error)
            return self._config.redelete_hanged_file_interval / _MS
        self._passing.over()
        return pause

    def _step(self) -> float:
        config = self._config
        if self._expired:
            self._cleaner.remove_queue_files(*self._expired.pop())
            return config.delete_consume_queue_files_interval / _MS
        log_start = self._cleaner.log_start
        if log_start == self._cleaned_to:
            return config.clean_resource_interval / _MS
        self._expired = self._cleaner.expired_queue_files()
        self._cleaner.clean_beside_queues()
        self._cleaned_to = log_start
        return 0 if self._expired else config.clean_resource_interval / _MS


class _Passing:
    """Errors that leave the store as it was: a file that cannot be deleted, or read. Logged when they begin and end."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._waits_for = ""

    def note(self, error: CommitLogError) -> None:
        """Log an error of this kind, unless it was the last one. Raises any other error."""
        if isinstance(error, StoreIOError) and not error.operation.startswith("delete"):
            raise error
        if str(error) != self._waits_for:
            _LOG.warning("Cleaning of %s waits: %s", self._what, error)
        self._waits_for = str(error)

    def over(self) -> None:
        """A step has ended without an error."""
        if self._waits_for:
            _LOG.warning("Cleaning of %s continues", self._what)
            self._waits_for = ""
