r"""Half messages and op messages: topics, properties, and the body of an op message.

A half message is an ordinary message of the half topic, with these properties beside its own::

    TRAN_MSG=true  PGROUP=<producer group>  REAL_TOPIC=<topic>  REAL_QID=<queue id>
    UNIQ_KEY=<key>  __transactionId__=<key>                 from the client, and the same again from the broker
    TRANSACTION_CHECK_TIMES=<n>                             in a copy that a check has put back
    TRAN_PREPARED_QUEUE_OFFSET=<queue offset>               in a copy that was put back because of its own immunity
    CHECK_IMMUNITY_TIME_IN_SECONDS=<n>                      the message's own time without checks

An op message says that half messages have ended, however they did: its tag is ``d``, and its body is their offsets in
the half queue, in decimal digits: ``17`` (4.x), ``17,18,19,`` (5.x). A commit also puts the message itself into its
real topic: type commit in the system flag, and the half message's physical offset in PREPAREDTRANSACTIONOFFSET.

Source: RocketMQ ``broker/transaction/queue/TransactionalMessageUtil.java``, ``TransactionalMessageServiceImpl.java``,
``TransactionalMessageBridge.java``, ``broker/processor/EndTransactionProcessor.java``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from commitlog_store.errors import InvalidValue
from commitlog_store.format.properties import (
    DELAY,
    KEY_SEPARATOR,
    KEYS,
    MAX_PROPERTIES_SIZE,
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TRAN_MSG,
    UNIQ_KEY,
    PropertiesTooLarge,
    decode_properties,
    encode_properties,
)
from commitlog_store.format.record import Record
from commitlog_store.format.single_record import encode_message, message_properties
from commitlog_store.format.sys_flag import TRANSACTION_COMMIT_TYPE, TRANSACTION_MASK
from commitlog_store.format.timer_messages import asks_for_timer, given_properties
from commitlog_store.java_numbers import MAX_INT
from commitlog_store.message import Message, MessageExtBrokerInner
from commitlog_store.paths import MAX_QUEUE_ID, refuse_batch_topic, validate_topic

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
# Where half messages end that no producer has answered for.
CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
# Brokers put all half messages into this queue, and their op messages into that of the same number.
HALF_QUEUE_ID = 0
# The group whose positions in both topics say how far all half messages have ended.
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"

TRANSACTION_ID = "__transactionId__"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"

_REMOVE_TAG = "d"
_OFFSETS_SEPARATOR = b","
# As Java's parseInt and parseLong read them.
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_NO_NUMBER = -1
_ENTRY_END = b"\x02"


def half_message(message: Message, queue_id: int, producer_group: str, unique_key: str) -> MessageExtBrokerInner:
    """The half message of a message for that queue, as a broker puts it.

    ``unique_key`` is used where the message has none.

    Only a broker's message keeps times, hosts and system flag of its own, without the type of its transaction.
    ``InvalidValue`` for a delayed message, and as for the message itself.
    """
    if isinstance(message, MessageExtBrokerInner):
        properties = dict(given_properties(message))
        if message.keys:
            properties[KEYS] = KEY_SEPARATOR.join(message.keys)
        if message.tags:
            properties[TAGS] = message.tags
        inner = replace(message, sys_flag=message.sys_flag & ~TRANSACTION_MASK)
    else:
        properties = message_properties(message)
        inner = MessageExtBrokerInner(
            topic=message.topic,
            body=message.body,
            queue_id=queue_id,
            flag=message.flag,
            born_timestamp=message.born_timestamp,
        )
    if properties.pop(DELAY, "0") != "0":
        raise InvalidValue("A half message cannot be delayed (RocketMQ's producers drop the level): leave DELAY out.")
    if asks_for_timer(properties):
        raise InvalidValue("A half message cannot be delayed: leave its time of delivery out.")
    key = properties.setdefault(UNIQ_KEY, unique_key)
    properties |= {
        TRAN_MSG: "true",
        PGROUP: producer_group,
        TRANSACTION_ID: key,
        REAL_TOPIC: message.topic,
        REAL_QID: str(queue_id),
    }
    return replace(inner, topic=HALF_TOPIC, queue_id=HALF_QUEUE_ID, tags=None, keys=(), properties=properties)


def real_place(properties: Mapping[str, str]) -> tuple[str, int]:
    """The topic and queue that a half message is meant for. ``InvalidValue`` if it names none that can exist."""
    topic, queue_id = properties.get(REAL_TOPIC, ""), _number(properties.get(REAL_QID))
    validate_topic(topic)
    refuse_batch_topic(topic)
    if not 0 <= queue_id <= MAX_QUEUE_ID:
        raise InvalidValue(f"The half message's REAL_QID is 0 to {MAX_QUEUE_ID}, not {properties.get(REAL_QID)!r}.")
    return topic, queue_id


def check_times(properties: Mapping[str, str]) -> int:
    """How often a check has put the message back; 0 for one that was not put back yet, -1 for an illegible number."""
    text = properties.get(TRANSACTION_CHECK_TIMES)
    number = 0 if text is None else _number(text)
    return number if abs(number) <= MAX_INT else _NO_NUMBER


def prepared_queue_offset(properties: Mapping[str, str]) -> int:
    """The queue offset of the half message that this one was copied from, because of its immunity; -1 for none."""
    return _number(properties.get(TRAN_PREPARED_QUEUE_OFFSET))


def immunity_ms(properties: Mapping[str, str], transaction_time_out: int) -> int:
    """Milliseconds after its birth in which a half message is not checked: its own, or the setting."""
    seconds = _number(properties.get(CHECK_IMMUNITY_TIME_IN_SECONDS))
    return transaction_time_out if seconds == _NO_NUMBER else seconds * 1000


def named_offsets(tags: str | None, body: bytes) -> list[int]:
    """The offsets of the half queue that an op message names; none for another message of its topic."""
    if tags != _REMOVE_TAG:
        return []
    return [int(part) for part in body.split(_OFFSETS_SEPARATOR) if part.isdigit() and len(part) <= 19]


def _number(text: str | None) -> int:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else _NO_NUMBER


def op_record(queue_offset: int, host: tuple[bytes, int], now_ms: int, *, trailing_separator: bool) -> bytearray:
    """The op message that ends one half message, its late fields zero."""
    return encode_message(
        OP_TOPIC.encode(),
        str(queue_offset).encode(),
        encode_properties({TAGS: _REMOVE_TAG}, trailing_separator),
        queue_id=HALF_QUEUE_ID,
        flag=0,
        sys_flag=0,
        born_timestamp=now_ms,
        born_host=host,
        store_host=host,
    )


def commit_record(half: Record) -> bytearray:
    """The message that a half message stands for, its late fields zero. ``InvalidValue`` as ``real_place``.

    Its properties are the half message's, byte for byte, as a broker leaves them.
    """
    topic, queue_id = real_place(decode_properties(half.properties))
    return _copy(
        half,
        topic,
        queue_id,
        half.properties,
        sys_flag=half.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT_TYPE,
        prepared_transaction_offset=half.physical_offset,
    )


def renewed_record(half: Record, topic: str, changed: Mapping[str, str]) -> bytearray:
    """A copy of a half message with changed properties, its late fields zero; for the half topic, or given up."""
    properties = _with_properties(half.properties, changed) if changed else half.properties
    return _copy(half, topic, HALF_QUEUE_ID, properties, sys_flag=half.sys_flag, prepared_transaction_offset=0)


def _copy(
    half: Record, topic: str, queue_id: int, properties: bytes, *, sys_flag: int, prepared_transaction_offset: int
) -> bytearray:
    return encode_message(
        topic.encode(),
        bytes(half.body),
        properties,
        queue_id=queue_id,
        flag=half.flag,
        sys_flag=sys_flag,
        born_timestamp=half.born_timestamp,
        born_host=(half.born_ip, half.born_port),
        store_host=(half.store_ip, half.store_port),
        reconsume_times=half.reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
    )


def _with_properties(data: bytes, changed: Mapping[str, str]) -> bytes:
    """The bytes of properties with others in their place or added; what cannot be decoded stays as it is."""
    names = tuple(f"{name}\x01".encode() for name in changed)
    ended = data.endswith(_ENTRY_END)
    kept = [entry for entry in data.split(_ENTRY_END) if entry and not entry.startswith(names)]
    kept += [f"{name}\x01{value}".encode() for name, value in changed.items()]
    joined = _ENTRY_END.join(kept) + (_ENTRY_END if ended else b"")
    if len(joined) > MAX_PROPERTIES_SIZE:
        raise PropertiesTooLarge(f"Properties take {len(joined)} bytes; at most {MAX_PROPERTIES_SIZE} fit a record.")
    return joined
