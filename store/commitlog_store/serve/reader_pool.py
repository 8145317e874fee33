"""ReaderPool: readers of one store that no call uses now. One reader, one call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from commitlog_store.errors import CommitLogError
from commitlog_store.reader import OnDamage, StoreReader
from commitlog_store.serve.call_limits import refuse_unwanted

# How long the space of a removed file may be kept.
_PAUSE_SECONDS = 1.0


class ReaderPool:
    """Any number of threads. ``kept`` readers at most stay open when no call uses them."""

    def __init__(self, open_reader: Callable[[OnDamage], StoreReader], *, kept: int = 16) -> None:
        self._open = open_reader
        self._kept = kept
        self._lock = threading.Lock()
        self._idle: list[tuple[OnDamage, StoreReader]] = []
        self._closed = False

    @contextmanager
    def lent(self, on_damage: OnDamage) -> Iterator[StoreReader]:
        """A reader for one call. One that has failed is not lent again."""
        with self._lock:
            # The one that was used last: it has seen most of what is asked next.
            places = range(len(self._idle) - 1, -1, -1)
            place = next((place for place in places if self._idle[place][0] == on_damage), None)
            reader = None if place is None else self._idle.pop(place)[1]
        if reader is None:
            reader = self._open(on_damage)
            reader.interrupt_with(refuse_unwanted)
        try:
            yield reader
        except BaseException:
            reader.close()
            raise
        self._give_back(on_damage, reader)

    def _give_back(self, on_damage: OnDamage, reader: StoreReader) -> None:
        with self._lock:
            keep = len(self._idle) < self._kept and not self._closed
            if keep:
                self._idle.append((on_damage, reader))
        if not keep:
            reader.close()

    def release_removed_files(self) -> None:
        """Let the readers that no call uses close the log files that were removed: these keep their space until then.

        A reader that fails at that is not lent again.
        """
        with self._lock:
            count = len(self._idle)
        for _ in range(count):
            with self._lock:
                if not self._idle:
                    return
                how, reader = self._idle.pop(0)
            try:
                reader.log_start()  # which looks for the log's files, and closes those of an earlier list
            except (CommitLogError, OSError):
                reader.close()
            except BaseException:
                reader.close()
                raise
            else:
                self._give_back(how, reader)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for _, reader in idle:
            reader.close()


class IdleReaders:
    """A service: the readers that wait for a call in these pools hold no removed file."""

    def __init__(self, pools: Collection[ReaderPool]) -> None:
        self._pools = pools

    def run_once(self) -> float:
        for pool in self._pools:
            pool.release_removed_files()
        return _PAUSE_SECONDS
