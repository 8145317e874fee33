"""Transactions of clients: each is a ``Transaction`` of the owned store, which the session keeps until it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from commitlog_store.batch_id import CommittedBatch
from commitlog_store.errors import TransactionEnded
from commitlog_store.remote.put_wire import SentRows, decode_rows, size_of
from commitlog_store.serve.sessions import Session
from commitlog_store.serve.store_writer import StoreWriter
from commitlog_store.transaction import Transaction


def transaction_of(kept: object) -> Transaction:
    """``TransactionEnded`` for a session that keeps none."""
    if not isinstance(kept, Transaction):
        raise TransactionEnded("The server has no open transaction of this session; begin another one.")
    return kept


def _begin(writer: StoreWriter, session: Session, app_id: str, version: int, fingerprint: str) -> CommittedBatch | None:
    session.discard()
    transaction = writer.store.transaction(app_id, version, fingerprint)
    session.kept = transaction
    return transaction.result


def _put(writer: StoreWriter, session: Session, rows: SentRows, topic: str | None, first_row: int) -> None:
    transaction = transaction_of(session.kept)
    writer.staging.take(size_of(rows), is_new=True)
    transaction.put_messages(decode_rows(rows), topic=topic, first_row=first_row)


def _commit(_: StoreWriter, session: Session) -> CommittedBatch:
    transaction = transaction_of(session.kept)
    try:
        transaction.__exit__(None, None, None)
    finally:
        # Not before: until then, the end of the session ends a commit that has not begun.
        session.kept = None
    assert transaction.result is not None
    return transaction.result


# Each takes the writer, the client's session, and the call's other arguments.
TRANSACTION_CALLS: Mapping[str, Callable[..., Any]] = {
    "begin_transaction": _begin,
    "transaction_put": _put,
    "commit_transaction": _commit,
    "end_transaction": lambda _, session: session.discard(),
}
