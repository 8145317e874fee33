"""Messages that are consumed again: the copy for the group's retry topic, or for its dead letters.

``%RETRY%<group>`` has the messages that a consumer of the group gave back; they come after a delay that grows with
each time. After ``retryMaxTimes`` of them a message goes to ``%DLQ%<group>``, which no consumer of the group reads.

Source: RocketMQ ``broker/processor/AbstractSendMessageProcessor.java`` (``consumerSendMsgBack``).
"""

from __future__ import annotations

from commitlog_store.engine.put_message import PutMessageResult
from commitlog_store.engine.store_engine import StoreEngine
from commitlog_store.format.properties import (
    CRC32,
    DELAY,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    KEYS,
    ORIGIN_MESSAGE_ID,
    REAL_QID,
    REAL_TOPIC,
    RETRY_TOPIC,
    TAGS,
    WAIT,
)
from commitlog_store.format.sys_flag import COMPRESSED_FLAG, COMPRESSION_TYPE_MASK
from commitlog_store.format.timestamps import is_timestamp
from commitlog_store.groups.group_settings import SubscriptionGroupConfig
from commitlog_store.message import MessageExt, MessageExtBrokerInner
from commitlog_store.paths import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX

# Tags and keys have fields of their own; delivery of a delayed message leaves the next three; the rest is about the
# stored record.
_NOT_COPIED = frozenset(
    {TAGS, KEYS, DELAY, REAL_TOPIC, REAL_QID, INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, CRC32, WAIT}
)
# What a message that is redriven loses: how often it was consumed counts from 0 again, and it waits for nothing.
DEAD_LETTER_ONLY = _NOT_COPIED - {TAGS, KEYS} | {"RECONSUME_TIME"}
# The delay level of the first time; each further time has the next one.
_FIRST_DELAY_LEVEL = 3


def retry_topic(group: str) -> str:
    """The topic of messages that the group consumes again."""
    return RETRY_TOPIC_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """The topic of messages that the group has given up."""
    return DLQ_TOPIC_PREFIX + group


def copy_for_retry(message: MessageExt, settings: SubscriptionGroupConfig, delay_level: int) -> MessageExtBrokerInner:
    """The copy to put. ``delay_level`` 0 is RocketMQ's rule, a negative one makes a dead letter at once."""
    properties = {name: value for name, value in message.properties.items() if name not in _NOT_COPIED}
    properties.setdefault(RETRY_TOPIC, message.topic)
    properties.setdefault(ORIGIN_MESSAGE_ID, message.message_id)
    group = settings.group_name
    is_dead = delay_level < 0 or message.reconsume_times >= settings.retry_max_times
    if not is_dead:
        properties[DELAY] = str(delay_level or _FIRST_DELAY_LEVEL + message.reconsume_times)
    return MessageExtBrokerInner(
        topic=dead_letter_topic(group) if is_dead else retry_topic(group),
        body=message.body,
        tags=message.properties.get(TAGS),
        keys=message.keys,
        queue_id=0 if is_dead else message.physical_offset % max(settings.retry_queue_nums, 1),
        flag=message.flag,
        properties=properties,
        # The body is not compressed any more.
        sys_flag=message.sys_flag & ~(COMPRESSED_FLAG | COMPRESSION_TYPE_MASK),
        born_timestamp=message.born_timestamp if is_timestamp(message.born_timestamp) else None,
        born_host=message.born_host,
        reconsume_times=message.reconsume_times + 1,
    )


def put_for_retry(
    engine: StoreEngine,
    message: MessageExt,
    settings: SubscriptionGroupConfig,
    delay_level: int,
    *,
    retry_sys_flag: int = 0,
) -> PutMessageResult:
    """Put the copy, whose topic is created if need be. ``CorruptConfig``, ``StoreIOError``, and those of a put.

    ``retry_sys_flag``: the topicSysFlag of a retry topic that does not exist.
    """
    copy = copy_for_retry(message, settings, delay_level)
    is_retry = copy.topic == retry_topic(settings.group_name)
    queues, sys_flag = (max(settings.retry_queue_nums, 1), retry_sys_flag) if is_retry else (1, 0)
    engine.run(lambda: engine.topics.create_topic(copy.topic, queues, sys_flag=sys_flag))
    return engine.call(lambda: engine.putter.put_message(copy))
