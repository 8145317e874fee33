"""Readers: the readers of an owned store that requests share, each used by one at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from commitlog_store.reader import StoreReader
from commitlog_store.store import MessageStore, owned_by


class Readers:
    """Any number of threads."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._state = owned_by(store).engine.state
        self._idle: list[StoreReader] = []
        self._closed = False

    @contextlib.contextmanager
    def lent(self) -> Iterator[StoreReader]:
        """A reader that nothing else uses; it is kept for the next request. ``StoreClosed``."""
        self._state.refuse_closed()
        try:
            reader = self._idle.pop()
        except IndexError:
            reader = self._store.reader()
        try:
            yield reader
        finally:
            self._idle.append(reader)
            if self._closed:
                self.close()

    def close(self) -> None:
        """Close the readers; those that are in use when they are given back."""
        self._closed = True
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()
