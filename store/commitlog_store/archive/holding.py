"""ArchiveHolder: keeps retention from deleting log files that an archive's newest manifest does not have.

What was uploaded does not count, only what a manifest names: nothing else can be restored. Each look compares the last
file that store and archive share, so that another store's archive holds everything. See decision 0045.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from commitlog_store.archive.generations import newest_or_none
from commitlog_store.archive.log_files import LogSource
from commitlog_store.archive.refusals import refuse_other_log, refuse_own_directory, refuse_selection
from commitlog_store.config import MessageStoreConfig
from commitlog_store.engine.subject import Hold, Subject
from commitlog_store.errors import ArchiveMismatch, CommitLogError
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.object_storage.object_store import ObjectStore
from commitlog_store.retention.archive_status import ArchiveHoldStatus, write_status
from commitlog_store.threads.wakeup import Wakeup
from commitlog_store.threads.worker import ServiceThread, Worker

_LOG = logging.getLogger(__name__)
_HOUR_MS = 3_600_000
_MS = 1000
_IDLE_S = 60.0
_FIRST_PAUSE_S = 1.0
# Beside a store that runs, a look that finds no answer is repeated by the service, not by the client of the storage.
_RETRY_S = 20.0
# A store that closes does not wait for a look that has no answer: it changes nothing.
_PATIENCE_S = 1.0


def archived_until(paths: StorePaths, objects: ObjectStore) -> int:
    """The physical offset before which the archive has every file of the store's log that is still there.

    Never one after that log's files: where the log has lost its end, other files come there than the archive has.
    ``ArchiveMismatch`` for an archive of another store, or of some topics; ``ArchiveFailed``, ``ArchiveDamaged``,
    ``UnsupportedArchive``; the errors of reading a log.
    """
    manifest = newest_or_none(objects)
    if manifest is None:
        return 0
    refuse_selection(
        objects, manifest.selection, "retention that waits for it would delete messages that no archive has."
    )
    source = LogSource(paths)
    try:
        refuse_other_log(objects, source, manifest)
        bases = source.bases()
    finally:
        source.close()
    # A part of a file does not count: the rest of it would be lost.
    whole = {one.start for one in manifest.segments if one.log.size == manifest.file_size}
    missing = (base for base in bases if base not in whole)
    return next(missing, min(manifest.stop, bases[-1] + manifest.file_size) if bases else 0)


def archive_hold(paths: StorePaths, url: str, *, at_most_ms: int | None) -> Hold:
    """Where an archive holds the log now. The errors of ``archived_until``, and ``InvalidValue``."""
    archived = archived_until(paths, ObjectStore.open(url))
    return Hold(from_offset=archived, holder=_holder(url), at_most_ms=at_most_ms)


def _holder(url: str) -> str:
    return f"archive {url}"


class ArchiveHolder(Subject):
    """Holds the log of an open store for the archive of its settings; its thread asks the archive from time to time.

    Without an answer the last one counts, since an archive only grows; before the first one everything is held, and so
    it is while the archive is of another log. Above
    ``disk_space_clean_forcibly_ratio`` it holds nothing, unless ``clean_file_forcibly_enable`` is off.
    """

    def __init__(
        self,
        paths: StorePaths,
        config: MessageStoreConfig,
        objects: ObjectStore,
        *,
        idle_s: float = _IDLE_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``clock`` returns the seconds since the epoch."""
        self._paths = paths
        self._objects = objects
        self._idle_s = idle_s
        self._clock = clock
        self._pause_s = _FIRST_PAUSE_S
        hours = config.retention_archive_hours
        self._status = ArchiveHoldStatus(
            url=config.retention_archive, at_most_ms=hours * _HOUR_MS if hours else None, failure="not asked yet"
        )
        self._asking = threading.Lock()
        self._wakeup = Wakeup()
        self._worker = Worker("ArchiveHolder", self, self._end, self._wakeup, patience_s=_PATIENCE_S)

    @staticmethod
    def check(paths: StorePaths, config: MessageStoreConfig) -> None:
        """``InvalidValue`` for a ``config.retention_archive`` within the store; before the store is opened."""
        refuse_own_directory(config.retention_archive, paths)

    @classmethod
    def open(cls, paths: StorePaths, config: MessageStoreConfig) -> ArchiveHolder:
        """That of ``config.retention_archive``. ``InvalidValue``; ``ArchiveFailed``: its directory cannot be made."""
        return cls(paths, config, ObjectStore.open(config.retention_archive, retry_timeout_s=_RETRY_S, writes=True))

    @property
    def status(self) -> ArchiveHoldStatus:
        """What is held now, and for which reason."""
        return self._status

    def workers(self) -> Sequence[ServiceThread]:
        return (self._worker,)

    def look_again(self) -> None:
        self._wakeup.set()

    def holds(self) -> Sequence[Hold]:
        status = self._status
        return (
            Hold(
                from_offset=status.archived,
                holder=_holder(status.url),
                at_most_ms=status.at_most_ms,
                yields_to_disk=True,
            ),
        )

    def run_once(self) -> float:
        """Ask once; the seconds until the next time."""
        with self._asking:
            try:
                archived = archived_until(self._paths, self._objects)
            except (CommitLogError, OSError) as error:
                archived = 0 if isinstance(error, ArchiveMismatch) else self._status.archived
                self._note(replace(self._status, archived=archived, failure=str(error)))
                self._pause_s = min(2 * self._pause_s, self._idle_s)
                return self._pause_s
            self._pause_s = _FIRST_PAUSE_S
            now_ms = int(self._clock() * _MS)
            self._note(replace(self._status, archived=archived, asked_ms=now_ms, failure=""))
            return self._idle_s

    def _note(self, status: ArchiveHoldStatus) -> None:
        """Log a change between answers and failures, once; and write what ``info`` and ``doctor`` show."""
        before, self._status = self._status, status
        if status.failure != before.failure:
            if status.failure:
                _LOG.warning(
                    "%s: retention waits for the archive %s from physical offset %s on, and does not know what it has "
                    "since: %s",
                    *(self._paths.root, status.url, status.archived, status.failure),
                )
            elif before.asked_ms:
                _LOG.warning("%s: the archive %s answers again.", self._paths.root, status.url)
        if (status.archived, status.failure) != (before.archived, before.failure):
            try:
                write_status(self._paths.root, status)
            except CommitLogError as error:
                _LOG.warning("%s: what the archive has is not shown: %s", self._paths.root, error)

    def _end(self, error: BaseException) -> None:
        """A failure without a name: the last answer counts from now on."""
        self._status = replace(self._status, failure=f"{type(error).__name__}: {error}")
