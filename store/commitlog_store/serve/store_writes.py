"""What is done for those of ``remote.wire.CALLS`` that write, by the store that the server owns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from commitlog_store.batch_id import CommittedBatch
from commitlog_store.engine.put_message import PutMessageResult
from commitlog_store.errors import CommitLogError, TransactionEnded
from commitlog_store.remote.put_wire import MessageFields, Outcome, SessionOpened, TableResult, decode_rows
from commitlog_store.remote.wire import CALLS, encode_error
from commitlog_store.serve.sessions import Session, Sessions
from commitlog_store.store import MessageStore
from commitlog_store.transaction import Transaction


class StoreWriter:
    """The store that a server owns, and the sessions of the clients that write to it."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.sessions = Sessions()

    def answer(self, call: str, arguments: Sequence[Any], encode: Callable[[object], bytes]) -> bytes:
        """The answer to a call that writes, as ``encode`` makes it. The errors of the store, and ``SessionLost``."""
        if not CALLS[call].once:
            return encode(WRITES[call](self, *arguments))
        call_id, *given = arguments
        return self.sessions.once(call_id, lambda session: encode(ONCE[call](self.store, session, *given)))


def _put_together(store: MessageStore, _: Session, messages: Sequence[MessageFields]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for one in store.put_together([fields.message() for fields in messages]):
        if isinstance(one, PutMessageResult):
            outcomes.append(one)
        elif isinstance(one, CommitLogError):
            outcomes.append(encode_error(one))
        else:
            raise one
    return outcomes


def _put_messages(store: MessageStore, _: Session, rows: bytes, topic: str | None, first_row: int) -> TableResult:
    return TableResult.of(store.put_messages(decode_rows(rows), topic=topic, first_row=first_row))


class _OpenTransaction:
    """What a session keeps of a transaction: staged messages, which are discarded unless it is committed."""

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction

    def discard(self) -> None:
        error = TransactionEnded(f"The client of {self.transaction!r} has ended it, or is gone.")
        self.transaction.__exit__(TransactionEnded, error, None)


def _begin_transaction(
    store: MessageStore, session: Session, app_id: str, version: int, fingerprint: str
) -> CommittedBatch | None:
    session.discard()
    transaction = store.transaction(app_id, version, fingerprint)
    session.kept = _OpenTransaction(transaction)
    return transaction.result


def _transaction_of(session: Session) -> Transaction:
    if not isinstance(session.kept, _OpenTransaction):
        raise TransactionEnded("This session has no open transaction; begin another one.")
    return session.kept.transaction


def _transaction_put(_: MessageStore, session: Session, rows: bytes, topic: str | None, first_row: int) -> None:
    _transaction_of(session).put_messages(decode_rows(rows), topic=topic, first_row=first_row)


def _commit_transaction(_: MessageStore, session: Session) -> CommittedBatch:
    transaction = _transaction_of(session)
    try:
        transaction.__exit__(None, None, None)
    finally:
        # Not before: until then, the end of the session ends a commit that has not begun.
        session.kept = None
    assert transaction.result is not None
    return transaction.result


# Each takes the writer and the call's arguments.
WRITES: Mapping[str, Callable[..., Any]] = {
    "open_session": lambda writer: SessionOpened(writer.sessions.open(), writer.store.config.message_delay_level),
    "close_session": lambda writer, name: writer.sessions.close(name),
    "flush": lambda writer: writer.store.flush(),
    "dispatch": lambda writer: writer.store.dispatch(),
    "committed_batch": lambda writer, *batch: writer.store.transaction(*batch).result,
    "create_topic": lambda writer, topic, queues, read: writer.store.create_topic(topic, queues, read_queues=read),
}

# Each takes the store, the client's session, and the call's other arguments.
ONCE: Mapping[str, Callable[..., Any]] = {
    "put_message": lambda store, _, fields: store.put_message(fields.message()),
    "put_message_batch": lambda store, _, messages: store.put_message_batch([one.message() for one in messages]),
    "put_together": _put_together,
    "put_messages": _put_messages,
    "begin_transaction": _begin_transaction,
    "transaction_put": _transaction_put,
    "commit_transaction": _commit_transaction,
    "end_transaction": lambda _, session: session.discard(),
    "prepare_half_message": lambda store, _, fields, group: store.half_messages.prepare(fields.message(), group),
    "commit_half_message": lambda store, _, handle: store.half_messages.commit(handle),
    "roll_back_half_message": lambda store, _, handle: store.half_messages.rollback(handle),
    "resume_half_message": lambda store, _, message_id: store.half_messages.resume(message_id),
}

assert WRITES.keys() == {name for name, call in CALLS.items() if call.writes and not call.once}
assert ONCE.keys() == {name for name, call in CALLS.items() if call.once}
