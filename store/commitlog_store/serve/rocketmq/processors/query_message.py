"""QueryMessageProcessor: messages by key or unique key, and one by its place in the log, as their stored bytes.

Source: RocketMQ ``broker/processor/QueryMessageProcessor.java``, ``store/DefaultMessageStore.java``
(``queryMessage``), ``store/config/MessageStoreConfig.java`` (``maxMsgsNumBatch``, ``defaultQueryMaxNum``).
"""

from __future__ import annotations

from collections.abc import Mapping

from commitlog_store.consumers.lent_readers import LentReaders
from commitlog_store.errors import InvalidValue, MessageNotFound
from commitlog_store.format.remoting_command import MAX_FRAME, RemotingCommand
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.message import MessageExt
from commitlog_store.reader import StoreReader, stored_record
from commitlog_store.serve.rocketmq.answering import (
    InThread,
    answered_in_thread,
    flag_field,
    int_field,
    long_field,
    text_field,
)
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.processor import Connection, Handler, Processor
from commitlog_store.timestamps import checked_timestamp_ms

# Messages of one answer: the most that a client may ask for, and those by unique key.
_MOST_MESSAGES = 64
_BY_UNIQUE_KEY = 32
# Bytes of an answer's messages: room for the header is left.
_MOST_SIZE = MAX_FRAME - (64 << 10)
# Less is no time in ms since RocketMQ exists, and more than the years to 9999 is none either.
_A_TIME = 10**12
_NOT_FOUND = "can not find message, maybe time range not correct"


class QueryMessageProcessor(Processor):
    """QUERY_MESSAGE, VIEW_MESSAGE_BY_ID."""

    def __init__(self, readers: LentReaders, in_thread: InThread) -> None:
        self._readers = readers
        self._in_thread = in_thread

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.QUERY_MESSAGE: answered_in_thread(self._in_thread, self._query),
            RequestCode.VIEW_MESSAGE_BY_ID: answered_in_thread(self._in_thread, self._view),
        }

    def _query(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """The newest messages with a key, stored within a range of time (ms, both ends inclusive)."""
        topic, key = text_field(request, "topic"), text_field(request, "key")
        count = _BY_UNIQUE_KEY if flag_field(request, "_UNIQUE_KEY_QUERY") else int_field(request, "maxNum")
        begin, end = _time(request, "beginTimestamp", 0), _time(request, "endTimestamp", MAX_LONG)
        with self._readers.lent() as reader:
            found: list[MessageExt] = []
            if count > 0 and begin <= end:
                limit = min(count, _MOST_MESSAGES)
                found = reader.query(topic, key, begin=begin, end=end, limit=limit, verify_crc=False)
            body = _stored(reader, found)
            fields = _index_end(reader)
        if not body:
            return request.answer(ResponseCode.QUERY_NOT_FOUND, _NOT_FOUND, fields=fields)
        return request.answer(ResponseCode.SUCCESS, fields=fields, body=body)

    def _view(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        offset = long_field(request, "offset")
        try:
            with self._readers.lent() as reader:
                message = reader.message_at(offset, verify_crc=False)
                body = stored_record(reader, offset, message.store_size)
        except MessageNotFound:
            return request.answer(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return request.answer(ResponseCode.SUCCESS, body=body)


def _time(request: RemotingCommand, name: str, default: int) -> int:
    """A time in ms. Clients give 0 and Long.MAX_VALUE for no bound, and others that are no times of messages."""
    value = long_field(request, name, default)
    try:
        return checked_timestamp_ms(value, name)
    except InvalidValue:
        return 0 if value < _A_TIME else MAX_LONG


def _stored(reader: StoreReader, messages: list[MessageExt]) -> bytes:
    """The newest of the messages that fit an answer, back to back, oldest first."""
    parts: list[bytes] = []
    left = _MOST_SIZE
    for message in reversed(messages):
        left -= message.store_size
        if left < 0:
            break
        parts.append(stored_record(reader, message.physical_offset, message.store_size))
    return b"".join(reversed(parts))


def _index_end(reader: StoreReader) -> dict[str, str]:
    """Up to where the index has entries."""
    files = reader.index_files()
    time_ms, offset = (files[-1].end_timestamp, files[-1].end_physical_offset) if files else (0, 0)
    return {"indexLastUpdateTimestamp": str(time_ms), "indexLastUpdatePhyoffset": str(offset)}
