"""SessionPool: the sessions of one client, as many as its threads use at once; and its calls, which a fork ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

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

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """End the sessions: those that no call uses now, the others after their call."""
        self._closed = True
        answers = True  # a server that does not answer is waited for once, not for each session
        with contextlib.suppress(IndexError):
            while True:
                answers = self._idle.pop().close(asks=answers)

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """A call of this thread. ``StoreClosed``, ``StoreForked``, ``NestedCall``."""
        Connection.refuse_forked(self.address)
        with self._calls.enter():
            self.refuse_closed()
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
