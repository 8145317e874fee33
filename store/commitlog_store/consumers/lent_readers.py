"""LentReaders: the readers of an open store that calls share, each used by one at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from commitlog_store.engine.store_engine import StoreEngine
from commitlog_store.errors import CommitLogError
from commitlog_store.reader import StoreReader


class LentReaders:
    """Any number of threads. After retention has removed log files, readers that no call uses close theirs."""

    def __init__(self, engine: StoreEngine, open_reader: Callable[[], StoreReader]) -> None:
        self._state = engine.state
        self._engine = engine
        self._open = open_reader
        self._idle: list[StoreReader] = []
        self._closed = False
        engine.after_removal.append(self._release_removed_files)

    @contextlib.contextmanager
    def lent(self) -> Iterator[StoreReader]:
        """A reader that nothing else uses; it is kept for the next call. ``StoreClosed``."""
        self._state.refuse_closed()
        try:
            reader = self._idle.pop()
        except IndexError:
            reader = self._open()
        try:
            yield reader
        finally:
            self._give_back(reader)

    def _give_back(self, reader: StoreReader) -> None:
        self._idle.append(reader)
        if self._closed or self._state.closed:
            self.close()

    def _release_removed_files(self) -> None:
        """On the job thread. A removed file keeps its space while it is mapped."""
        for _ in range(len(self._idle)):
            try:
                reader = self._idle.pop(0)
            except IndexError:
                return
            try:
                reader.log_start()  # which looks for the log's files, and closes those of an earlier list
            except (CommitLogError, OSError):
                reader.close()
            else:
                self._give_back(reader)

    def close(self) -> None:
        """Close the readers; those that are in use when they are given back."""
        self._closed = True
        with contextlib.suppress(ValueError):
            self._engine.after_removal.remove(self._release_removed_files)
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()
