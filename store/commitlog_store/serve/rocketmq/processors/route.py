"""RouteInfoProcessor: what clients ask a name server: where a topic's queues are, and which brokers there are.

Source: RocketMQ ``namesrv/processor/ClientRequestProcessor.java``, ``namesrv/routeinfo/RouteInfoManager.java``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from commitlog_store.queue.topic_config import TopicConfig, TopicSettings
from commitlog_store.serve.rocketmq.addresses import AUTO_CREATE_QUEUES, AUTO_CREATE_TOPIC, MASTER_ID, BrokerIdentity
from commitlog_store.serve.rocketmq.answering import text_field
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.processor import Connection, Handler
from commitlog_store.serve.rocketmq.remoting_command import RemotingCommand

# Read, write, and inherited by topics that are made after its model.
_INHERITED = 7
_READ_AND_WRITE = 6


class RouteInfoProcessor:
    """Answers with this broker alone."""

    def __init__(self, identity: BrokerIdentity, topics: TopicConfig) -> None:
        self._identity = identity
        self._topics = topics
        # Topics of a broker's own, which mqadmin asks for by these names.
        self._own_topics = {
            AUTO_CREATE_TOPIC: TopicSettings(AUTO_CREATE_QUEUES, AUTO_CREATE_QUEUES, _INHERITED),
            identity.broker_name: TopicSettings(1, 1, _INHERITED),
            identity.cluster_name: TopicSettings(16, 16, _INHERITED),
            "SELF_TEST_TOPIC": TopicSettings(1, 1, _READ_AND_WRITE),
        }

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster,
        }

    def connection_lost(self, connection: Connection) -> None:
        """It keeps nothing about connections."""

    def _route(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        topic = text_field(request, "topic")
        settings = self._topics.settings(topic) or self._own_topics.get(topic)
        if settings is None:
            return request.answer(
                ResponseCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic}"
            )
        route = {
            "brokerDatas": [self._broker()],
            "filterServerTable": {},
            "queueDatas": [
                {
                    "brokerName": self._identity.broker_name,
                    "perm": settings.perm,
                    "readQueueNums": settings.read_queue_nums,
                    "topicSysFlag": 0,
                    "writeQueueNums": settings.write_queue_nums,
                }
            ],
        }
        return request.answer(ResponseCode.SUCCESS, body=orjson.dumps(route))

    def _cluster(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        name, cluster = self._identity.broker_name, self._identity.cluster_name
        info = {"brokerAddrTable": {name: self._broker()}, "clusterAddrTable": {cluster: [name]}}
        return request.answer(ResponseCode.SUCCESS, body=orjson.dumps(info))

    def _broker(self) -> dict[str, Any]:
        identity = self._identity
        return {
            "brokerAddrs": {str(MASTER_ID): identity.address},
            "brokerName": identity.broker_name,
            "cluster": identity.cluster_name,
        }
