"""GroupAdminProcessor: consumer groups as ``mqadmin`` creates, changes, lists and deletes them, and what they consume.

Source: RocketMQ ``broker/processor/AdminBrokerProcessor.java`` (``updateAndCreateSubscriptionGroup``,
``deleteSubscriptionGroup``, ``getAllSubscriptionGroup``, ``getSubscriptionGroup``, ``getConsumerConnectionList``,
``getProducerConnectionList``, ``getConsumeStats``, ``queryTopicConsumeByWho``, ``queryTopicsByConsumer``,
``getAllConsumerOffset``), ``remoting/protocol/admin/ConsumeStats.java``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from commitlog_store.consumers.lent_readers import LentReaders
from commitlog_store.errors import CommitLogError, QueueNotFound, TopicNotFound
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.groups.group_settings import SubscriptionGroupConfig
from commitlog_store.reader import StoreReader
from commitlog_store.serve.rocketmq.answering import (
    InThread,
    answered_here,
    answered_in_thread,
    flag_field,
    text_field,
)
from commitlog_store.serve.rocketmq.broker_identity import BrokerIdentity
from commitlog_store.serve.rocketmq.clients import Client, ClientRegistry
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.consumer_groups import ConsumerGroups
from commitlog_store.serve.rocketmq.fastjson import NO_VERSION, decode_body, encode_body, number_names, object_names
from commitlog_store.serve.rocketmq.processor import Answered, Connection, Handler, Processor
from commitlog_store.serve.rocketmq.processors.topic_admin import queues_of
from commitlog_store.serve.rocketmq.request_times import CreationTimes
from commitlog_store.store import MessageStore, owned_by

_MOST_BODY = 64 << 10
_TOPIC_SEPARATOR = ";"


class GroupAdminProcessor(Processor):
    """UPDATE_AND_CREATE_ and DELETE_SUBSCRIPTIONGROUP, GET_ALL_ and GET_SUBSCRIPTIONGROUP_CONFIG,
    GET_CONSUMER_ and GET_PRODUCER_CONNECTION_LIST, GET_CONSUME_STATS, QUERY_TOPIC_CONSUME_BY_WHO,
    QUERY_TOPICS_BY_CONSUMER, GET_ALL_CONSUMER_OFFSET."""

    def __init__(
        self,
        store: MessageStore,
        identity: BrokerIdentity,
        clients: ClientRegistry,
        groups: ConsumerGroups,
        readers: LentReaders,
        in_thread: InThread,
        times: CreationTimes,
    ) -> None:
        self._store = store
        self._engine = owned_by(store).engine
        self._positions = owned_by(store).groups
        self._identity = identity
        self._clients = clients
        self._groups = groups
        self._readers = readers
        self._in_thread = in_thread
        self._times = times

    def handlers(self) -> Mapping[int, Handler]:
        in_thread = self._in_thread
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: answered_in_thread(in_thread, self._set),
            RequestCode.DELETE_SUBSCRIPTIONGROUP: answered_in_thread(in_thread, self._delete),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: answered_in_thread(in_thread, self._all_settings),
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: answered_in_thread(in_thread, self._settings),
            RequestCode.GET_CONSUMER_CONNECTION_LIST: answered_here(self._consumers),
            RequestCode.GET_PRODUCER_CONNECTION_LIST: answered_here(self._producers),
            RequestCode.GET_CONSUME_STATS: self._consume_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: answered_in_thread(in_thread, self._topics_of_group),
            RequestCode.GET_ALL_CONSUMER_OFFSET: answered_in_thread(in_thread, self._all_positions),
        }

    def _set(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        with self._times.of_group():
            self._store.set_group_settings(decode_body(request.body, SubscriptionGroupConfig, most=_MOST_BODY))
        return request.answer(ResponseCode.SUCCESS)

    def _delete(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """``cleanOffset``: its positions, too."""
        group = text_field(request, "groupName")

        def delete() -> None:
            self._engine.state.refuse_on_replica()
            self._positions.subscription_groups.remove(group)
            self._positions.pulled.forget_all(group=group)
            if flag_field(request, "cleanOffset"):
                self._positions.offsets.remove(group)
                self._positions.flush()

        self._engine.run(delete)
        self._groups.forget(group)
        return request.answer(ResponseCode.SUCCESS)

    def _all_settings(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        content = self._positions.subscription_groups.content()
        table = content.get("subscriptionGroupTable", {})
        body = {
            "dataVersion": content.get("dataVersion", NO_VERSION),
            "forbiddenTable": content.get("forbiddenTable", {}),
            "subscriptionGroupTable": table,
        }
        fields = {"totalGroupNum": str(len(table))}
        return request.answer(ResponseCode.SUCCESS, fields=fields, body=encode_body(body))

    def _settings(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        group, settings = text_field(request, "group"), self._positions.subscription_groups
        known = settings.get(group)
        if known is None:
            return request.answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        # With the members that only brokers know.
        entry = {**settings.content()["subscriptionGroupTable"][group], **msgspec.to_builtins(known)}
        return request.answer(ResponseCode.SUCCESS, body=encode_body(entry))

    def _consumers(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        group = text_field(request, "consumerGroup")
        found = self._clients.consumers(group)
        if found is None:
            return request.answer(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
        body = {
            "connectionSet": _connections(found.clients.items()),
            "consumeFromWhere": found.consume_from_where,
            "consumeType": found.consume_type,
            "messageModel": found.message_model,
            "subscriptionTable": {topic: one.as_json() for topic, one in found.subscriptions.items()},
        }
        return request.answer(ResponseCode.SUCCESS, body=encode_body(body))

    def _producers(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        group = text_field(request, "producerGroup")
        found = self._clients.producers(group)
        if not found:
            return request.answer(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        return request.answer(ResponseCode.SUCCESS, body=encode_body({"connectionSet": _connections(found.items())}))

    def _consume_stats(self, request: RemotingCommand, connection: Connection) -> Answered:
        """The subscription is looked up here, the queues in another thread."""
        info = self._clients.consumers(request.fields.get("consumerGroup", ""))
        subscribed = None if info is None or not info.subscriptions else set(info.subscriptions)
        answer = answered_in_thread(self._in_thread, lambda one, _: self._stats(one, subscribed))
        return answer(request, connection)

    def _stats(self, request: RemotingCommand, subscribed: set[str] | None) -> RemotingCommand:
        """How far the group is in each queue. ``subscribed``: topics of its connected consumers; None: all count."""
        group, topic = text_field(request, "consumerGroup"), request.fields.get("topic", "")
        wanted = [one for one in request.fields.get("topicList", "").split(_TOPIC_SEPARATOR) if one]
        if not wanted:
            wanted = [topic] if topic.strip() else self._positions.offsets.topics(group)
            wanted = [one for one in wanted if subscribed is None or one in subscribed]
        table = self._engine.topics.content().get("topicConfigTable", {})
        with self._readers.lent() as reader:
            rows = [
                (self._identity.queue(one, queue_id), self._progress(reader, group, one, queue_id))
                for one in wanted
                for queue_id in queues_of(reader, one, table.get(one), "readQueueNums")
            ]
        return request.answer(
            ResponseCode.SUCCESS, body=encode_body({"consumeTps": 0.0, "offsetTable": object_names(rows)})
        )

    def _progress(self, reader: StoreReader, group: str, topic: str, queue_id: int) -> dict[str, int]:
        """Offsets, and the store time of the last consumed message in ms: 0 if there is none."""
        try:
            end = reader.queue_info(topic, queue_id).max_offset
        except (TopicNotFound, QueueNotFound):
            end = 0
        position = max(self._groups.position(group, topic, queue_id), 0)
        last = 0
        if 0 < position <= end:
            try:
                last = reader.store_timestamp(topic, queue_id, position - 1)
            except CommitLogError:
                last = 0  # deleted, or damaged
        return {"brokerOffset": end, "consumerOffset": position, "lastTimestamp": last, "pullOffset": position}

    def _groups_of_topic(self, request: RemotingCommand, connection: Connection) -> Answered:
        """Those that are connected are looked up here, those with positions in another thread."""
        connected = self._clients.groups_of_topic(request.fields.get("topic", ""))

        def look(one: RemotingCommand, _: Connection) -> RemotingCommand:
            topic = text_field(one, "topic")
            found = {group for group, consumed in self._positions.offsets.all() if consumed == topic}
            return one.answer(ResponseCode.SUCCESS, body=encode_body({"groupList": sorted(found.union(connected))}))

        return answered_in_thread(self._in_thread, look)(request, connection)

    def _topics_of_group(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        topics = self._positions.offsets.topics(text_field(request, "group"))
        body = {"brokerAddr": self._identity.address, "topicList": topics}
        return request.answer(ResponseCode.SUCCESS, body=encode_body(body))

    def _all_positions(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """What slaves copy."""
        table = {
            f"{topic}@{group}": number_names(positions)
            for (group, topic), positions in self._positions.offsets.all().items()
        }
        body = {"dataVersion": NO_VERSION, "offsetTable": table}
        return request.answer(ResponseCode.SUCCESS, body=encode_body(body))


def _connections(clients: Iterable[tuple[Connection, Client]]) -> list[dict[str, Any]]:
    return [
        {
            "clientAddr": f"{connection.address[0]}:{connection.address[1]}",
            "clientId": client.client_id,
            "language": client.language,
            "version": client.version,
        }
        for connection, client in clients
    ]
