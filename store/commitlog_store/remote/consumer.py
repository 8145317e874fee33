"""RemoteConsumer: a consumer of a group whose other consumers may be in other processes, and on other hosts."""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa

from commitlog_store.columnar.columns import DEFAULT_COLUMNS, arrow_schema
from commitlog_store.consuming import Consuming, check_one_message
from commitlog_store.delay_level import delay_level as level_of
from commitlog_store.engine.put_message import PutMessageResult
from commitlog_store.errors import (
    CommitLogError,
    ConsumerClosed,
    InvalidValue,
    PutNotConfirmed,
    RemoteFailed,
    SessionLost,
    TransactionEnded,
)
from commitlog_store.format.message_rules import check_queue_place
from commitlog_store.message import MessageExt, PutMessageStatus
from commitlog_store.queue.get_message import DEFAULT_PULL_MESSAGES, checked_count, checked_int
from commitlog_store.queue.log_blocks import DEFAULT_ROWS
from commitlog_store.remote.connection import Connection, RemoteAddress, is_unanswered
from commitlog_store.remote.session import CLOSE_SECONDS, Session
from commitlog_store.remote.session_pool import SessionPool
from commitlog_store.remote.transaction import RemoteTransaction
from commitlog_store.remote.wire import FilterTexts, Place
from commitlog_store.timestamps import checked_seconds

# A wait is asked for in parts.
_WAIT_SECONDS = 0.5
# So many acknowledged messages are reported by a call of their own; fewer with the next call.
_MOST_DONE = 256
# How long the end of a store or a program waits for calls of consumers, which else leave the group when they end.
_CALLS_SECONDS = 1.0
# The calls of which it matters whether they were done.
_FINAL = frozenset({"commit_positions", "retry"})
# Those that exist, by id.
_ALL: weakref.WeakValueDictionary[int, RemoteConsumer] = weakref.WeakValueDictionary()


class RemoteConsumer(Consuming):
    """``Consumer`` of a store at a server, with its methods and promises. Made by ``RemoteStore.consumer``.

    The server shares the queues of the topics among all consumers of the group, wherever they are. A consumer that
    calls nothing for 60 seconds gives its queues back, and so does one whose server was started again, or whose poll
    was interrupted: its next poll joins the group again, and what was not committed comes again. One that is closed,
    itself or with its store, or whose program ends, gives them back at once; one that is dropped, with the next call
    of its store. Positions move only for the consumer that has the queue. What ``ack`` notes is sent with the next
    call, and by ``close``. The end of a store or a program waits two seconds for a server that does not answer. ::

        with connect("grpc://127.0.0.1:8815") as store, store.consumer("billing", ["orders"]) as consumer:
            while messages := consumer.poll(100):
                for message in messages:
                    print(message.body)
                    consumer.ack(message)
    """

    _WAIT_S = _WAIT_SECONDS

    def __init__(
        self, sessions: SessionPool, group: str, topics: Sequence[str], wanted: FilterTexts, first: str | int
    ) -> None:
        """Use ``RemoteStore.consumer``."""
        self.group = group
        self.topics = tuple(topics)
        self._sessions = sessions
        self._wanted = wanted
        self._first = first
        self._closed = False
        self._lock = threading.Lock()
        self._done: list[Place] = []
        # Empty while the server has no consumer of this one, as far as is known here.
        self._sessions_held: list[Session] = []
        # Where it is dropped without a close. An end of the program is that of all consumers.
        weakref.finalize(self, sessions.drop, self._sessions_held).atexit = False
        _ALL[id(self)] = self
        # The name of the session before.
        self._former = ""
        # Set where messages may have come that no caller got: the server then reads them again.
        self._interrupted = False
        # Whether a caller got messages since the last commit, and whether the consumer has left the group with such
        # messages: a transaction that may have output of these is not committed.
        self._has_polled = self._has_lost = False
        with self._lock:
            self._joined()

    @property
    def _session(self) -> Session | None:
        return self._sessions_held[0] if self._sessions_held else None

    def close(self) -> None:
        """Leave the group: its other consumers take the queues over. What is not committed comes again."""
        self._end(set(), wait_s=-1, timeout_s=None)

    def _end(self, silent: set[RemoteAddress], *, wait_s: float, timeout_s: float | None) -> None:
        """``close``, which waits for another thread's call, and for the server. ``silent``: see ``Session.close``."""
        if self._closed:
            return
        self._closed = True
        if Connection.is_forked():  # all is the parent's
            return
        address = self._sessions.address
        # A signal handler may have interrupted a call of this consumer, which leaves the group when it ends.
        if not self._lock.acquire(timeout=0 if self._sessions.is_within_call() else wait_s):
            return
        try:
            session = self._session
            if session is not None and self._done and not self._interrupted and address not in silent:
                session.once("acknowledge", self._done, may_reopen=False, is_final=False, timeout_s=timeout_s)
        except CommitLogError as error:  # what is not acknowledged comes again
            if is_unanswered(error):
                silent.add(address)
        finally:
            try:
                self._leave(silent)
            finally:
                self._lock.release()

    def poll(self, max_messages: int = DEFAULT_PULL_MESSAGES, timeout_s: float = 0.0) -> list[MessageExt]:
        """``Consumer.poll``: up to ``max_messages`` messages of all queues; waits for the first one."""
        found: list[MessageExt] = self._polled(timeout_s, [], "poll", checked_count("max_messages", max_messages))
        self._has_polled |= bool(found)
        return found

    def poll_batch(
        self, max_rows: int = DEFAULT_ROWS, timeout_s: float = 0.0, *, columns: Sequence[str] = DEFAULT_COLUMNS
    ) -> pa.RecordBatch | None:
        """``Consumer.poll_batch``: messages of one queue as a record batch, done only by ``commit``."""
        names, rows = arrow_schema(columns).names, checked_count("max_rows", max_rows)
        data = self._polled(timeout_s, [], "poll_batch", rows, names)
        if data is None:
            return None
        self._has_polled = True
        (batch,) = pa.ipc.open_stream(data)
        return batch

    def _polled(self, timeout_s: float, abandoned: list[bool], call: str, most: int, *arguments: object) -> Any:
        """What a poll found before its time was over. Not empty ``abandoned``: no caller takes it any more."""
        deadline = time.monotonic() + checked_seconds("timeout_s", timeout_s)
        while True:
            left = max(deadline - time.monotonic(), 0.0)
            try:
                found = self._once(call, most, min(left, _WAIT_SECONDS), *arguments)
            except CommitLogError:
                raise
            except BaseException:
                self._interrupted = True
                raise
            if abandoned:
                self._interrupted = True
            if found or not left or abandoned:
                return found

    async def apoll(self, max_messages: int = DEFAULT_PULL_MESSAGES, timeout_s: float = 0.0) -> list[MessageExt]:
        """``poll`` for asyncio, in another thread. After a task was cancelled, what is not committed comes again."""
        import asyncio  # programs without it do not import it

        count = checked_count("max_messages", max_messages)
        deadline = time.monotonic() + checked_seconds("timeout_s", timeout_s)
        abandoned: list[bool] = []
        try:
            while True:
                left = max(deadline - time.monotonic(), 0.0)
                # In parts: other tasks need the threads of the loop, too.
                wait_s = min(left, _WAIT_SECONDS)
                found: list[MessageExt] = await asyncio.to_thread(self._polled, wait_s, abandoned, "poll", count)
                self._has_polled |= bool(found)
                if found or not left:
                    return found
        except asyncio.CancelledError:
            abandoned.append(True)
            self._interrupted = True
            raise

    def ack(self, message: MessageExt) -> None:
        """``Consumer.ack``: note that a message of ``poll`` is done."""
        check_one_message("ack", message)
        self._refuse_closed()
        self._done.append((message.topic, message.queue_id, message.queue_offset))
        if len(self._done) >= _MOST_DONE:
            self._once("acknowledge")

    def commit(self, *, sync: bool = False, in_transaction: RemoteTransaction | None = None) -> None:
        """``Consumer.commit``: note that everything that was polled so far is done.

        A consumer that has lost its queues since the poll joins its group again and commits nothing: the messages come
        again. With a transaction of the same store, positions and messages are in the store together or not at all.
        ``TransactionEnded`` if the consumer has lost its queues since the poll: the transaction is not to be committed.
        """
        if in_transaction is None:
            self._once("commit_positions", bool(sync), None)
            self._has_polled = self._has_lost = False
            return
        if not isinstance(in_transaction, RemoteTransaction):
            raise InvalidValue(f"in_transaction is a transaction of the same store, not {in_transaction!r}.")
        try:
            with self._turn():
                if self._session is None or self._interrupted or self._has_lost:
                    self._leave()
                    raise SessionLost("it has left the group.")
                self._call(self._session, "commit_positions", bool(sync), in_transaction.session.opened.session)
                self._has_polled = False
        except (RemoteFailed, PutNotConfirmed) as error:
            in_transaction.fail(error)
            self._has_lost = False
            raise TransactionEnded(
                f"The queues of group {self.group!r} are not this consumer's any more: {error} Nothing of "
                f"{in_transaction.batch} is to be written; poll again."
            ) from error

    def rewind(self) -> None:
        """``Consumer.rewind``: what was polled and is not committed comes again."""
        self._once("rewind")
        self._has_polled = self._has_lost = False

    def retry(self, message: MessageExt, delay_level: int | str | timedelta = 0) -> PutMessageResult:
        """``Consumer.retry``: give a message of ``poll`` back, which then comes again, or is a dead letter."""
        check_one_message("retry", message)
        if isinstance(delay_level, str | timedelta):
            level = level_of(delay_level, self._sessions.delay_levels) or 0
        else:
            level = checked_int("delay_level", delay_level)
        result: PutMessageResult = self._once("retry", message, level)
        return result

    def seek(self, topic: str, queue_id: int, offset: int) -> None:
        """``Consumer.seek``: continue at this offset of a queue that this consumer reads."""
        check_queue_place(topic, queue_id, offset)
        self._once("seek", topic, queue_id, offset)

    def positions(self) -> dict[tuple[str, int], int]:
        """``Consumer.positions``: the next offset to be polled of each queue that this consumer reads."""
        return {(topic, queue_id): offset for topic, queue_id, offset in self._once("positions")}

    def _once(self, call: str, *arguments: object) -> Any:
        """A call, by a consumer of the group that joins it again if the server does not know it any more."""
        with self._turn():
            while True:
                self._refuse_closed()
                if self._interrupted:
                    self._leave()
                session = self._joined()
                with contextlib.suppress(SessionLost):
                    return self._call(session, call, *arguments)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """One call of this consumer, which leaves the group at its end if it was closed since. ``ConsumerClosed``."""
        with self._sessions.call(), self._lock:
            try:
                self._refuse_closed()
                yield
            finally:
                if self._closed:
                    self._leave()

    def _call(self, session: Session, call: str, *arguments: object) -> Any:
        """``RemoteFailed``, ``PutNotConfirmed``: the consumer at the server is gone, or its state is not known."""
        done = list(self._done)
        try:
            found = session.once(call, done, *arguments, may_reopen=False, is_final=call in _FINAL)
        except RemoteFailed:  # also SessionLost
            self._leave()  # what was polled comes again, also what an answer had that was lost
            raise
        except PutNotConfirmed as error:
            if error.status is PutMessageStatus.UNKNOWN_ERROR:
                self._leave()
            raise
        except CommitLogError:
            raise
        except BaseException:
            self._interrupted = True
            raise
        del self._done[: len(done)]
        return found

    def _joined(self) -> Session:
        if self._session is None:
            session = self._sessions.take()
            try:
                session.once(
                    *("open_consumer", self.group, list(self.topics), self._wanted, self._first, self._former),
                    is_final=False,
                )
            except BaseException:
                session.close()
                raise
            self._sessions_held.append(session)
            self._interrupted = False
        return self._sessions_held[0]

    def _leave(self, silent: set[RemoteAddress] | None = None) -> None:
        """Close the session. ``silent``: see ``Session.close``."""
        self._interrupted = False
        self._has_lost, self._has_polled = self._has_lost or self._has_polled, False
        self._done.clear()
        while self._sessions_held:
            session = self._sessions_held.pop()
            self._former = session.opened.session
            session.close(silent)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ConsumerClosed(f"The consumer of group {self.group!r} is closed; make another one.")


def close_together(consumers: weakref.WeakValueDictionary[int, RemoteConsumer], silent: set[RemoteAddress]) -> None:
    """Close the consumers. A server that does not answer is waited for once. ``silent``: see ``Session.close``."""
    calls_end = time.monotonic() + _CALLS_SECONDS
    for ref in consumers.valuerefs():  # the list is copied in one step
        if (consumer := ref()) is not None:
            consumer._end(silent, wait_s=max(calls_end - time.monotonic(), 0.0), timeout_s=CLOSE_SECONDS)


# After the threads that the interpreter waits for.
atexit.register(close_together, _ALL, set())
