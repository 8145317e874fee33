"""Bodies of answers as RocketMQ's own classes read them, and bodies of requests as they write them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from commitlog_store import Message, MessageStore
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.serve.rocketmq.broker import GroupProcessors
from commitlog_store.serve.rocketmq.broker_identity import BrokerIdentity
from commitlog_store.serve.rocketmq.clients import HeartbeatData
from commitlog_store.serve.rocketmq.codes import RequestCode
from commitlog_store.serve.rocketmq.fastjson import decode_body
from tests.interop.rocketmq import RocketMqBroker
from tests.store.serve.rocketmq.asking import AClient, ask, eventually
from tests.store.serve.rocketmq.test_clients import heartbeat
from tests.support.quick_spark import JAVA_OPTIONS

QUEUE = '{"brokerName":"broker-a","queueId":0,"topic":"orders"}'


def read(broker: RocketMqBroker, tmp_path: Path, bodies: Mapping[str, bytes]) -> dict[str, tuple[Any, str]]:
    """What RocketMQ reads of each class's body, and what it writes of that."""
    lines = [json.dumps({"class": name, "body": body.decode()}) for name, body in bodies.items()]
    environment = {name: value for name, value in os.environ.items() if name != JAVA_OPTIONS}
    ran = subprocess.run(
        [*broker.java(tmp_path), "BodyReader"],
        input="\n".join(lines) + "\n",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
        env=environment,
    )
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    for name, answer in zip(bodies, answers, strict=True):
        assert "error" not in answer, f"{name}: {answer['error']}"
    return {name: (json.loads(answer["value"]), answer["body"]) for name, answer in zip(bodies, answers, strict=True)}


async def all_bodies(store: MessageStore) -> dict[str, bytes]:
    """Every body that is answered or sent, by the class that reads it."""
    parts = GroupProcessors(store, BrokerIdentity("127.0.0.1:10911"), lambda _: asyncio.to_thread)
    handlers = {code: one for one in parts.processors for code in one.handlers()}
    client = AClient()

    async def body_of(code: int, body: object = b"", **fields: object) -> bytes:
        answer = await ask(handlers[code], code, fields, body, client=client, language="JAVA", version=409)
        assert not answer.code, answer.remark
        return answer.body

    data = heartbeat(client="c", consumers={"billing": {"orders": "paid||sent"}}, producers=["payments"])
    await body_of(RequestCode.HEART_BEAT, data)
    locks = {"clientId": "c", "consumerGroup": "billing", "mqSet": [json.loads(QUEUE)]}
    reset = {"topic": "orders", "group": "billing", "timestamp": 0, "isForce": "true"}
    found = {
        "header.GetConsumerListByGroupResponseBody": await body_of(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="billing"
        ),
        "body.LockBatchResponseBody": await body_of(RequestCode.LOCK_BATCH_MQ, locks),
        "body.TopicConfigSerializeWrapper": await body_of(RequestCode.GET_ALL_TOPIC_CONFIG),
        "TopicConfig": await body_of(RequestCode.GET_TOPIC_CONFIG, topic="orders"),
        "body.TopicList": await body_of(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        "admin.TopicStatsTable": await body_of(RequestCode.GET_TOPIC_STATS_INFO, topic="orders"),
        "body.SubscriptionGroupWrapper": await body_of(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
        "body.ConsumerConnection": await body_of(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="billing"),
        "body.ProducerConnection": await body_of(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="payments"),
        "admin.ConsumeStats": await body_of(RequestCode.GET_CONSUME_STATS, consumerGroup="billing", topic="orders"),
        "body.GroupList": await body_of(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="orders"),
        "body.ConsumerOffsetSerializeWrapper": await body_of(RequestCode.GET_ALL_CONSUMER_OFFSET),
        "body.ResetOffsetBody": await body_of(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **reset),
        "body.ClusterInfo": await body_of(RequestCode.GET_BROKER_CLUSTER_INFO),
        "body.KVTable": await body_of(RequestCode.GET_BROKER_RUNTIME_INFO),
    }
    await eventually(lambda: any(one.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET for one in client.received))
    return found


def test_rocketmq_reads_the_bodies_of_answers(tmp_path: Path, rocketmq_broker: RocketMqBroker) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        store.create_topic("orders", 2)
        store.put_message(Message(topic="orders", body=b"x", queue_id=0))
        with store.consumer("billing", ["orders"]) as consumer:
            assert consumer.poll(1, 5)
            consumer.commit()
        found = {name: one[0] for name, one in read(rocketmq_broker, tmp_path, asyncio.run(all_bodies(store))).items()}
    assert found["header.GetConsumerListByGroupResponseBody"]["consumerIdList"] == ["c"]
    assert found["body.LockBatchResponseBody"]["lockOKMQSet"] == [json.loads(QUEUE)]
    assert found["body.TopicConfigSerializeWrapper"]["topicConfigTable"]["orders"]["writeQueueNums"] == 2
    assert found["TopicConfig"]["topicName"] == "orders"
    assert set(found["body.TopicList"]["topicList"]) == {"orders", "%RETRY%billing"}
    stats = found["admin.TopicStatsTable"]["offsetTable"]
    assert [one["maxOffset"] for one in stats.values()] in ([1, 0], [0, 1])
    groups = found["body.SubscriptionGroupWrapper"]["subscriptionGroupTable"]
    assert groups["billing"]["retryMaxTimes"] == 16
    connection = found["body.ConsumerConnection"]
    assert (connection["consumeType"], connection["messageModel"]) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert connection["connectionSet"][0]["language"] == "JAVA"
    assert set(connection["subscriptionTable"]["orders"]["tagsSet"]) == {"paid", "sent"}
    assert found["body.ProducerConnection"]["connectionSet"][0]["clientId"] == "c"
    progress = found["admin.ConsumeStats"]["offsetTable"]
    assert sorted(one["consumerOffset"] for one in progress.values()) == [0, 1]
    assert found["body.GroupList"]["groupList"] == ["billing"]
    assert found["body.ConsumerOffsetSerializeWrapper"]["offsetTable"]["orders@billing"]["0"] == 1
    assert set(found["body.ResetOffsetBody"]["offsetTable"].values()) == {0}
    assert len(found["body.ResetOffsetBody"]["offsetTable"]) == 2
    broker = found["body.ClusterInfo"]["brokerAddrTable"]["broker-a"]
    assert broker["brokerAddrs"] == {"0": "127.0.0.1:10911"}
    assert found["body.KVTable"]["table"]["brokerActive"] == "true"


@pytest.mark.parametrize("tags", ["*", "paid||sent"])
def test_heartbeats_that_rocketmq_writes_are_read(tmp_path: Path, rocketmq_broker: RocketMqBroker, tags: str) -> None:
    given = heartbeat(client="c", consumers={"billing": {"orders": tags}}, producers=["payments"])
    ours = msgspec.json.encode(given)
    (written,) = read(rocketmq_broker, tmp_path, {"heartbeat.HeartbeatData": ours}).values()
    body = written[1].encode()
    assert decode_body(body, HeartbeatData, most=1 << 20) == msgspec.convert(given, HeartbeatData)
    assert RemotingCommand(code=34, body=body).encode()
