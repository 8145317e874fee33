"""RemoteTransaction: a batch of messages that is staged at a server, and committed there by leaving a block."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from types import TracebackType

from commitlog_store.batch_id import BatchId, CommittedBatch
from commitlog_store.columnar.message_rows import MessageRows, message_rows
from commitlog_store.columnar.message_table import MessageTable
from commitlog_store.errors import CommitLogError, PutNotConfirmed, SessionLost, TransactionEnded
from commitlog_store.put_status import PutMessageStatus
from commitlog_store.queue.get_message import checked_int
from commitlog_store.remote.connection import Connection
from commitlog_store.remote.session_pool import SessionPool
from commitlog_store.remote.table_puts import sendable_parts, too_large
from commitlog_store.unpicklable import Unpicklable


class RemoteTransaction(Unpicklable):
    """``Transaction`` of a store at a server: its messages will be in the store together or not at all.

    The server stages them, and discards them when it is stopped, or when nothing is put for 600 seconds: then
    ``TransactionEnded``, and the program begins the version again. Where the answer to the commit is lost, the server's
    ledger says whether it is committed. ::

        with connect("grpc://127.0.0.1:8815") as store, store.transaction("loader", version=1) as batch:
            if not batch.already_there:  # a version is stored at most once
                batch.put_messages(pa.table({"topic": ["orders", "audit"], "body": [b"a", b"b"]}))
    """

    _INSTEAD = "Begin one of another application id in the other process."

    def __init__(self, sessions: SessionPool, batch: BatchId) -> None:
        """Use ``RemoteStore.transaction``. The errors of ``MessageStore.transaction``, and of ``RemoteStore``."""
        self.batch = batch
        self._sessions = sessions
        self._lock = threading.Lock()
        self._ended = False
        self._failure: BaseException | None = None
        self.session = sessions.take()
        try:
            # The committed batch, from the end of the block on; from the start if it was committed before.
            self.result: CommittedBatch | None = self.session.once(
                "begin_transaction", batch.app_id, batch.version, batch.fingerprint, is_final=False
            )
        except BaseException:
            self.session.close()
            raise

    def __repr__(self) -> str:
        state = "failed" if self._failure is not None else "ended" if self._ended else "open"
        return f"<RemoteTransaction of {self.batch}, {state}>"

    @property
    def already_there(self) -> bool:
        """Whether this version was committed before: puts write nothing, and the block may be skipped."""
        return self.result is not None and self.result.already_there

    def put_messages(self, table: MessageRows, *, topic: str | None = None, first_row: int = 0) -> None:
        """``Transaction.put_messages``. ``InvalidValue``, ``PutRefused``, ``TransactionEnded``, ``RemoteFailed``."""
        self._refuse_ended()
        if self.already_there:
            return
        try:
            first_row = checked_int("first_row", first_row)
            rows = message_rows(table)
            MessageTable(rows, topic=topic)  # the errors of wrong columns, before anything is sent
            with self._sessions.call(), self._lock:
                self._refuse_ended()  # another thread may have ended it, or failed
                for first, _, data, size in sendable_parts(rows):
                    if data is None:
                        raise too_large(first_row + first)
                    self._once("transaction_put", data, topic, first_row + first, size=size)
        except BaseException as error:
            if self._failure is None and not self._ended:
                self._failure = error
            raise

    def fail(self, error: BaseException) -> None:
        """Have the end of the block refused: a part of the transaction is missing."""
        self._failure = self._failure or error

    def _once(self, call: str, *arguments: object, size: int = 0) -> object:
        """``TransactionEnded`` if the transaction is gone at the server: nothing of it is in the store. A put whose
        answer is lost is ``RemoteFailed``, since it is only staged."""
        try:
            return self.session.once(call, *arguments, size=size, may_reopen=False, is_final=False)
        except SessionLost as error:
            raise self._lost(error) from error

    def _refuse_ended(self) -> None:
        if self._failure is not None:
            raise TransactionEnded(
                f"A put into the transaction of {self.batch} failed ({self._failure}), so a part of it is missing. "
                "Nothing was written; begin another one."
            ) from self._failure
        if self._ended:
            raise TransactionEnded(f"The transaction of {self.batch} has ended; begin another one.")

    def __enter__(self) -> RemoteTransaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Before the lock is waited for: a put of another thread that comes now is refused.
        self._ended = True
        if Connection.is_forked():  # it belongs to the parent, and so does the lock
            if kind is None:
                Connection.refuse_forked(self._sessions.address)
            return
        is_committed = False
        try:
            with self._lock:
                if kind is None:
                    if self._failure is not None:
                        self._refuse_ended()
                    self._commit()
                    is_committed = True
        finally:
            if is_committed:
                self._sessions.give_back(self.session)
            else:
                self.session.close()  # which discards what is staged

    def _commit(self) -> None:
        try:
            self.result = self.session.once("commit_transaction", may_reopen=False)
        except SessionLost as error:
            raise self._lost(error) from error
        except PutNotConfirmed as error:
            self._find_out(error)
            if error.status is not PutMessageStatus.UNKNOWN_ERROR:
                raise  # it is committed, and not with the slaves

    def _find_out(self, lost: PutNotConfirmed) -> None:
        """After an answer that was lost: the ledger says whether the batch is committed. ``PutNotConfirmed``."""
        try:
            with contextlib.suppress(SessionLost):
                # A commit that comes after this one is refused, and one under way is a job before the next question.
                self.session.once("end_transaction", may_reopen=False)
            found = self._committed()
        except CommitLogError as error:
            if lost.status is not PutMessageStatus.UNKNOWN_ERROR:
                raise lost from None
            raise PutNotConfirmed(
                lost.status,
                f"The answer to the commit of {self.batch} was lost, and the ledger cannot be asked: {error} Begin the "
                "same version again: it is stored once.",
            ) from lost
        if found is None:
            raise self._lost("The answer to its commit was lost, and the ledger does not have it.") from lost
        self.result = replace(found, already_there=False)

    def _committed(self) -> CommittedBatch | None:
        """The batch as it is in the store, None if it is not."""
        batch = self.batch
        found: CommittedBatch | None = self._sessions.ask(
            "committed_batch", batch.app_id, batch.version, batch.fingerprint
        )
        return found

    def _lost(self, reason: object) -> TransactionEnded:
        return TransactionEnded(
            f"The transaction of {self.batch} was lost at the server: {reason} Nothing was written; begin it again."
        )
