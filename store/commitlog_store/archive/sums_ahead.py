"""SumsAhead: the checksums of the next log file, made on a thread of its own while the file before it is uploaded.

An object is named by its content, so its upload waits for its checksums. Made ahead, they take no time of their own:
an upload waits for the network, and hashing lets other threads run.
"""

from __future__ import annotations

import contextlib
import threading

from commitlog_store.archive.log_files import Ready
from commitlog_store.archive.segments import Sums, sums_of
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.threads.jobs import Job


class SumsAhead:
    """Checksums of at most one file at a time. One thread calls it."""

    def __init__(self) -> None:
        self._begun: tuple[Ready, Job[Sums]] | None = None
        self._stopped = False

    def begin(self, found: Ready) -> None:
        """Make the checksums of a file, which is closed here once they are made. Those of another are given up."""
        self.stop()
        self._stopped = False
        job = Job(lambda: self._sums(found))
        try:
            threading.Thread(target=job.do, name="SumsAhead", daemon=True).start()
        except RuntimeError:  # the interpreter is being shut down, and begins no more threads
            found.file.close()
            return
        self._begun = found, job

    def take(self, file: MappedFile, size: int) -> Sums | None:
        """The checksums of the first ``size`` bytes of a file, once; None where they were not begun, or failed."""
        begun = self._begun
        if begun is None or (begun[0].file.base, begun[0].file.identity, begun[0].size) != (
            file.base,
            file.identity,
            size,
        ):
            self.stop()
            return None
        begun[1].wait()
        self._begun = None
        return begun[1].result

    def stop(self) -> None:
        """Give up what was begun: nothing of the store is read after this."""
        self._stopped = True
        if self._begun is not None:
            self._begun[1].wait()
            self._begun = None

    def _sums(self, found: Ready) -> Sums:
        with contextlib.closing(found.file):
            return sums_of(found.file, found.size, read=self._go_on)

    def _go_on(self, _: int) -> None:
        if self._stopped:
            raise _GivenUp


class _GivenUp(Exception):
    """The checksums are not wanted any more."""
