"""RouteInfoProcessor: what clients ask a name server: where a topic's queues are.

Source: RocketMQ ``namesrv/processor/ClientRequestProcessor.java``, ``namesrv/routeinfo/RouteInfoManager.java``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.queue.topic_config import READ_AND_WRITE, TopicConfig, TopicSettings
from commitlog_store.serve.rocketmq.answering import text_field
from commitlog_store.serve.rocketmq.broker_identity import BrokerIdentity
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.processor import Connection, Handler, Processor

MASTER_ID = 0
# The topic whose settings a topic gets that is made by its first message.
AUTO_CREATE_TOPIC = "TBW102"
# RocketMQ's defaultTopicQueueNums: a client asks for 4, and gets no more than these.
_AUTO_CREATE_QUEUES = 8
# Read, write, and inherited by topics that are made after its model.
_INHERITED = 7


def own_topics(identity: BrokerIdentity) -> dict[str, TopicSettings]:
    """Topics that a broker has: the model of new ones, and those by which mqadmin and tests find the broker.

    Without the model, producers find no route for a topic that does not exist.
    """
    model = TopicSettings(_AUTO_CREATE_QUEUES, _AUTO_CREATE_QUEUES, _INHERITED)
    return {
        **({AUTO_CREATE_TOPIC: model} if identity.creates_topics else {}),
        identity.name: TopicSettings(1, 1, _INHERITED),
        identity.cluster: TopicSettings(16, 16, _INHERITED),
        "SELF_TEST_TOPIC": TopicSettings(1, 1, READ_AND_WRITE),
    }


class RouteInfoProcessor(Processor):
    """Answers with this broker alone."""

    def __init__(self, identity: BrokerIdentity, topics: TopicConfig) -> None:
        self._identity = identity
        self._topics = topics
        self._own_topics = own_topics(identity)

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route}

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
                    "brokerName": self._identity.name,
                    "perm": settings.perm,
                    "readQueueNums": settings.read_queue_nums,
                    "topicSysFlag": settings.topic_sys_flag,
                    "writeQueueNums": settings.write_queue_nums,
                }
            ],
        }
        return request.answer(ResponseCode.SUCCESS, body=orjson.dumps(route))

    def _broker(self) -> dict[str, Any]:
        identity = self._identity
        return {
            "brokerAddrs": {str(MASTER_ID): identity.address},
            "brokerName": identity.name,
            "cluster": identity.cluster,
        }
