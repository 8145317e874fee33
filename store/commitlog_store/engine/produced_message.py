"""Messages as clients of RocketMQ send them to a broker, encoded for the store that acts as one.

They bring their properties as one text, a born time, a system flag and the host that they come from, and are stored
with these. A message with a delay level is stored for its delivery.

Source: RocketMQ ``broker/processor/SendMessageProcessor.java``, ``broker/util/HookUtils.java``.
"""

from __future__ import annotations

import re
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
from commitlog_store.format.record import CRC_MASK, HEADER_STRUCTS, MAGIC_V1, own_sys_flag
from commitlog_store.format.single_record import StoredPlace, encode_message
from commitlog_store.format.sys_flag import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG, TRANSACTION_MASK
from commitlog_store.format.timestamps import is_timestamp
from commitlog_store.message import PutMessageStatus

# What this store has no consume queues for.
_REFUSED_PROPERTIES = frozenset({INNER_NUM, INNER_BASE, INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET})
_REFUSED_FLAGS = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
# One of these may have a message wait in another topic.
_DELAYING = frozenset({DELAY, TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC})
# In a batch, messages whose properties may have one of these names are looked at one by one.
_SPECIAL = re.compile(b"DELAY|INNER_|TIMER_|TRAN_MSG")
_ENTRY_END = b"\x02"
_V4_SIZE = 4
_PLAIN_HEADER = HEADER_STRUCTS[0]
_SHORT = struct.Struct(">H")


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
        shared = self._encoded_properties(batch.properties).removesuffix(_ENTRY_END)
        is_plain = len(batch.born_host[0]) == len(self._store_host[0]) == _V4_SIZE
        is_plain &= _DELAYING.isdisjoint(batch.properties)
        encode = self._plain_encoder(batch, shared)
        records: list[bytes | bytearray] = []
        for one in messages:
            if is_plain and len(one.body) <= self._largest_body and not _SPECIAL.search(one.properties):
                records.append(encode(one))
                continue
            properties = {**decode_properties(one.properties), **batch.properties}
            encoded = self.encode(batch._replace(body=one.body, flag=one.flag, properties=properties))
            if encoded.topic != batch.topic:
                raise _illegal("A message of the batch is delayed; in a batch none is.")
            records.append(encoded.record)
        wait = is_waiting(batch.properties.get(WAIT))
        flags = own_sys_flag(records[0])
        return EncodedBatch(records, batch.topic, batch.queue_id, flags, self._store_host, wait=wait)

    def _plain_encoder(self, batch: ProducedMessage, shared: bytes) -> Callable[[BatchedMessage], bytes]:
        """Makes the record of a message without anything unusual: as ``encode`` makes it, in a fifth of the time.

        Its properties stay as its client wrote them, those of the batch after them: of equal names the last one counts.
        """
        topic = batch.topic.encode()
        sized_topic = bytes([len(topic)]) + topic
        fixed_size = _PLAIN_HEADER.size + len(sized_topic) + _SHORT.size
        end = _ENTRY_END if self._trailing_separator else b""
        pack_header, pack_size, queue_id = _PLAIN_HEADER.pack, _SHORT.pack, batch.queue_id
        after_flag = (0, 0, batch.sys_flag, batch.born_timestamp, *batch.born_host, 0, *self._store_host)
        after_host = batch.reconsume_times, 0

        def encode(one: BatchedMessage) -> bytes:
            flag, body, properties = one
            properties = properties.removesuffix(_ENTRY_END)
            if shared:
                properties = properties + _ENTRY_END + shared if properties else shared
            if properties:
                properties += end
            body_size, size = len(body), len(properties)
            if size > MAX_PROPERTIES_SIZE:
                raise _too_large(size)
            header = pack_header(
                fixed_size + body_size + size,
                *(MAGIC_V1, crc32(body) & CRC_MASK, queue_id, flag, *after_flag, *after_host, body_size),
            )
            return b"".join((header, body, sized_topic, pack_size(size), properties))

        return encode

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


def _too_large(size: int) -> PutRefused:
    return PutRefused(
        PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
        f"Properties take {size} bytes; at most {MAX_PROPERTIES_SIZE} fit a record.",
    )


def _illegal(reason: str) -> PutRefused:
    return PutRefused(PutMessageStatus.MESSAGE_ILLEGAL, reason)
