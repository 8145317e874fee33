"""What is done for those of ``remote.calls.CALLS`` that write, by the store that the server owns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from commitlog_store.engine.put_message import PutMessageResult
from commitlog_store.errors import CommitLogError
from commitlog_store.half.transactional_message import NoAnswerYet
from commitlog_store.half_message import Answer
from commitlog_store.message import MessageExt
from commitlog_store.remote.calls import CALLS
from commitlog_store.remote.put_wire import (
    HalfMessagesAsked,
    MessageFields,
    Outcome,
    SentRows,
    SessionOpened,
    TableResult,
    decode_rows,
)
from commitlog_store.remote.wire import encode_error
from commitlog_store.serve.admin_calls import ADMIN_CALLS
from commitlog_store.serve.consumer_calls import CONSUMER_CALLS
from commitlog_store.serve.sessions import Session
from commitlog_store.serve.store_writer import StoreWriter
from commitlog_store.serve.transaction_calls import TRANSACTION_CALLS
from commitlog_store.serve.uploads import BATCH_WRITES

# Half messages that one round of checks asks a client for, and their bytes.
_MOST_ASKED = 1_000
_ASKED_SIZE = 8 << 20


def answer_write(
    writer: StoreWriter,
    call: str,
    arguments: Sequence[Any],
    encode: Callable[[object], bytes],
    *,
    token: str = "",
    address: str = "",
) -> bytes:
    """The answer to a call that writes, as ``encode`` makes it. The errors of the store, and ``SessionLost``.

    ``token`` is the name of the client's token, ``address`` that of its connection.
    """
    if not CALLS[call].once:
        return encode(WRITES[call](writer, *arguments))
    call_id, *given = arguments

    def work(session: Session) -> bytes:
        client = session.client
        client.token, client.address, client.called_ms = token, address, time.time_ns() // 1_000_000
        return encode(ONCE[call](writer, session, *given))

    return writer.sessions.once(call_id, work)


def _put_together(writer: StoreWriter, _: Session, messages: Sequence[MessageFields]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for one in writer.store.put_together([fields.message() for fields in messages]):
        if isinstance(one, PutMessageResult):
            outcomes.append(one)
        elif isinstance(one, CommitLogError):
            outcomes.append(encode_error(one))
        else:
            raise one
    return outcomes


def _put_messages(
    writer: StoreWriter, _: Session, rows: SentRows, topic: str | None, first_row: int, stop_at_refusal: bool
) -> TableResult:
    table = decode_rows(rows)
    return TableResult.of(
        writer.store.put_messages(table, topic=topic, first_row=first_row, stop_at_refusal=stop_at_refusal)
    )


def _check_half_messages(writer: StoreWriter, _: Session, answers: Sequence[tuple[int, Answer]]) -> HalfMessagesAsked:
    """A round of checks with the client's answers, by physical offset, which asks for others, as many as one answer
    holds."""
    known = dict(answers)
    asked: list[MessageExt] = []
    size = 0

    def answer(message: MessageExt) -> Answer:
        nonlocal size
        if message.physical_offset not in known:
            if len(asked) < _MOST_ASKED and size < _ASKED_SIZE:
                asked.append(message)
                size += message.store_size
            raise NoAnswerYet
        return known[message.physical_offset]

    checked = writer.store.half_messages.check(answer)
    return HalfMessagesAsked(checked, asked)


def _open_session(writer: StoreWriter) -> SessionOpened:
    config = writer.store.config
    return SessionOpened(
        writer.sessions.open(), config.message_delay_level, config.transaction_check_interval, config.store_host
    )


# Each takes the writer and the call's arguments.
WRITES: Mapping[str, Callable[..., Any]] = {
    "open_session": _open_session,
    "close_session": lambda writer, name: writer.sessions.close(name),
    "flush": lambda writer: writer.store.flush(),
    "dispatch": lambda writer: writer.store.dispatch(),
    "expired_topics": lambda writer: writer.store.expired_topics(),
    "committed_batch": lambda writer, *batch: writer.store.transaction(*batch).result,
    "create_topic": lambda writer, topic, queues, read: writer.store.create_topic(topic, queues, read_queues=read),
    "create_topic_with_perm": lambda writer, topic, queues, read, perm: writer.store.create_topic(
        topic, queues, read_queues=read, perm=perm
    ),
    **BATCH_WRITES,
}

# Each takes the writer, the client's session, and the call's other arguments.
ONCE: Mapping[str, Callable[..., Any]] = {
    "put_message": lambda writer, _, fields: writer.store.put_message(fields.message()),
    "put_message_batch": lambda writer, _, messages: writer.store.put_message_batch(
        [fields.message() for fields in messages]
    ),
    "put_together": _put_together,
    "put_messages": _put_messages,
    "prepare_half_message": lambda writer, _, fields, group: writer.store.half_messages.prepare(
        fields.message(), group
    ),
    "commit_half_message": lambda writer, _, handle: writer.store.half_messages.commit(handle),
    "roll_back_half_message": lambda writer, _, handle: writer.store.half_messages.rollback(handle),
    "check_half_messages": _check_half_messages,
    "resume_half_message": lambda writer, _, message_id: writer.store.half_messages.resume(message_id),
    **ADMIN_CALLS,
    **TRANSACTION_CALLS,
    **CONSUMER_CALLS,
}

assert WRITES.keys() == {name for name, call in CALLS.items() if call.writes and not call.once}
assert ONCE.keys() == {name for name, call in CALLS.items() if call.once}
