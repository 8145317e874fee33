"""What is put through a server, on its way there: messages, tables of messages, and their results.

A message is an array of the fields of ``Message``, and of those of ``MessageExtBrokerInner`` if it is one. A table is
an Arrow IPC stream. A call that may be repeated begins with a ``CallId``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import index
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from commitlog_store.columnar.input import Rows
from commitlog_store.columnar.message_table import message_chunks
from commitlog_store.engine.put_message import PutMessageResult
from commitlog_store.engine.put_table import PutTableResult
from commitlog_store.errors import InvalidValue
from commitlog_store.format.message_rules import refusal_of, type_fault
from commitlog_store.format.timer_messages import given_properties
from commitlog_store.half_message import HalfMessagesChecked
from commitlog_store.message import Message, MessageExt, MessageExtBrokerInner, PutMessageStatus

# Of one part of a table: a question has at most 16 MiB.
PART_ROWS = 131_072
PART_SIZE = 12 << 20
# A dictionary that is larger is not sent with each part: its values are.
_LARGEST_DICTIONARY = 1 << 20


class CallId(NamedTuple):
    """A call that the server does once, however often it comes: the session's name, and a number that ascends in it."""

    session: str
    number: int


class SessionOpened(NamedTuple):
    """A server's answer to a client that will write: the session's name, and the settings that a client needs."""

    session: str
    message_delay_level: str
    transaction_check_interval: int
    store_host: str


class InnerFields(NamedTuple):
    """The fields that ``MessageExtBrokerInner`` adds."""

    sys_flag: int
    born_host: str | None
    store_host: str | None
    reconsume_times: int
    prepared_transaction_offset: int


class MessageFields(NamedTuple):
    """A message to put."""

    topic: str
    body: bytes
    tags: str | None
    keys: list[str]
    queue_id: int | None
    flag: int
    properties: dict[str, str]
    sharding_key: str | None
    delay_level: int | None
    born_timestamp: int | None
    inner: InnerFields | None

    @classmethod
    def of(cls, message: Message) -> MessageFields:
        """``InvalidValue``, ``PutRefused``: the errors of a message that cannot be encoded."""
        if fault := type_fault(message):
            raise InvalidValue(fault)
        try:
            return cls(
                _sendable(message.topic),
                message.body if type(message.body) is bytes else bytes(memoryview(message.body)),
                None if message.tags is None else _sendable(message.tags),
                [_sendable(key) for key in message.keys],
                _long_or_none(message.queue_id),
                _long(message.flag),
                {_sendable(name): _sendable(value) for name, value in given_properties(message).items()},
                None if message.sharding_key is None else _sendable(message.sharding_key),
                _long_or_none(message.delay_level),
                _long_or_none(message.born_timestamp),
                _inner(message) if isinstance(message, MessageExtBrokerInner) else None,
            )
        except (ValueError, OverflowError) as error:
            raise refusal_of(message, error) from error

    def message(self) -> Message:
        named: dict[str, Any] = self._asdict()
        inner = named.pop("inner")
        return Message(**named) if inner is None else MessageExtBrokerInner(**named, **inner._asdict())


def _sendable(text: str) -> str:
    """``UnicodeEncodeError`` for a text that UTF-8 does not have."""
    if not text.isascii():
        text.encode()
    return text if type(text) is str else str.__str__(text)


def _long(number: int) -> int:
    """``OverflowError`` for a number of more than 64 bits, which no field takes."""
    return int(np.int64(index(number)))


def _long_or_none(number: int | None) -> int | None:
    return None if number is None else _long(number)


def _inner(message: MessageExtBrokerInner) -> InnerFields:
    return InnerFields(
        _long(message.sys_flag),
        message.born_host,
        message.store_host,
        _long(message.reconsume_times),
        _long(message.prepared_transaction_offset),
    )


class HalfMessagesAsked(NamedTuple):
    """A round of checks at the server: what it did, and the half messages whose outcomes it asks for."""

    checked: HalfMessagesChecked
    messages: list[MessageExt]


class TableResult(NamedTuple):
    """A ``PutTableResult``, with its rows as an Arrow IPC stream."""

    status: PutMessageStatus
    reason: str
    message_num: int
    rows: bytes

    @classmethod
    def of(cls, result: PutTableResult) -> TableResult:
        return cls(result.status, result.reason, result.message_num, bytes(encode_rows(result.rows)))

    def result(self) -> PutTableResult:
        (rows,) = pa.ipc.open_stream(self.rows)
        return PutTableResult(self.status, self.reason, self.message_num, rows)


# A put message's result, or the error that stands for it (see ``wire.encode_error``).
Outcome = PutMessageResult | bytes


def encode_rows(rows: Rows) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return memoryview(sink.getvalue())


# Rows on their way: an Arrow IPC stream, or attached to their call (``call_stream.py``).
SentRows: TypeAlias = memoryview | pa.RecordBatch


def size_of(rows: SentRows) -> int:
    return int(rows.get_total_buffer_size()) if isinstance(rows, pa.RecordBatch) else rows.nbytes


def decode_rows(data: SentRows) -> Rows:
    """The rows, whose values stay where they are in ``data``.

    ``InvalidValue`` for bytes that are not an Arrow stream, and for one whose arrays contradict themselves.
    """
    try:
        table = data if isinstance(data, pa.RecordBatch) else pa.ipc.open_stream(data).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidValue(f"The rows are not an Arrow IPC stream: {error}") from error
    return table


def parts_of(rows: Rows) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows in parts that fit into a question each, unless a row alone does not, with each part's first row's number."""
    return message_chunks(_with_small_dictionaries(rows), max_rows=PART_ROWS, max_size=PART_SIZE)


def _with_small_dictionaries(rows: Rows) -> Rows:
    fields = []
    for column in rows.columns:
        chunks: Sequence[pa.Array] = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        kind = column.type
        if pa.types.is_dictionary(kind) and any(one.dictionary.nbytes > _LARGEST_DICTIONARY for one in chunks):
            kind = kind.value_type
        fields.append(kind)
    schema = pa.schema([field.with_type(kind) for field, kind in zip(rows.schema, fields, strict=True)])
    return rows if schema.types == rows.schema.types else rows.cast(schema)
