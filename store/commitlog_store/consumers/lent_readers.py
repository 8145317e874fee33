"""LentReaders: the readers of an open store that calls share, each used by one at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from commitlog_store.engine.store_engine import StoreEngine
from commitlog_store.reader import StoreReader
from commitlog_store.reader_pool import ReaderPool


class LentReaders:
    """Any number of threads, and signal handlers. After retention has removed log files, the readers close theirs."""

    def __init__(self, engine: StoreEngine, open_reader: Callable[[], StoreReader]) -> None:
        self._engine = engine
        self._pool = ReaderPool(lambda _: open_reader(), kept=sys.maxsize)
        engine.after_removal.append(self._pool.release_removed_files)

    def lent(self) -> AbstractContextManager[StoreReader]:
        """A reader that nothing else uses. It is kept for the next call. ``StoreClosed``."""
        self._engine.state.refuse_closed()
        return self._pool.lent("raise")

    def close(self) -> None:
        """Close the readers; those that are in use when they are given back."""
        with suppress(ValueError):
            self._engine.after_removal.remove(self._pool.release_removed_files)
        self._pool.close()
