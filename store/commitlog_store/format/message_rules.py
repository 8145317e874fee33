"""Rules for messages of applications: limits, reserved property names, type checks and the texts of refusals.

==================================  ====================================================================================
property                            given by
==================================  ====================================================================================
KEYS, __SHARDINGKEY, TAGS, DELAY    the application, as a column or field of its own, or by that name among the others
REAL_TOPIC, REAL_QID                the store, for a message that waits in ``SCHEDULE_TOPIC_XXXX``
TRAN_MSG, PGROUP, INNER_*,          the store or the broker; a message that brought them along would be taken for half a
__CRC32#                            transaction, for a batch, or for damaged
TIMER_DELIVER_MS, TIMER_DELAY_MS,   the application: a delivery at any time (``timer_messages``). Beside DELAY, or
TIMER_DELAY_SEC                     TIMER_OUT_MS, which the timer adds, they ask for nothing
TIMER_DEL_UNIQKEY                   refused: it asks a broker's timer to drop another message
all others, UNIQ_KEY among them     the application or its client
==================================  ====================================================================================

In the record stand the application's others first, in the order given, then KEYS, __SHARDINGKEY, TAGS, DELAY,
REAL_TOPIC and REAL_QID. (In RocketMQ the order is that of a Java hash map.)

Source: RocketMQ ``common/message/MessageConst.java``, ``broker/util/HookUtils.java`` (``checkBeforePutMessage``,
``checkInnerBatch``, ``transformDelayLevelMessage``), ``store/MessageExtEncoder.java``,
``broker/processor/AbstractSendMessageProcessor.java`` (``msgCheck``).
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import index

from commitlog_store.config import LARGEST_BODY, MessageStoreConfig
from commitlog_store.delay_level import parse_delay_levels
from commitlog_store.errors import InvalidValue, PutRefused
from commitlog_store.format.properties import (
    CRC32,
    DELAY,
    INNER_BASE,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    INNER_NUM,
    KEYS,
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    RETRY_TOPIC,
    SHARDING_KEY,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TRAN_MSG,
)
from commitlog_store.format.timer_messages import TIMER_TOPIC, deliver_at_fault
from commitlog_store.format.timestamps import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from commitlog_store.java_numbers import MAX_INT, MAX_LONG, integer
from commitlog_store.message import Message, MessageExtBrokerInner
from commitlog_store.paths import MAX_QUEUE_ID, POSITIONS_TOPIC, validate_topic
from commitlog_store.put_status import PutMessageStatus

# Topic of the messages that wait for their delay to pass; a level has the queue before its own number.
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

# Messages of these topics come from the broker, which acts on them: those of ``isNotAllowedSendTopic`` in RocketMQ's
# ``common/topic/TopicValidator.java``, and the timer's, which retries a message without TIMER_OUT_MS without end.
# Producers may send to the other system topics, and so here. The last one is this store's own.
NO_PRODUCERS_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        TIMER_TOPIC,
        POSITIONS_TOPIC,
    }
)
# And those of this prefix and a cluster's name: the notes of what consumers have popped.
_POP_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"

# Properties that have a column or field of their own, in the order in which they are stored, after all others.
OWN_PROPERTIES = (KEYS, SHARDING_KEY, TAGS, DELAY)

# Properties that only the store or the broker may give.
STORE_PROPERTIES = frozenset(
    {REAL_TOPIC, REAL_QID, TRAN_MSG, PGROUP, INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, INNER_NUM, INNER_BASE}
    | {CRC32}
)

# The numbers of a message, and the range of each; then those of a broker's message.
_NUMBERS = {
    "queue_id": (0, MAX_QUEUE_ID),
    "flag": (-MAX_INT - 1, MAX_INT),
    "delay_level": (0, MAX_INT),
    "born_timestamp": (MIN_TIMESTAMP_MS, MAX_TIMESTAMP_MS),
}
# Those that may be None.
_OPTIONAL_NUMBERS = frozenset({"queue_id", "delay_level", "born_timestamp"})
_BROKER_NUMBERS = _NUMBERS | {
    "sys_flag": (-MAX_INT - 1, MAX_INT),
    "reconsume_times": (-MAX_INT - 1, MAX_INT),
    "prepared_transaction_offset": (-MAX_LONG - 1, MAX_LONG),
}


@dataclass(frozen=True, kw_only=True)
class MessageLimits:
    """``max_message_size``: bytes of the largest body; ``message_delay_level``: the delays of the levels;
    ``max_queue_id``: the highest queue that a message may name; ``timer_max_delay_sec``: the longest wait of a timer
    message.
    """

    max_message_size: int = 4 << 20
    message_delay_level: str = MessageStoreConfig.message_delay_level
    max_queue_id: int = MAX_QUEUE_ID
    timer_max_delay_sec: int = MessageStoreConfig.timer_max_delay_sec

    def __post_init__(self) -> None:
        if not 0 < self.max_message_size <= LARGEST_BODY:
            raise InvalidValue(f"max_message_size is 1 to {LARGEST_BODY}, not {self.max_message_size}.")
        parse_delay_levels(self.message_delay_level)


def no_producers_fault(topic: str) -> str | None:
    """Why producers may not send to this topic; None when they may."""
    if topic not in NO_PRODUCERS_TOPICS and not topic.startswith(_POP_TOPIC_PREFIX):
        return None
    hint = "give another topic"
    if topic == SCHEDULE_TOPIC:
        hint = "give the topic that the message is for, and a delayLevel"
    return f"RocketMQ writes {topic} itself and takes it from no producer: {hint}"


def name_fault(name: str) -> str | None:
    """Why an application may not give a property of this name, as the end of a sentence; None when it may."""
    if not name:
        return "a property without a name"
    if "\x01" in name or "\x02" in name:
        return f"a property named {name!r}, with a character that separates properties"
    if name in STORE_PROPERTIES:
        return f"the property {name!r}, which only the store gives: leave it out"
    if name == TIMER_DEL_UNIQKEY:
        return f"the property {name!r}: a message that waits cannot be cancelled, leave it out"
    return None


def parse_delay_level(text: str) -> int | None:
    """The level of a DELAY property, as Java reads an int; None for all but a number from 0 to 2**31 - 1."""
    digits = text.removeprefix("+")
    if not (digits.isascii() and digits.isdigit()):
        return None
    level = int(digits) if len(digits) <= 64 else MAX_INT + 1
    return level if level <= MAX_INT else None


def shown(value: object) -> str:
    """A value and its type, for people; cut short where it is long."""
    return f"{' '.join(reprlib.repr(value).split())} ({type(value).__name__})"


def type_fault(message: object) -> str | None:
    """Which field of a message has a wrong type, as a sentence; None where all types are right.

    Called when encoding has failed, so that messages that are right pay nothing for it.
    """
    if not isinstance(message, Message):
        return f"A message is a Message, not {shown(message)}."
    texts = {"topic": False, "tags": True, "sharding_key": True}
    if isinstance(message, MessageExtBrokerInner):
        texts |= {"born_host": True, "store_host": True}
    for name, may_lack in texts.items():
        text = getattr(message, name)
        if not (isinstance(text, str) or (may_lack and text is None)):
            return f"The field {name} is a text{' or None' if may_lack else ''}, not {shown(text)}."
    for name in _numbers_of(message):
        number = getattr(message, name)
        if number is None and name in _OPTIONAL_NUMBERS:
            continue
        may_be_bool = name not in _OPTIONAL_NUMBERS and isinstance(number, bool)
        if integer(number) is None and not may_be_bool:
            return f"The field {name} is an int, not {shown(number)}."
    faults = deliver_at_fault(message.deliver_at), _body_fault(message.body), _keys_fault(message.keys)
    return next(filter(None, faults), None) or _properties_fault(message.properties)


def number_fault(message: Message) -> str | None:
    """Which number of a message without a ``type_fault`` does not fit its field, as a sentence; None where all fit."""
    for name, (low, high) in _numbers_of(message).items():
        number = getattr(message, name)
        if number is not None and not low <= index(number) <= high:
            return f"The field {name} is an int from {low} to {high}, not {number}."
    return None


def refusal_of(message: Message, error: Exception) -> InvalidValue | PutRefused:
    """The error of a message that could not be encoded: a mistake of the program, or a message that no store takes."""
    fault = type_fault(message)
    if fault is not None:
        return InvalidValue(fault)
    reason = str(error) if isinstance(error, InvalidValue) else f"The message cannot be encoded: {error!r}."
    return PutRefused(PutMessageStatus.MESSAGE_ILLEGAL, number_fault(message) or reason)


def _numbers_of(message: Message) -> dict[str, tuple[int, int]]:
    return _BROKER_NUMBERS if isinstance(message, MessageExtBrokerInner) else _NUMBERS


def _body_fault(body: object) -> str | None:
    try:
        memoryview(body).release()  # type: ignore[arg-type]
    except TypeError:
        return f"The field body is bytes or another buffer, not {shown(body)}."
    return None


def _keys_fault(keys: object) -> str | None:
    if isinstance(keys, str):
        return f"The field keys is a list of texts, not the text {keys!r}."
    if not isinstance(keys, Iterable) or isinstance(keys, bytes | bytearray):
        return f"The field keys is a list of texts, not {shown(keys)}."
    for key in keys:
        if not isinstance(key, str):
            return f"The field keys is a list of texts: {shown(key)} is not one."
    return None


def _properties_fault(properties: object) -> str | None:
    if not isinstance(properties, Mapping):
        return f"The field properties is a mapping of texts to texts, not {shown(properties)}."
    for name, value in properties.items():
        if not isinstance(name, str):
            return f"The names in the field properties are texts, not {shown(name)}."
        if not isinstance(value, str):
            return f"The values in the field properties are texts; that of {name!r} is {shown(value)}."
    return None


def check_queue_place(topic: object, queue_id: object, offset: object) -> None:
    """``InvalidValue`` for arguments that cannot be a place in a queue, whether or not that queue exists."""
    if not isinstance(topic, str):
        raise InvalidValue(f"The field topic is a text, not {topic!r}.")
    validate_topic(topic)
    for name, number, most in (("queue_id", queue_id, MAX_QUEUE_ID), ("offset", offset, MAX_LONG)):
        given = integer(number)
        if given is None or not 0 <= given <= most:
            raise InvalidValue(f"The field {name} is an int from 0 to {most}, not {number!r}.")


def topic_before_retries(properties: Mapping[str, str], topic: str, queue_offset: int) -> str:
    """The topic that a dead letter of ``topic`` was sent to first. ``InvalidValue`` if it does not name it."""
    if RETRY_TOPIC not in properties:
        raise InvalidValue(
            f"The dead letter at offset {queue_offset} of {topic!r} has no property {RETRY_TOPIC}, so its original "
            "topic is not known: redrive it to the group's retry topic."
        )
    return properties[RETRY_TOPIC]
