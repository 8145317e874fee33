"""Session: a client's line to a server that it writes to. A call is done once, though it may be asked for again.

One call at a time, with numbers that ascend: the server keeps the answer of the last one (``serve/sessions.py``).
"""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from commitlog_store.errors import (
    CommitLogError,
    NotServed,
    PutNotConfirmed,
    RemoteAccessRefused,
    RemoteFailed,
    SessionLost,
)
from commitlog_store.put_status import PutMessageStatus
from commitlog_store.remote.calls import CALLS
from commitlog_store.remote.connection import NOT_SENT, Connection, RemoteAddress, is_unanswered
from commitlog_store.remote.put_wire import CallId, SessionOpened, encode_rows
from commitlog_store.remote.wire import Answer, Question, encode

# An attempt waits so long for its answer, and the next one twice as long: Ctrl-C is heard between them.
_FIRST_ATTEMPT_SECONDS = 2.0
_BYTES_A_SECOND = 1 << 20
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0
# A call that follows another one so closely goes over the stream of a run of calls, if it is no larger than this.
_RUN_SECONDS = 0.1
_LARGEST_IN_RUN = 128 << 10
# How long a server is waited for where the end of a session, a store or a program is reported to it.
CLOSE_SECONDS = 2.0


class Session:
    """One thread at a time."""

    def __init__(self, address: RemoteAddress) -> None:
        """``RemoteFailed``; ``RemoteAccessRefused`` for a client that may not write; ``NotServed``."""
        self.address = address
        self._connection = Connection(address)
        self._number = 0
        # When the last call was answered that may be part of a run: not one that waits for messages, which the server
        # may answer later. A poll that is committed is no run of two calls.
        self._answered_at = -_RUN_SECONDS
        try:
            self.opened: SessionOpened = self.ask("open_session")
        except BaseException:
            self._connection.close()
            raise

    def close(self, silent: set[RemoteAddress] | None = None) -> None:
        """End it: the server discards now what it keeps for the session, or later if it does not answer.

        A server in ``silent`` did not answer before, and is not asked; one that does not answer here is added.
        """
        if Connection.is_forked():
            return
        silent = set() if silent is None else silent
        try:
            if self.address not in silent:
                self._connection.ask("close_session", "raise", (self.opened.session,), timeout_s=CLOSE_SECONDS)
        except CommitLogError as error:
            if is_unanswered(error):
                silent.add(self.address)
        finally:
            self._connection.close()

    def ask(self, call: str, *arguments: object) -> Any:
        """A call that changes nothing, or no more the second time. Its errors, and ``RemoteFailed``."""
        return self._connection.ask(call, "raise", arguments).value

    def once(
        self,
        call: str,
        *arguments: object,
        size: int = 0,
        may_reopen: bool = True,
        is_final: bool = True,
        timeout_s: float | None = None,
    ) -> Any:
        """A call that is done once, ``size`` bytes large. Its errors. Rows are the first of its arguments.

        ``RemoteFailed``: it was not done. ``PutNotConfirmed``: no answer came in time, and it may have been done.
        Without ``may_reopen``, ``SessionLost`` if the server does not know the session any more, in place of a new one.
        A call that is not ``is_final`` changes nothing outside the session: without an answer, ``RemoteFailed``.
        ``timeout_s`` is in place of that of the address.
        """
        self._number += 1
        deadline = time.monotonic() + (self.address.timeout_s if timeout_s is None else timeout_s)
        attempts = _Attempts(self._connection, call, arguments, self._number, deadline, size, is_final)
        waits = CALLS[call].waits
        in_run = time.monotonic() < self._answered_at + _RUN_SECONDS and not waits
        in_stream = in_run if size <= _LARGEST_IN_RUN else isinstance(arguments[0], pa.RecordBatch)
        while True:
            try:
                answer = attempts.run(self.opened.session, in_stream=in_stream)
                if not waits:
                    self._answered_at = time.monotonic()
                return answer
            except SessionLost:
                if not may_reopen:
                    raise
            left = max(deadline - time.monotonic(), _FIRST_PAUSE_SECONDS)
            self.opened = self._connection.ask("open_session", "raise", (), timeout_s=left).value


class _Attempts:
    """The attempts of one call."""

    def __init__(
        self,
        connection: Connection,
        call: str,
        arguments: tuple[object, ...],
        number: int,
        deadline: float,
        size: int,
        is_final: bool,
    ) -> None:
        self._connection = connection
        self._call = call
        self._arguments = arguments
        self._number = number
        self._deadline = deadline
        self._is_final = is_final
        self._size = size
        self._patience = _FIRST_ATTEMPT_SECONDS + size / _BYTES_A_SECOND
        # Whether an attempt may have reached a server, and that matters.
        self._reached = False

    def run(self, session: str, *, in_stream: bool = False) -> Any:
        """The answer. ``SessionLost``: it was not done. ``in_stream``: the first attempt goes over a stream."""
        address = self._connection.address
        pause = _FIRST_PAUSE_SECONDS
        while True:
            timeout_s = min(max(self._deadline - time.monotonic(), 0.001), self._patience)
            self._patience *= 2
            try:
                answer = self._attempt_in_stream(session, timeout_s) if in_stream else None
                if answer is None:
                    answer = self._connection.attempt(self._call, self._body(session, *self._arguments), timeout_s)
                return answer.value
            except RemoteFailed as error:  # the answer could not be understood
                raise self._unknown(error) from error
            except (flight.FlightError, OSError, StopIteration) as error:
                failure = self._connection.named(error, self._call, address.timeout_s)
                if isinstance(failure, RemoteAccessRefused | SessionLost | NotServed):  # this attempt did nothing
                    raise (self._unknown(failure) if self._reached else failure) from error
                if not isinstance(failure, RemoteFailed):
                    raise failure from error  # the store's own
                # What the server says by name, it says instead of doing the call.
                was_sent = not getattr(error, "extra_info", b"") and NOT_SENT not in str(error)
                self._reached |= self._is_final and was_sent
                if time.monotonic() + pause >= self._deadline:
                    raise (self._unknown(failure) if self._reached else failure) from error
            in_stream = False
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _attempt_in_stream(self, session: str, timeout_s: float) -> Answer | None:
        """See ``Connection.attempt_in_stream``."""
        attempt = self._connection.attempt_in_stream
        if self._size <= _LARGEST_IN_RUN:
            return attempt(session, self._call, self._body(session, *self._arguments), timeout_s)
        rows, *others = self._arguments
        return attempt(session, self._call, self._body(session, b"", *others), timeout_s, rows)

    def _body(self, session: str, *arguments: object) -> bytes:
        given = [encode_rows(one) if isinstance(one, pa.RecordBatch) else one for one in arguments]
        store = self._connection.address.store
        return encode(Question(store, "raise", (CallId(session, self._number), *given)))

    def _unknown(self, error: CommitLogError) -> PutNotConfirmed:
        return PutNotConfirmed(
            PutMessageStatus.UNKNOWN_ERROR,
            f"The answer of the server at {self._connection.address} to {self._call} was lost, and it may have been "
            f"done: {error} The store shows whether it was; to repeat it without looking may do it twice.",
        )
