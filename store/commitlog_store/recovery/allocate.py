"""AllocateMappedFileService: makes the CommitLog's next files, and allocates space in them, before they are needed.

Source: RocketMQ ``store/AllocateMappedFileService.java``.
"""

from __future__ import annotations

import contextlib
import threading
import time

from commitlog_store.errors import CommitLogError
from commitlog_store.files import disk
from commitlog_store.files.mapped_file_writer import MappedFileWriter, make_file
from commitlog_store.threads.wakeup import Wakeup

_IDLE_SECONDS = 60.0


class AllocateMappedFileService:
    """Creates files on its own thread. The put that needs one waits for it at most ``timeout`` seconds."""

    def __init__(self, timeout_s: float, wakeup: Wakeup, *, warm: bool) -> None:
        self._timeout_s = timeout_s
        self._warm = warm
        self._wanted: list[tuple[str, int]] = []
        # The file that is written, and the position up to which it is to have space.
        self._ahead: tuple[MappedFileWriter, int] | None = None
        self._failures: dict[str, CommitLogError] = {}
        self._lock = threading.Lock()
        self._made = Wakeup()
        self._wakeup = wakeup

    def run_once(self) -> float:
        if self._allocated():
            return 0
        with self._lock:
            if not self._wanted:
                return _IDLE_SECONDS
            path, size = self._wanted[0]
        failure: CommitLogError | None = None
        try:
            if not disk.exists(path):
                make_file(path, size, warm=self._warm)
        except CommitLogError as error:
            failure = error
        with self._lock:
            self._wanted.remove((path, size))
            if failure is not None:
                # The put that needs the file raises it; files created ahead are tried again when they are needed.
                self._failures[path] = failure
        self._made.set()
        return 0

    def _allocated(self) -> bool:
        """Whether space was ordered. It is allocated before files are made, since the writer needs it sooner."""
        with self._lock:
            ahead, self._ahead = self._ahead, None
        if ahead is None:
            return False
        file, position = ahead
        with contextlib.suppress(CommitLogError):  # the put that needs the space tries again, and raises it
            file.allocate(position)
        return True

    def allocate_ahead(self, file: MappedFileWriter, position: int, /) -> None:
        """Order space in the file that is written."""
        with self._lock:
            self._ahead = file, position
        self._wakeup.set()

    def prepare(self, path: str, size: int, /) -> None:
        """Order a file that will be needed."""
        with self._lock:
            if (path, size) not in self._wanted:
                self._wanted.append((path, size))
        self._wakeup.set()

    def is_made(self, path: str, /) -> bool:
        with self._lock:
            ordered = any(path == wanted for wanted, _ in self._wanted)
        # In this order: an order ends when its file is there.
        return ordered or disk.exists(path)

    def make(self, path: str, size: int, /) -> None:
        """The file at ``path``, now. ``DiskFull``, ``StoreIOError``, ``TimeoutError``."""
        deadline = time.monotonic() + self._timeout_s
        with self._lock:
            # The first one may be being created now, ahead of this need.
            is_begun = (path, size) in self._wanted[:1]
        try:
            self._make_by(deadline, path, size)
        except CommitLogError:
            if not is_begun:
                raise
            # It may have failed on what was mended since.
            self._make_by(deadline, path, size)

    def _make_by(self, deadline: float, path: str, size: int) -> None:
        with self._lock:
            self._failures.pop(path, None)
            if (path, size) not in self._wanted and disk.exists(path):
                return  # created ahead; a file that is still being created may fail, and be removed
            if (path, size) not in self._wanted[:1]:
                # The first one may be being created now; this one goes before all others.
                self._wanted = [*self._wanted[:1], (path, size), *(w for w in self._wanted[1:] if w != (path, size))]
        self._wakeup.set()
        while (path, size) in self._wanted and (left := deadline - time.monotonic()) > 0:
            self._made.wait(left)
        with self._lock:
            done = (path, size) not in self._wanted
            failure = self._failures.pop(path, None)
        if failure is not None:
            raise failure
        if not done:
            raise TimeoutError(f"{path} was not made within {self._timeout_s:g} s.")
