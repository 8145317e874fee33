"""ClientManageProcessor: heartbeats, clients that leave, and the check of a subscription.

Source: RocketMQ ``broker/processor/ClientManageProcessor.java``.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from commitlog_store.errors import FilterError
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.queue.topic_config import FLAG_UNIT_SUB
from commitlog_store.serve.rocketmq.answering import (
    RequestFault,
    ThreadsOf,
    answer_of,
    answered_here,
    answered_in_thread,
    shown,
)
from commitlog_store.serve.rocketmq.clients import ClientRegistry, ConsumerData, HeartbeatData, SubscriptionData
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.consumer_groups import ConsumerGroups
from commitlog_store.serve.rocketmq.fastjson import decode_body
from commitlog_store.serve.rocketmq.processor import Answered, Connection, Handler, Processor

# Some thousand subscriptions.
_MOST_HEARTBEAT = 256 << 10
_MOST_CHECK = 64 << 10


class _CheckClient(msgspec.Struct, rename="camel"):
    subscription_data: SubscriptionData | None = None


class ClientManageProcessor(Processor):
    """HEART_BEAT, UNREGISTER_CLIENT, CHECK_CLIENT_CONFIG."""

    def __init__(self, clients: ClientRegistry, groups: ConsumerGroups, threads_of: ThreadsOf) -> None:
        self._clients = clients
        self._groups = groups
        self._of_heartbeats = threads_of("heartbeat")
        self._of_checks = threads_of("client_manager")

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: answered_here(self._unregister),
            # A long expression takes a while to parse.
            RequestCode.CHECK_CLIENT_CONFIG: answered_in_thread(self._of_checks, _check),
        }

    def connection_lost(self, connection: Connection) -> None:
        self._clients.connection_lost(connection)

    def _heartbeat(self, request: RemotingCommand, connection: Connection) -> Answered:
        """Note the client at once; answered when its consumer groups and their retry topics exist."""
        new: list[ConsumerData] = []

        def note() -> RemotingCommand:
            data = decode_body(request.body, HeartbeatData, most=_MOST_HEARTBEAT)
            self._clients.heartbeat(connection, data, request.language, request.version, self._notifies)
            new.extend(one for one in data.consumer_data_set or () if not self._groups.is_created(one.group_name))
            return request.answer(ResponseCode.SUCCESS)

        def create() -> RemotingCommand:
            for group in new:
                try:
                    self._groups.create(group.group_name, retry_sys_flag=FLAG_UNIT_SUB if group.unit_mode else 0)
                except RequestFault as fault:  # its pulls are refused; the client's other groups are not concerned
                    if fault.code is not ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                        raise
            return request.answer(ResponseCode.SUCCESS)

        noted = answer_of(request, note)
        return self._of_heartbeats(lambda: answer_of(request, create)) if new and not noted.code else noted

    def _notifies(self, group: str) -> bool:
        """By the group's settings; they are in memory once the group was created."""
        return not self._groups.is_created(group) or self._groups.settings(group).notify_consumer_ids_changed_enable

    def _unregister(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        producers, consumers = request.fields.get("producerGroup"), request.fields.get("consumerGroup")
        if producers:
            self._clients.unregister_producer(connection, producers)
        if consumers:
            self._clients.unregister_consumer(connection, consumers, notifies=self._notifies(consumers))
        return request.answer(ResponseCode.SUCCESS)


def _check(request: RemotingCommand, _: Connection) -> RemotingCommand:
    """Whether an expression can be used: clients with SQL92 ask before they start."""
    wanted = decode_body(request.body, _CheckClient, most=_MOST_CHECK).subscription_data if request.body else None
    if wanted is not None and not wanted.is_tags:
        try:
            wanted.filter  # noqa: B018 - parses it
        except FilterError as error:
            return request.answer(ResponseCode.SUBSCRIPTION_PARSE_FAILED, shown(str(error)))
    return request.answer(ResponseCode.SUCCESS)
