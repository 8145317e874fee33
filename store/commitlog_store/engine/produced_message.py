"""Messages as clients of RocketMQ send them to a broker, encoded for the store that acts as one.

They bring their properties as one text, a born time, a system flag and the host that they come from, and are stored
with these. A message with a delay level is stored for its delivery.

Source: RocketMQ ``broker/processor/SendMessageProcessor.java``, ``broker/util/HookUtils.java``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from commitlog_store.config import MessageStoreConfig
from commitlog_store.engine.put_message import EncodedBatch, EncodedMessage
from commitlog_store.errors import InvalidValue, PutRefused
from commitlog_store.format.checksum import crc32
from commitlog_store.format.message_batch import BatchedMessage
from commitlog_store.format.message_id import parse_host
from commitlog_store.format.properties import (
    DELAY,
    INNER_BASE,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    INNER_NUM,
    MAX_PROPERTIES_SIZE,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRAN_MSG,
    WAIT,
    decode_properties,
    is_waiting,
)
from commitlog_store.format.record import CRC_MASK, HEADER_STRUCTS, HOST_FLAGS, MAGIC_V1, field_offset, own_sys_flag
from commitlog_store.format.single_record import StoredPlace, encode_message
from commitlog_store.format.sys_flag import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG, TRANSACTION_MASK
from commitlog_store.format.timestamps import is_timestamp
from commitlog_store.message import PutMessageStatus

# What this store has no consume queues for.
_REFUSED_PROPERTIES = frozenset({INNER_NUM, INNER_BASE, INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET})
_REFUSED_FLAGS = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
# One of these may have a message wait in another topic.
_DELAYING = frozenset({DELAY, TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC})
# A batch whose messages' properties may have one of these names is encoded one by one.
_SPECIAL = (b"DELAY", b"INNER_", b"TIMER_", b"TRAN_MSG")
_ENTRY_END = b"\x02"
_V4_SIZE = 4
_PLAIN_HEADER = HEADER_STRUCTS[0]
_SHORT = struct.Struct(">H")
_INT = struct.Struct(">i")
# The fields of a header that differ between the records of a batch, but for the body's size at its end.
_HEAD = struct.Struct(">iIiii")
assert _HEAD.size == field_offset("queue_offset")
assert _PLAIN_HEADER.size == field_offset("body_length") + _INT.size


class ProducedMessage(NamedTuple):
    """A message of a client. ``body`` is stored as it is; ``sys_flag`` says whether it is compressed.

    ``born_timestamp`` is in ms; ``born_host`` is an ip of 4 or 16 bytes and a port.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: Mapping[str, str]
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: tuple[bytes, int]
    reconsume_times: int = 0


class ProducedMessages:
    """Encodes messages of clients for one store. Any number of threads."""

    def __init__(
        self, config: MessageStoreConfig, place_of: Callable[[str, int, Mapping[str, str]], StoredPlace]
    ) -> None:
        """``place_of`` is that of ``PutMessageService``."""
        self._place_of = place_of
        self._store_host = parse_host(config.store_host)
        self._largest_body = config.max_message_size
        self._trailing_separator = config.properties_trailing_separator

    def encode(self, message: ProducedMessage) -> EncodedMessage:
        """The record of a message, without its offsets. ``PutRefused``: the status and the reason say why."""
        topic, queue_id, body, properties, flag, sys_flag, born, born_host, reconsume_times = message
        self._refuse(message)
        if not _DELAYING.isdisjoint(properties):
            topic, queue_id, properties = self._delayed(message)
        stored_properties = self._encoded_properties(properties)
        try:
            record = encode_message(
                topic.encode(),
                body,
                stored_properties,
                queue_id=queue_id,
                flag=flag,
                sys_flag=sys_flag,
                born_timestamp=born,
                born_host=born_host,
                store_host=self._store_host,
                reconsume_times=reconsume_times,
            )
        except InvalidValue as error:
            raise _illegal(str(error)) from error
        wait = is_waiting(properties.get(WAIT))
        return EncodedMessage(record, topic, queue_id, own_sys_flag(record), self._store_host, wait)

    def encode_batch(self, batch: ProducedMessage, messages: Sequence[BatchedMessage]) -> EncodedBatch:
        """The records of messages of one queue, which are appended in one piece. ``PutRefused``.

        ``batch`` has what they have in common; its properties are those of each, too. Its body and flag are not used.
        """
        if not messages:
            raise _illegal("A batch has at least one message.")
        self._refuse(batch)
        is_plain = len(batch.born_host[0]) == len(self._store_host[0]) == _V4_SIZE
        if is_plain and _DELAYING.isdisjoint(batch.properties) and not _may_be_special(messages):
            data, sizes = self._plain_records(batch, messages)
        else:
            records = [self._encoded_of(batch, one).record for one in messages]
            data, sizes = bytearray().join(records), tuple(map(len, records))
        wait = is_waiting(batch.properties.get(WAIT))
        flags = own_sys_flag(data)
        return EncodedBatch(data, sizes, batch.topic, batch.queue_id, flags, self._store_host, wait=wait)

    def _encoded_of(self, batch: ProducedMessage, one: BatchedMessage) -> EncodedMessage:
        properties = {**decode_properties(one.properties), **batch.properties}
        encoded = self.encode(batch._replace(body=one.body, flag=one.flag, properties=properties))
        if encoded.topic != batch.topic:
            raise _illegal("A message of the batch is delayed; in a batch none is.")
        return encoded

    def _plain_records(
        self, batch: ProducedMessage, messages: Sequence[BatchedMessage]
    ) -> tuple[bytearray, tuple[int, ...]]:
        """The records of messages without anything unusual, and their sizes: as ``encode`` makes them, in a tenth of
        the time.

        Their properties stay as the client wrote them, those of the batch after them: of equal names the last one
        counts.
        """
        topic, end = batch.topic.encode(), _ENTRY_END if self._trailing_separator else b""
        topic = bytes([len(topic)]) + topic
        shared = self._encoded_properties(batch.properties).removesuffix(_ENTRY_END)
        after, alone = (_ENTRY_END + shared + end, shared + end) if shared else (end, b"")
        same = self._same_of_all(batch)
        pack_head, pack_int, pack_short, queue_id = _HEAD.pack, _INT.pack, _SHORT.pack, batch.queue_id
        fixed_size, largest = _PLAIN_HEADER.size + len(topic) + _SHORT.size, self._largest_body
        parts: list[bytes] = []
        sizes: list[int] = []
        for flag, body, own in messages:
            properties = own.removesuffix(_ENTRY_END)
            properties = properties + after if properties else alone
            body_size, properties_size = len(body), len(properties)
            if body_size > largest:
                self._refuse(batch._replace(body=body))
            if properties_size > MAX_PROPERTIES_SIZE:
                raise _too_large(properties_size)
            size = fixed_size + body_size + properties_size
            sizes.append(size)
            head = pack_head(size, MAGIC_V1, crc32(body) & CRC_MASK, queue_id, flag)
            parts += (head, same, pack_int(body_size), body, topic, pack_short(properties_size), properties)
        return bytearray().join(parts), tuple(sizes)

    def _same_of_all(self, batch: ProducedMessage) -> bytes:
        """The bytes of the headers that all records of a batch have: those from the queue offset to the body's size."""
        offsets, no_store_time, no_prepared = (0, 0), 0, 0
        sys_flag = batch.sys_flag & ~HOST_FLAGS  # plain hosts have 4 bytes, whatever a client says
        fields = (*offsets, sys_flag, batch.born_timestamp, *batch.born_host, no_store_time, *self._store_host)
        header = _PLAIN_HEADER.pack(0, 0, 0, 0, 0, *fields, batch.reconsume_times, no_prepared, 0)
        return header[_HEAD.size : -_INT.size]

    def _refuse(self, message: ProducedMessage) -> None:
        """``PutRefused`` for a message that is not stored."""
        if len(message.body) > self._largest_body:
            raise _illegal(
                f"The body has {len(message.body)} bytes, the limit (maxMessageSize) is {self._largest_body}."
            )
        if not is_timestamp(message.born_timestamp):
            raise _illegal(f"The born time {message.born_timestamp} is none that readers could show.")
        if message.sys_flag & _REFUSED_FLAGS or not _REFUSED_PROPERTIES.isdisjoint(message.properties):
            raise _illegal("The message is a batch of several, or for light queues, which this store does not keep.")
        if message.sys_flag & TRANSACTION_MASK and message.properties.get(TRAN_MSG, "").lower() != "true":
            raise _illegal(f"The system flag {message.sys_flag} is a transaction's, and the message is not one.")

    def _delayed(self, message: ProducedMessage) -> StoredPlace:
        """Topic, queue and properties of a message with a delay: those where it waits.

        A negative level means no delay, as for RocketMQ.
        """
        properties = dict(message.properties)
        if properties.get(DELAY, "").startswith("-"):
            del properties[DELAY]
        try:
            return self._place_of(message.topic, message.queue_id, properties)
        except InvalidValue as error:
            raise _illegal(str(error)) from error

    def _encoded_properties(self, properties: Mapping[str, str]) -> bytes:
        """They were parsed: no name or value has a separator where it would be read in another way."""
        text = "\x02".join([f"{name}\x01{value}" for name, value in properties.items()])
        if text and self._trailing_separator:
            text += "\x02"
        data = text.encode()
        if len(data) > MAX_PROPERTIES_SIZE:
            raise _too_large(len(data))
        return data


def _may_be_special(messages: Sequence[BatchedMessage]) -> bool:
    together = b"".join([one.properties for one in messages])
    return any(name in together for name in _SPECIAL)


def _too_large(size: int) -> PutRefused:
    return PutRefused(
        PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
        f"Properties take {size} bytes; at most {MAX_PROPERTIES_SIZE} fit a record.",
    )


def _illegal(reason: str) -> PutRefused:
    return PutRefused(PutMessageStatus.MESSAGE_ILLEGAL, reason)
