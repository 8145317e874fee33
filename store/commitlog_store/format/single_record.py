"""Encoder of a single put: one message to one record, made for speed.

The record comes without its three late fields, which are zero until ``patch_late`` writes them into it under the put
lock. The layout is that of ``record.py``: offsets are taken from its table.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from operator import index
from typing import NamedTuple, SupportsIndex

from commitlog_store.errors import InvalidValue
from commitlog_store.format import message_id
from commitlog_store.format import sys_flag as sys_flags_of
from commitlog_store.format.checksum import crc32
from commitlog_store.format.message_rules import (
    OWN_PROPERTIES,
    SCHEDULE_TOPIC,
    STORE_PROPERTIES,
    name_fault,
    parse_delay_level,
    shown,
)
from commitlog_store.format.properties import (
    DELAY,
    KEY_SEPARATOR,
    KEYS,
    MAX_PROPERTIES_SIZE,
    REAL_QID,
    REAL_TOPIC,
    SHARDING_KEY,
    TAGS,
    TIMER_DEL_UNIQKEY,
    WAIT,
    decode_properties,
    decode_utf8,
)
from commitlog_store.format.record import (
    CRC_MASK,
    HEADER_DTYPES,
    HEADER_STRUCTS,
    HOST_FLAGS,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_SIZE,
    PROPERTIES_LENGTH_SIZE,
    TOPIC_LENGTH_SIZE,
    Record,
    field_offset,
)
from commitlog_store.format.timer_messages import TIMER_PROPERTIES, given_properties
from commitlog_store.java_numbers import MAX_INT
from commitlog_store.message import Message, MessageExt
from commitlog_store.paths import MAX_QUEUE_ID

# The order in which encode_message gives the values.
assert HEADER_DTYPES[0].names == (
    *("total_size", "magic", "body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag"),
    *("born_timestamp", "born_ip", "born_port", "store_timestamp", "store_ip", "store_port", "reconsume_times"),
    *("prepared_transaction_offset", "body_length"),
)

# The same for a message that has not passed a broker: fields that are zero, the late ones included, are left out.
# The hosts are an ip of 4 bytes and the port.
_PLAIN_HEADER = struct.Struct(">iIiii20xq8s8x8s12xi")
assert _PLAIN_HEADER.size == HEADER_STRUCTS[0].size
assert [field_offset(name) for name in ("born_timestamp", "born_ip", "store_ip", "body_length")] == [40, 48, 64, 84]
# The bytes of such a record beside the body, the properties, and the topic with its length.
_PLAIN_FIXED = _PLAIN_HEADER.size + PROPERTIES_LENGTH_SIZE
# A message keeps its sharding key, delay, time of delivery and born time only when given: a look at each takes longer.
_USUAL_FIELDS = len(Message(topic="", body=b"").__dict__)
_PORT = struct.Struct(">i")
# Properties that have a place of their own, or that the store acts upon or refuses.
_ACTED_UPON = STORE_PROPERTIES.union(OWN_PROPERTIES, TIMER_PROPERTIES, {TIMER_DEL_UNIQKEY, WAIT})

_V4_SIZE = 4
_V6_SIZE = 16
_SHORT_TOPIC = MAX_TOPIC_SIZE[MAGIC_V1]
_LONG_TOPIC = MAX_TOPIC_SIZE[MAGIC_V2]
_TAIL_V1 = TOPIC_LENGTH_SIZE[MAGIC_V1] + PROPERTIES_LENGTH_SIZE
_TAIL_V2 = TOPIC_LENGTH_SIZE[MAGIC_V2] + PROPERTIES_LENGTH_SIZE
# The bytes of a length of the topic or of the properties, by the number.
_BYTE = [bytes([size]) for size in range(_SHORT_TOPIC + 1)]
_SHORT = struct.Struct(">H")

_OFFSETS = struct.Struct(">qq")
_OFFSETS_AT = field_offset("queue_offset")
assert field_offset("physical_offset") == _OFFSETS_AT + 8
_TIMESTAMP = struct.Struct(">q")
_TIMESTAMP_AT = {flags: field_offset("store_timestamp", flags) for flags in HEADER_DTYPES}


def encode_message(
    topic: bytes,
    body: bytes,
    properties: bytes,
    *,
    queue_id: int,
    flag: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: tuple[bytes, int],
    store_host: tuple[bytes, int],
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
) -> bytearray:
    """The record of a message, its queue offset, physical offset and store time zero.

    ``body`` and ``properties`` are the bytes to be stored; the born time is in ms; hosts are an ip of 4 or 16 bytes and
    a port, and decide the system flag's IPv6 bits. ``InvalidValue`` for an impossible length, a number outside its
    field, and a buffer of other items than bytes.
    """
    (born_ip, born_port), (store_ip, store_port) = born_host, store_host
    sys_flag = sys_flag & ~HOST_FLAGS | host_flags(born_ip, store_ip)
    header = HEADER_STRUCTS[sys_flag & HOST_FLAGS]
    topic_size, body_size, properties_size = len(topic), len(body), len(properties)
    if not 0 < topic_size <= _LONG_TOPIC or properties_size > MAX_PROPERTIES_SIZE:
        raise _impossible_lengths(topic_size, properties_size)
    magic, tail = (MAGIC_V1, _TAIL_V1) if topic_size <= _SHORT_TOPIC else (MAGIC_V2, _TAIL_V2)
    size = header.size + body_size + topic_size + properties_size + tail
    try:
        head = header.pack(
            size,
            magic,
            crc32(body) & CRC_MASK,
            queue_id,
            flag,
            0,
            0,
            sys_flag,
            born_timestamp,
            born_ip,
            born_port,
            0,
            store_ip,
            store_port,
            reconsume_times,
            prepared_transaction_offset,
            body_size,
        )
    except struct.error as error:
        raise InvalidValue(f"A number of the message does not fit its field: {error}.") from error
    topic_length = _BYTE[topic_size] if magic == MAGIC_V1 else _SHORT.pack(topic_size)
    record = bytearray().join((head, body, topic_length, topic, _SHORT.pack(properties_size), properties))
    # A reader would look for the next record in the wrong place and find none.
    if len(record) != size:
        raise InvalidValue(f"The record's fields take {len(record)} bytes and count as {size}: give bytes, not a view.")
    return record


def _impossible_lengths(topic_size: int, properties_size: int) -> InvalidValue:
    return InvalidValue(
        f"A topic has 1 to {_LONG_TOPIC} bytes and properties have up to {MAX_PROPERTIES_SIZE}: "
        f"not {topic_size} and {properties_size}."
    )


def host_flags(born_ip: bytes, store_ip: bytes) -> int:
    """The system flag's IPv6 bits for these ips. ``InvalidValue`` unless they have 4 bytes or 16."""
    if len(born_ip) == 4 == len(store_ip):
        return 0
    flags = 0
    for ip, flag in ((born_ip, sys_flags_of.BORNHOST_V6_FLAG), (store_ip, sys_flags_of.STOREHOSTADDRESS_V6_FLAG)):
        if len(ip) == _V6_SIZE:
            flags |= flag
        elif len(ip) != 4:
            raise InvalidValue(f"A host's ip has 4 bytes or 16, not {len(ip)}.")
    return flags


def patch_late(
    record: bytearray | memoryview,
    sys_flag: int,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
    start: int = 0,
) -> None:
    """Write the three late fields into the record at ``start`` with this system flag; the time is in milliseconds."""
    _OFFSETS.pack_into(record, start + _OFFSETS_AT, queue_offset, physical_offset)
    _TIMESTAMP.pack_into(record, start + _TIMESTAMP_AT[sys_flag & HOST_FLAGS], store_timestamp)


class PlainRecords:
    """Encodes messages without anything unusual in one step, for a store with this host.

    The bytes are those that ``encode_message`` makes of ``message_properties``, which take several times as long. Only
    the kind of the message is checked here.
    """

    def __init__(self, store_host: tuple[bytes, int], *, largest_body: int, trailing_separator: bool) -> None:
        ip, port = store_host
        self._host = ip + _PORT.pack(port) if len(ip) == _V4_SIZE else b""
        self._largest_body = largest_body
        self._trailing_separator = trailing_separator
        # The names that were checked, each as the bytes of its length and its text.
        self._topics: dict[str, bytes] = {}

    def learn_topic(self, topic: str) -> None:
        """Have messages of this topic encoded here; its name was checked."""
        name = topic.encode()
        if self._host and len(name) <= _SHORT_TOPIC:
            self._topics[topic] = _BYTE[len(name)] + name

    def properties(self, message: Message) -> bytes | None:
        """The properties to store of a message that ``encode`` takes.

        None for a message that ``encode_message`` has to encode or refuse; ``TypeError`` and ``ValueError`` mean the
        same.
        """
        body, queue_id, flag = message.body, message.queue_id, message.flag
        given, keys, tags = message.properties, message.keys, message.tags
        if (
            message.topic not in self._topics
            or type(body) is not bytes
            or len(body) > self._largest_body
            or type(flag) is not int
            or not -MAX_INT <= flag <= MAX_INT
            or (queue_id is not None and (type(queue_id) is not int or not 0 <= queue_id <= MAX_QUEUE_ID))
            or len(message.__dict__) != _USUAL_FIELDS
            or type(given) is not dict
            or (type(keys) is not list and type(keys) is not tuple)
            or (type(tags) is not str and tags is not None)
        ):
            return None
        text, entries = "", len(given)
        if given:
            if not _ACTED_UPON.isdisjoint(given):
                return None
            for name, value in given.items():
                if not (type(name) is type(value) is str and name and value):
                    return None
                text += f"{name}\x01{value}\x02"
        if keys:
            joined = KEY_SEPARATOR.join(keys)
            if "" in keys or joined.count(KEY_SEPARATOR) != len(keys) - 1:
                return None
            text += f"{KEYS}\x01{joined}\x02"
            entries += 1
        if tags:
            text += f"{TAGS}\x01{tags}\x02"
            entries += 1
        # A separator within a name or a value shows as one too many.
        if text.count("\x01") != entries or text.count("\x02") != entries:
            return None
        data = text.encode() if self._trailing_separator else text[:-1].encode()
        return data if len(data) <= MAX_PROPERTIES_SIZE else None

    def encode(self, message: Message, properties: bytes, queue_id: int, born_timestamp: int) -> bytearray:
        """The record of a message with these ``properties``, for this queue; its three late fields are zero."""
        body, topic, host, size = message.body, self._topics[message.topic], self._host, len(properties)
        header = _PLAIN_HEADER.pack(
            _PLAIN_FIXED + len(body) + len(topic) + size,
            MAGIC_V1,
            crc32(body) & CRC_MASK,
            queue_id,
            message.flag,
            born_timestamp,
            host,
            host,
            len(body),
        )
        return bytearray().join((header, body, topic, _SHORT.pack(size), properties))


def plain_message(message: Message) -> Message:
    """The message with its body as ``bytes`` and its queue id as ``int`` or None. ``InvalidValue`` for other types.

    The body may be any buffer; its bytes are copied, so that they cannot change once they are checksummed.
    """
    body, queue_id = message.body, message.queue_id
    if type(body) is bytes and (queue_id is None or type(queue_id) is int):
        return message
    if type(body) is not bytes:
        try:
            body = memoryview(body).tobytes()
        except (TypeError, ValueError, BufferError) as error:
            raise InvalidValue(f"The field body is bytes or another buffer, not {shown(body)}.") from error
    if queue_id is None:
        return replace(message, body=body)
    if isinstance(queue_id, bool) or not isinstance(queue_id, SupportsIndex):
        raise InvalidValue(f"The field queue_id is an int, not {shown(queue_id)}.")
    return replace(message, body=body, queue_id=index(queue_id))


def message_properties(message: Message) -> dict[str, str]:
    """The properties to store, in their order (``message_rules``): the others, then KEYS, __SHARDINGKEY, TAGS, DELAY.

    Fields of the message win over properties of the same meaning. ``InvalidValue`` for a property that only the store
    gives, for one without name or value, and for a key that holds a space. ``encode_properties`` has the size's limit.
    """
    given = message.properties if message.deliver_at is None else given_properties(message)
    found: dict[str, str] = {}
    own: dict[str, str] = {}
    for name, value in given.items():
        fault = name_fault(name)
        if fault is None and not value:
            fault = f"the property {name!r} without a value: leave it out"
        if fault is not None:
            raise InvalidValue(f"The message has {fault}.")
        (own if name in OWN_PROPERTIES else found)[name] = value
    keys = message.keys if type(message.keys) is tuple else tuple(message.keys)
    if keys:
        for key in keys:
            if KEY_SEPARATOR in key:
                raise InvalidValue(f"The key {key!r} holds a space, which separates keys.")
        if joined := KEY_SEPARATOR.join(filter(None, keys)):
            own[KEYS] = joined
    tags = message.tags
    if tags:
        own[TAGS] = tags
    elif tags is not None and tags != "":
        raise InvalidValue(f"The field tags is a text or None, not {shown(tags)}.")
    sharding_key, level = message.sharding_key, message.delay_level
    if sharding_key:
        own[SHARDING_KEY] = sharding_key
    elif sharding_key is not None and sharding_key != "":
        raise InvalidValue(f"The field sharding_key is a text or None, not {shown(sharding_key)}.")
    if isinstance(level, bool):
        raise InvalidValue(f"The field delay_level is an int, not {shown(level)}.")
    if level is not None:
        own[DELAY] = str(index(level))
    for name in OWN_PROPERTIES:
        if name in own:
            found[name] = own[name]
    return found


class StoredPlace(NamedTuple):
    """The topic and queue that a message is stored in, and its properties with these."""

    topic: str
    queue_id: int
    properties: Mapping[str, str]


def stored_place(topic: str, queue_id: int, properties: Mapping[str, str], max_delay_level: int) -> StoredPlace:
    """The place of a message with these properties: its own topic and queue, or those of its delay level.

    A level of 0 means no delay, and is not stored. ``InvalidValue`` for a DELAY that is not a level.
    """
    text = properties.get(DELAY)
    if text is None:
        return StoredPlace(topic, queue_id, properties)
    level = parse_delay_level(text)
    if level is None:
        raise InvalidValue(f"The property {DELAY} is a level from 0 on, not {text!r}.")
    others = {name: value for name, value in properties.items() if name != DELAY}
    if level == 0:
        return StoredPlace(topic, queue_id, others)
    level = min(level, max_delay_level)
    waiting = {**others, DELAY: str(level), REAL_TOPIC: topic, REAL_QID: str(queue_id)}
    return StoredPlace(SCHEDULE_TOPIC, level - 1, waiting)


def message_of(record: Record, body: bytes) -> MessageExt:
    """The record's fields under the names of ``MessageExt``; ``body`` is the record's, unpacked."""
    properties = decode_properties(record.properties)
    return MessageExt(
        topic=decode_utf8(record.topic),
        body=body,
        tags=properties.get(TAGS),
        keys=tuple(key for key in properties.get(KEYS, "").split(KEY_SEPARATOR) if key),
        queue_id=record.queue_id,
        flag=record.flag,
        properties=properties,
        sharding_key=properties.get(SHARDING_KEY),
        delay_level=parse_delay_level(properties[DELAY]) if DELAY in properties else None,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        store_size=record.total_size,
        sys_flag=record.sys_flag,
        body_crc=record.body_crc,
        born_timestamp=record.born_timestamp,
        born_host=message_id.format_host(record.born_ip, record.born_port),
        store_timestamp=record.store_timestamp,
        store_host=message_id.format_host(record.store_ip, record.store_port),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        message_id=message_id.encode_message_id(record.store_ip, record.store_port, record.physical_offset),
    )
