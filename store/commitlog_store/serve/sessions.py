"""Sessions: what a server keeps for clients that write, above all the answers to calls that may be repeated.

A session has one call at a time, with numbers that ascend. The answer of its last call is kept: the same number again
gets the same answer, also while the call is under way. A lower number comes late, when the client has gone on, and is
refused. So a call is done once or not at all, whatever the network repeats or holds back.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from commitlog_store.consumers.consumer import Consumer
from commitlog_store.consumers.group import MemberClient
from commitlog_store.errors import CommitLogError, RemoteFailed, SessionLost, TransactionEnded, put_error
from commitlog_store.put_status import PutMessageStatus
from commitlog_store.remote.put_wire import CallId
from commitlog_store.serve.call_limits import is_wanted_still
from commitlog_store.transaction import Transaction

_LOG = logging.getLogger(__name__)

# The promise to a client: for so long after its last call it may repeat that.
SESSION_SECONDS = 600.0
# So long a consumer keeps its queues without a call.
LEASE_SECONDS = 60.0
# Said to a client whose session does not exist.
UNKNOWN_SESSION = "The server was started again, or has not heard of this client for long: it does not know the call."
_MOST_SESSIONS = 10_000
# So often a call that waits for another's answer asks whether it is wanted still.
_ASK_SECONDS = 0.5
_MOST_BYTES = 64 << 20


class AnswerNotWaitedFor(Exception):
    """A repeated call is not wanted any more, and the one that it repeats is under way: what it does is not known.

    Not one of the package's errors, which say what became of a call: a client takes this for an answer that was lost.
    """


class _Outcome:
    """The answer of a call, once it has one: bytes, or an error."""

    def __init__(self) -> None:
        # Held until the call has ended.
        self._under_way = threading.Lock()
        self._under_way.acquire()
        self._answer = b""
        self._error: CommitLogError | None = None

    def run(self, work: Callable[[], bytes]) -> int:
        """Do the work, and return the size of its answer."""
        try:
            self._answer = work()
        except CommitLogError as error:
            self._error = error.with_traceback(None)
        except Exception as error:  # noqa: BLE001 - whatever it is, the call is not done again
            _LOG.exception("A call failed")
            reason = f"The server failed with {type(error).__name__}; its log says more."
            self._error = put_error(PutMessageStatus.UNKNOWN_ERROR, reason)
        finally:
            self._under_way.release()
        return len(self._answer)

    def answer(self) -> bytes:
        """Wait for the answer, and give it. The error of the call, and ``AnswerNotWaitedFor``."""
        while not self._under_way.acquire(timeout=_ASK_SECONDS):
            if not is_wanted_still():
                raise AnswerNotWaitedFor
        self._under_way.release()
        if self._error is not None:
            raise self._error.again()
        return self._answer


class Session:
    """One session. ``kept`` is the client's open consumer or transaction, which ends with the session; ``idle_s`` how
    long it lasts after its last call."""

    def __init__(self, now: float, idle_s: float) -> None:
        self.idle_s = idle_s
        self.kept: Consumer | Transaction | None = None
        self.used_at = now
        self.under_way = 0
        # A consumer's group keeps it, and not the session.
        self.client = MemberClient()
        # Of the last call: its number, its outcome, the size of its answer.
        self.number = 0
        self.outcome: _Outcome | None = None
        self.size = 0

    def discard(self) -> None:
        """Close the consumer, which leaves its group; end the transaction, whose staged messages are discarded."""
        kept, self.kept = self.kept, None
        try:
            if isinstance(kept, Consumer):
                kept.close()
            elif kept is not None:
                error = TransactionEnded(f"The client of {kept!r} has ended it, or is gone.")
                kept.__exit__(TransactionEnded, error, None)
        except CommitLogError as error:
            _LOG.warning("The consumer or transaction of a session cannot be ended: %s", error)


class Sessions:
    """All sessions of a server. Any number of threads.

    Kept are at most so many sessions, with so many bytes of answers, for so many seconds after the last call of each;
    the one that was used longest ago goes first. A client whose session or answer is gone gets ``SessionLost``.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        idle_s: float = SESSION_SECONDS,
        most: int = _MOST_SESSIONS,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self._clock = clock
        self._idle_s = idle_s
        self._most = most
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        # In the order of their last calls.
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._size = 0

    def open(self) -> str:
        """A new session's name, of 128 random bits."""
        name = secrets.token_hex(16)
        with self._lock:
            self._sessions[name] = Session(self._clock(), self._idle_s)
            gone = self._expired()
        _discard(gone)
        return name

    def close(self, name: str) -> None:
        with self._lock:
            gone = [self._remove(name)] if name in self._sessions else []
        _discard(gone)

    def close_all(self) -> None:
        with self._lock:
            gone, self._sessions, self._size = list(self._sessions.values()), OrderedDict(), 0
        _discard(gone)

    def once(self, call: CallId, work: Callable[[Session], bytes]) -> bytes:
        """The answer to a call, by ``work`` or as it was before.

        ``SessionLost``, ``AnswerNotWaitedFor``, and the errors of the work.
        """
        gone: list[Session] = []
        try:
            with self._lock:
                gone = self._expired()
                session, outcome, is_new = self._begin(call)
        finally:
            _discard(gone)
        if is_new:
            size = 0
            try:
                size = outcome.run(lambda: work(session))
            finally:
                with self._lock:
                    self._end(call.session, session, outcome, size)
        return outcome.answer()

    def _begin(self, call: CallId) -> tuple[Session, _Outcome, bool]:
        """The call's session and outcome, and whether the work is this thread's. Called with the lock."""
        session = self._sessions.get(call.session)
        if session is None:
            raise SessionLost(UNKNOWN_SESSION)
        self._note_use(call.session, session)
        if call.number < session.number:
            raise RemoteFailed("The client has gone on after this call; it came late, and was not done.")
        if call.number == session.number:
            if session.outcome is None:
                raise SessionLost("The server has done the call, and kept its answer no longer.")
            return session, session.outcome, False
        session.number, session.outcome = call.number, _Outcome()
        self._size -= session.size
        session.size = 0
        session.under_way += 1
        return session, session.outcome, True

    def _end(self, name: str, session: Session, outcome: _Outcome, size: int) -> None:
        session.under_way -= 1
        if self._sessions.get(name) is session:
            self._note_use(name, session)
            if session.outcome is outcome:
                session.size = size
                self._size += size

    def _note_use(self, name: str, session: Session) -> None:
        session.used_at = self._clock()
        self._sessions.move_to_end(name)

    def __contains__(self, name: str) -> bool:
        return name in self._sessions

    def kept_of(self, name: str) -> Consumer | Transaction | None:
        """The consumer or transaction of a session, if it exists."""
        with self._lock:
            session = self._sessions.get(name)
            return None if session is None else session.kept

    def _expired(self) -> list[Session]:
        """Take out sessions that are too old or too many, and forget answers that are too large together.

        None of a session with a call under way. Called with the lock.
        """
        gone: list[Session] = []
        now = self._clock()
        for name, session in list(self._sessions.items()):
            is_full = len(self._sessions) > self._most
            if not is_full and self._size <= self._most_bytes and now - session.used_at <= LEASE_SECONDS:
                break  # and so are those after it
            if session.under_way:
                continue
            if is_full or now - session.used_at > session.idle_s:
                gone.append(self._remove(name))
            elif self._size > self._most_bytes and session.size:
                self._size -= session.size
                session.size, session.outcome = 0, None
        return gone

    def _remove(self, name: str) -> Session:
        session = self._sessions.pop(name)
        self._size -= session.size
        return session


def _discard(sessions: list[Session]) -> None:
    for session in sessions:
        session.discard()
