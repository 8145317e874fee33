"""What requests need: the topics that they put into, the topics and groups that they consume, and codes for admins.

As RocketMQ's validator has it, with these differences, each of which closes a way around a permission:

- SEND_BATCH_MESSAGE is as other sends (5.x; 4.9.8 does not look at it), LITE_PULL_MESSAGE as PULL_MESSAGE.
- A send to a retry topic needs SUB of that topic's group. RocketMQ looks at the producer's group, or at none.
- Locks, resets of positions and calls that go on to a consumer need SUB of the group, and of the topic that is reset.
- A message that is sent back, or consumed directly, needs SUB of its own topic, too, which ``AccessControl`` asks for:
  an account would otherwise get any message by its place.
- DELETE_TOPIC_IN_NAMESRV, and changes of a name server's settings, need an admin, as DELETE_TOPIC_IN_BROKER does: one
  server answers all of them.

Source: RocketMQ 4.9.8 ``acl/plain/PlainAccessValidator.java``, ``acl/common/Permission.java``; 5.2.0
``acl/plain/PlainAccessResource.java`` (``parse``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.paths import RETRY_TOPIC_PREFIX
from commitlog_store.serve.rocketmq.access.plain_acl import Permission
from commitlog_store.serve.rocketmq.clients import HeartbeatData
from commitlog_store.serve.rocketmq.codes import RequestCode
from commitlog_store.serve.rocketmq.fastjson import decode_body

# By topic, or by retry topic for a group. ``RequestFault`` for a body that cannot be read.
Needs: TypeAlias = Callable[[RemotingCommand], Mapping[str, Permission]]

ADMIN_CODES = frozenset(
    (
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
    )
)
# The topic of message traces: every account may put into it.
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
_MOST_BODY = 256 << 10


class _Locks(msgspec.Struct, rename="camel"):
    consumer_group: str | None = None


def _send(topic_field: str) -> Needs:
    def needs(request: RemotingCommand) -> Mapping[str, Permission]:
        topic = request.fields.get(topic_field)
        if topic is None:
            return {}
        return {topic: Permission.SUB if topic.startswith(RETRY_TOPIC_PREFIX) else Permission.PUB}

    return needs


def _sub(*, group: str | None = None, topic: str | None = None) -> Needs:
    """SUB of what the fields of these names have; a field that is missing needs nothing."""

    def needs(request: RemotingCommand) -> Mapping[str, Permission]:
        found = {}
        if topic is not None and (name := request.fields.get(topic)) is not None:
            found[name] = Permission.SUB
        if group is not None and (name := request.fields.get(group)) is not None:
            found[RETRY_TOPIC_PREFIX + name] = Permission.SUB
        return found

    return needs


def _heartbeat(request: RemotingCommand) -> Mapping[str, Permission]:
    found = {}
    for consumer in decode_body(request.body, HeartbeatData, most=_MOST_BODY).consumer_data_set or ():
        found[RETRY_TOPIC_PREFIX + consumer.group_name] = Permission.SUB
        for subscription in consumer.subscription_data_set or ():
            found[subscription.topic] = Permission.SUB
    return found


def _locks(request: RemotingCommand) -> Mapping[str, Permission]:
    group = decode_body(request.body, _Locks, most=_MOST_BODY).consumer_group
    return {} if group is None else {RETRY_TOPIC_PREFIX + group: Permission.SUB}


# Requests that are not in this table need a signature, and no permission.
NEEDS: Mapping[int, Needs] = {
    RequestCode.SEND_MESSAGE: _send("topic"),
    RequestCode.SEND_MESSAGE_V2: _send("b"),
    RequestCode.SEND_BATCH_MESSAGE: _send("b"),
    RequestCode.CONSUMER_SEND_MSG_BACK: _sub(group="group"),
    RequestCode.PULL_MESSAGE: _sub(group="consumerGroup", topic="topic"),
    RequestCode.LITE_PULL_MESSAGE: _sub(group="consumerGroup", topic="topic"),
    RequestCode.QUERY_MESSAGE: _sub(topic="topic"),
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: _sub(group="consumerGroup"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _sub(group="consumerGroup"),
    RequestCode.UPDATE_CONSUMER_OFFSET: _sub(group="consumerGroup", topic="topic"),
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _sub(group="group", topic="topic"),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _sub(group="consumerGroup"),
    RequestCode.GET_CONSUMER_RUNNING_INFO: _sub(group="consumerGroup"),
}
