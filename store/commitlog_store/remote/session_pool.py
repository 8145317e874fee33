"""SessionPool: the sessions of one client, as many as its threads use at once; and its calls, which a fork ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from commitlog_store.errors import StoreClosed
from commitlog_store.remote.connection import Connection, RemoteAddress
from commitlog_store.remote.session import Session
from commitlog_store.threads.calls import Calls


class SessionPool:
    """Any number of threads; each has a session of its own during a call."""

    def __init__(self, address: RemoteAddress) -> None:
        """The errors of ``Session``: the first one is opened."""
        self.address = address
        self._closed = False
        self._calls = Calls()
        first = Session(address)
        # Settings of the server's store.
        self.delay_levels = first.opened.message_delay_level
        self.store_host = first.opened.store_host
        self.check_interval_s = first.opened.transaction_check_interval / 1000
        # Those that no call uses.
        self._idle = [first]
        # Those that an object was dropped with: the next call closes them.
        self._dropped: list[Session] = []

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self, silent: set[RemoteAddress] | None = None) -> None:
        """End the sessions: those that no call uses now, the others after their call.

        A server that does not answer is waited for once, not for each session. ``silent``: see ``Session.close``.
        """
        self._closed = True
        silent = set() if silent is None else silent
        _close_all(self._dropped, silent)
        _close_all(self._idle, silent)

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """A call of this thread. ``StoreClosed``, ``StoreForked``, ``NestedCall``."""
        Connection.refuse_forked(self.address)
        with self._calls.enter():
            self.refuse_closed()
            _close_all(self._dropped, set())
            yield

    def is_within_call(self) -> bool:
        """Whether this thread is within a call, which a signal handler has interrupted then."""
        return self._calls.is_within()

    def refuse_closed(self) -> None:
        if self._closed:
            raise StoreClosed(f"This connection to {self.address} is closed; connect again.")

    @contextlib.contextmanager
    def session(self) -> Iterator[Session]:
        """A session for one call of this thread. The errors of ``call`` and ``Session``."""
        with self.call():
            session = self.take()
            try:
                yield session
            finally:
                self.give_back(session)

    def ask(self, call: str, *arguments: object) -> Any:
        """``Session.ask``, by a session for this call."""
        with self.session() as session:
            return session.ask(call, *arguments)

    def once(self, call: str, *arguments: object, size: int = 0, is_final: bool = True) -> Any:
        """``Session.once``, by a session for this call."""
        with self.session() as session:
            return session.once(call, *arguments, size=size, is_final=is_final)

    def take(self) -> Session:
        """A session for as long as its user wants, who gives it back or closes it."""
        try:
            return self._idle.pop()
        except IndexError:
            return Session(self.address)

    def give_back(self, session: Session) -> None:
        self._idle.append(session)
        if self._closed:
            self.close()

    def drop(self, sessions: list[Session]) -> None:
        """Have the next call close these sessions. Asks no server, so that a finalizer may call it on any thread."""
        self._dropped += sessions


def _close_all(sessions: list[Session], silent: set[RemoteAddress]) -> None:
    """Close the sessions, and take them from the list, to which other threads may add."""
    with contextlib.suppress(IndexError):
        while sessions:
            sessions.pop().close(silent)
