"""ArchiveService: archives the closed log files of a served store, as they close, in a thread of its own.

An object store that does not answer is asked again with back-off, for as long as the server runs; the store is served
all the while. docs/decisions/0045-archives-kept-up.md.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from commitlog_store.archive.archiver import Archiver, ArchiveSettings, open_archiver
from commitlog_store.archive.refusals import refuse_own_directory
from commitlog_store.errors import CommitLogError
from commitlog_store.files import disk
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.object_storage.object_store import ObjectStore
from commitlog_store.progress import Progress
from commitlog_store.threads.wakeup import Wakeup
from commitlog_store.threads.worker import Worker

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
# How often to look for closed files, which sends no request; and to ask the archive all the same.
_LOOK_S = 1.0
_ASK_S = 60.0
# The pause after files were found that are not complete yet.
_IDLE_S = 10.0
# A request without an answer is given up sooner than by a command: the service repeats it, and a server stops in time.
_RETRY_S = 20.0


@dataclass(frozen=True, kw_only=True)
class ArchiveState:
    """``archived`` is the physical offset up to which the newest manifest has the log.

    ``waiting`` counts the bytes of closed files after it; ``uploaded`` the bytes since the start, and ``failures`` the
    steps that failed. ``failure`` is why the last one did, empty if it did not.
    """

    url: str
    archived: int = 0
    waiting: int = 0
    uploaded: int = 0
    failures: int = 0
    failure: str = ""


class ArchiveService:
    """From ``start`` to ``stop``. One use. ``state`` may be read by any thread."""

    def __init__(
        self,
        path: str,
        url: str,
        make_archiver: Callable[[Progress], Archiver],
        on_archived: Callable[[], None],
    ) -> None:
        """``make_archiver`` makes the archiver of the store at ``path``, which calls its argument during an upload.

        ``on_archived`` is called after each generation.
        """
        self.state = ArchiveState(url=url)
        self._path = path
        self._archiver = make_archiver(self._refuse_stopped)
        self._on_archived = on_archived
        # When the archive is asked though no file has closed: another archiver may have added to it.
        self._ask_at = time.monotonic()
        self._pause_s = _FIRST_PAUSE_S
        self._stopping = False
        self._wakeup = Wakeup()
        self._worker = Worker("ArchiveService", self, self._end, self._wakeup)

    @classmethod
    def open(
        cls,
        path: str,
        url: str,
        *,
        commit_log: str | None = None,
        on_archived: Callable[[], None] | None = None,
        max_rate: int = 0,
    ) -> ArchiveService:
        """The service for the store at ``path``. ``max_rate`` is that of ``ArchiveSettings``.

        ``InvalidValue``, ``StoreOpenError``, ``ArchiveFailed``.
        """
        refuse_own_directory(url, StorePaths.of(disk.absolute_path(path), commit_log))
        objects = ObjectStore.open(url, writes=True, retry_timeout_s=_RETRY_S)
        settings = ArchiveSettings(max_rate=max_rate)

        def make(progress: Progress) -> Archiver:
            return open_archiver(
                *(path, objects, settings), store_path_commit_log=commit_log, progress=progress, idle_s=_IDLE_S
            )

        return cls(path, url, make, on_archived or (lambda: None))

    def start(self) -> None:
        self._worker.start()

    def begin_stop(self) -> None:
        """An upload ends at its next part. It may be called again."""
        self._stopping = True
        self._wakeup.set()

    def stop(self, seconds: float) -> bool:
        """Whether it has ended within that time. A step that was left changes nothing but unnamed objects."""
        self.begin_stop()
        ended = self._worker.end_within(seconds)
        if ended:
            self._archiver.close()
        else:
            _LOG.warning("%s: the archive %s does not answer: its upload is given up.", self._path, self.state.url)
        return ended

    def run_once(self) -> float:
        """Archive a file, if one is closed; the seconds until the next step."""
        try:
            if time.monotonic() < self._ask_at and not self._archiver.waiting_bytes():
                return _LOOK_S
            pause = self._archiver.run_once()
            report = self._archiver.report()
            waiting = self._archiver.waiting_bytes()
            self.state = replace(self.state, archived=report.stop, waiting=waiting, uploaded=report.uploaded)
        except _Stopped:
            return 0.0
        except (CommitLogError, OSError) as error:
            return self._failed(str(error))
        if self.state.failure:
            _LOG.warning("%s: archiving to %s continues.", self._path, self.state.url)
        self.state = replace(self.state, failure="")
        self._pause_s = _FIRST_PAUSE_S
        if not pause:
            self._on_archived()
            return pause
        self._ask_at = time.monotonic() + _ASK_S
        # Files wait that may not be archived yet: a batch reaches into the one that is being written.
        return pause if self.state.waiting else _LOOK_S

    def _failed(self, failure: str) -> float:
        """Log a failure once, and count it."""
        if failure != self.state.failure:
            _LOG.warning("%s: archiving to %s waits: %s", self._path, self.state.url, failure)
        self.state = replace(self.state, failure=failure, failures=self.state.failures + 1)
        self._ask_at = time.monotonic()
        pause, self._pause_s = self._pause_s, min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return pause

    def _refuse_stopped(self, _done: int, _size: int) -> None:
        if self._stopping:
            raise _Stopped

    def _end(self, error: BaseException) -> None:
        """A failure without a name ends the service; the worker has logged it."""
        failure = f"stopped by {type(error).__name__}: {error}"
        self.state = replace(self.state, failure=failure, failures=self.state.failures + 1)


class _Stopped(Exception):
    """The server stops."""
