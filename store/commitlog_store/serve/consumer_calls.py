"""Consumers of clients: each is a ``Consumer`` of the owned store, which the session keeps as long as it is called.

So consumers of one group in different processes share the queues as those of one process do. A session that is not
used for ``LEASE_SECONDS`` ends, and its consumer leaves the group: the others read its queues from the group's
positions on. A call of a client that comes later finds no session, and moves no position.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from commitlog_store.consumers.consumer import Consumer, note_client
from commitlog_store.errors import CommitLogError, ConsumerClosed, InvalidValue, TransactionEnded
from commitlog_store.message import MessageExt
from commitlog_store.remote.put_wire import encode_rows
from commitlog_store.remote.wire import FilterTexts, Place
from commitlog_store.serve.sessions import LEASE_SECONDS, Session
from commitlog_store.serve.store_writer import StoreWriter
from commitlog_store.serve.transaction_calls import transaction_of

# A poll waits no longer, and gives no more messages at once once it has so many bytes.
_LONGEST_WAIT_SECONDS = 1.0
_POLL_SIZE = 1 << 20
_POLL_MESSAGES = 8


def _open(
    writer: StoreWriter,
    session: Session,
    group: str,
    topics: list[str],
    wanted: FilterTexts,
    first: str | int,
    former: str,
) -> None:
    """``former`` is the session of the same consumer before, whose end the server may not have heard of."""
    writer.sessions.close(former)
    session.discard()
    consumer = writer.store.consumer(group, topics, filter=wanted.parsed(), consume_from=first)
    session.kept = consumer
    note_client(consumer, session.client)
    session.idle_s = LEASE_SECONDS


def _consumer_of(session: Session, done: Sequence[Place]) -> Consumer:
    """The session's consumer, after what its client has acknowledged since the last call. ``ConsumerClosed``."""
    if not isinstance(session.kept, Consumer):
        raise ConsumerClosed("The server has no consumer of this session; make another one.")
    if done:
        session.kept.acknowledge(done)
    return session.kept


def _acknowledge(_: StoreWriter, session: Session, done: Sequence[Place]) -> None:
    _consumer_of(session, done)


def _poll(_: StoreWriter, session: Session, done: Sequence[Place], count: int, wait_s: float) -> list[MessageExt]:
    consumer = _consumer_of(session, done)
    messages = more = consumer.poll(min(count, _POLL_MESSAGES), min(wait_s, _LONGEST_WAIT_SECONDS))
    size = 0
    while more and len(messages) < count and (size := size + sum(len(one.body) for one in more)) < _POLL_SIZE:
        try:
            more = consumer.poll(min(count - len(messages), _POLL_MESSAGES))
        except CommitLogError:
            break  # it comes again at the next poll, and those before it are given now
        messages = messages + more
    return messages


def _poll_batch(
    _: StoreWriter, session: Session, done: Sequence[Place], rows: int, wait_s: float, columns: Sequence[str]
) -> bytes | None:
    batch = _consumer_of(session, done).poll_batch(rows, min(wait_s, _LONGEST_WAIT_SECONDS), columns=columns)
    return None if batch is None else bytes(encode_rows(batch))


def _commit(writer: StoreWriter, session: Session, done: Sequence[Place], sync: bool, transaction: str | None) -> None:
    consumer = _consumer_of(session, done)
    if transaction is None:
        consumer.commit(sync=sync)
    else:
        try:
            open_transaction = transaction_of(writer.sessions.kept_of(transaction))
        except TransactionEnded:
            with contextlib.suppress(InvalidValue):  # of positions that are part of another one, which is open
                consumer.rewind()  # as with one that has ended before the commit in it
            raise
        consumer.commit(sync=sync, in_transaction=open_transaction)


# Each takes the writer, the client's session, and the call's other arguments.
CONSUMER_CALLS: Mapping[str, Callable[..., Any]] = {
    "open_consumer": _open,
    "poll": _poll,
    "poll_batch": _poll_batch,
    "acknowledge": _acknowledge,
    "commit_positions": _commit,
    "rewind": lambda _, session, done: _consumer_of(session, done).rewind(),
    "retry": lambda _, session, done, *given: _consumer_of(session, done).retry(*given),
    "seek": lambda _, session, done, *place: _consumer_of(session, done).seek(*place),
    "positions": lambda _, session, done: [
        (*queue, offset) for queue, offset in _consumer_of(session, done).positions().items()
    ],
}
