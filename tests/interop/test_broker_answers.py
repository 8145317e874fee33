"""The same requests to a broker of RocketMQ and to the processors of ``serve/rocketmq``, on copies of one store."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import msgspec

from commitlog_store import Message, MessageStore, MessageStoreConfig
from commitlog_store.format.remoting_command import RemotingCommand, decode
from commitlog_store.groups.group_settings import SubscriptionGroupConfig
from commitlog_store.replication.handshake import receive_exactly
from commitlog_store.serve.rocketmq.broker import GroupProcessors
from commitlog_store.serve.rocketmq.broker_identity import BrokerIdentity
from commitlog_store.serve.rocketmq.codes import RequestCode as Code
from tests.interop.rocketmq import RocketMqBroker, message_store_settings
from tests.interop.test_message_store_writes import SMALL
from tests.interop.whole_broker import WholeBroker, free_ports
from tests.store.serve.rocketmq.asking import AClient, ask
from tests.store.serve.rocketmq.test_clients import heartbeat
from tests.support.waiting import WAIT_LIMIT_S, wait_for

CONFIG = MessageStoreConfig.from_mapping(message_store_settings(SMALL))
SIZES: dict[str, object] = {
    "mappedFileSizeCommitLog": SMALL["mapped_file_size_commit_log"],
    "mappedFileSizeConsumeQueue": SMALL["mapped_file_size_consume_queue"],
    "maxHashSlotNum": SMALL["max_hash_slot_num"],
    "maxIndexNum": SMALL["max_index_num"],
    # Without it, 5.3.3 deletes no topic.
    "timerWheelEnable": "true",
}
# What a client makes of the expression "a||b".
TAGS = {"tagsSet": ["a", "b"], "codeSet": [97, 98]}
ORDERS = {"topic": "orders", "queueId": 0}
BILLING = {"consumerGroup": "billing", **ORDERS}
KEY = {"topic": "orders", "maxNum": 10, "beginTimestamp": 0, "endTimestamp": 2**62}
LOCK = {"consumerGroup": "billing", "mqSet": [{"brokerName": "broker-a", "queueId": 0, "topic": "orders"}]}
TOPIC = {"topic": "made", "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}


class Asked(NamedTuple):
    """One request; ``same`` are the header fields of the answer that must be the same.

    ``only``: the first figure of the version that answers so; the other one differs.
    """

    code: int
    fields: Mapping[str, object] = {}
    body: object = b""
    same: tuple[str, ...] = ()
    only: str = ""


BEAT = heartbeat(client="c", consumers={"billing": {"orders": "a||b"}}, producers=["payments"])
BEAT["consumerDataSet"][0]["subscriptionDataSet"][0].update(TAGS)

REQUESTS = [
    Asked(Code.QUERY_CONSUMER_OFFSET, BILLING, same=("offset",)),
    # 5.x knows no position of an empty queue: its client asks for the queue's end then, and may miss a message.
    Asked(Code.QUERY_CONSUMER_OFFSET, {**BILLING, "queueId": 1}, same=("offset",), only="4"),
    Asked(Code.QUERY_CONSUMER_OFFSET, {**BILLING, "consumerGroup": "new"}, same=("offset",)),
    Asked(Code.QUERY_CONSUMER_OFFSET, {**BILLING, "consumerGroup": "new", "queueId": 1}, same=("offset",), only="4"),
    Asked(Code.GET_MAX_OFFSET, ORDERS, same=("offset",)),
    Asked(Code.GET_MAX_OFFSET, {**ORDERS, "queueId": 1}, same=("offset",)),
    Asked(Code.GET_MIN_OFFSET, ORDERS, same=("offset",)),
    Asked(Code.GET_MIN_OFFSET, {**ORDERS, "queueId": 1}, same=("offset",)),
    Asked(Code.SEARCH_OFFSET_BY_TIMESTAMP, {**ORDERS, "timestamp": 0}, same=("offset",)),
    Asked(Code.GET_EARLIEST_MSG_STORETIME, ORDERS, same=("timestamp",)),
    Asked(Code.GET_EARLIEST_MSG_STORETIME, {**ORDERS, "queueId": 1}, same=("timestamp",)),
    Asked(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "billing"}),
    Asked(Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "billing"}),
    Asked(Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "payments"}),
    Asked(Code.QUERY_MESSAGE, {**KEY, "key": "k"}),
    Asked(Code.QUERY_MESSAGE, {**KEY, "key": "none"}),
    Asked(Code.QUERY_MESSAGE, {**KEY, "key": "U3", "_UNIQUE_KEY_QUERY": "true"}),
    Asked(Code.VIEW_MESSAGE_BY_ID, {"offset": 0}),
    Asked(Code.VIEW_MESSAGE_BY_ID, {"offset": 2**40}),
    Asked(Code.GET_TOPIC_STATS_INFO, {"topic": "orders"}),
    Asked(Code.GET_TOPIC_STATS_INFO, {"topic": "none"}),
    Asked(Code.GET_CONSUME_STATS, {"consumerGroup": "billing", "topic": "orders"}),
    Asked(Code.GET_CONSUME_STATS, {"consumerGroup": "billing"}),
    Asked(Code.GET_CONSUME_STATS, {"consumerGroup": "none"}),
    Asked(Code.GET_CONSUME_STATS, {"consumerGroup": "billing", "topic": "none"}),
    Asked(Code.GET_TOPIC_CONFIG, {"topic": "orders"}, only="5"),
    Asked(Code.GET_TOPIC_CONFIG, {"topic": "none"}, only="5"),
    Asked(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "billing"}, only="5"),
    Asked(
        Code.END_TRANSACTION,
        {
            "producerGroup": "p",
            "tranStateTableOffset": 0,
            "commitLogOffset": 2**40,
            "commitOrRollback": 8,
            "fromTransactionCheck": "false",
        },
    ),
    Asked(
        Code.CHECK_CLIENT_CONFIG,
        body={
            "clientId": "c",
            "group": "billing",
            "subscriptionData": {"topic": "orders", "subString": "*", "expressionType": "TAG"},
        },
    ),
    Asked(Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "orders"}),
    Asked(Code.UPDATE_CONSUMER_OFFSET, {**BILLING, "commitOffset": 2}),
    Asked(Code.QUERY_CONSUMER_OFFSET, BILLING, same=("offset",)),
    Asked(Code.HEART_BEAT, body=BEAT),
    Asked(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "billing"}),
    Asked(Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "billing"}),
    Asked(Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "payments"}),
    Asked(Code.LOCK_BATCH_MQ, body={**LOCK, "clientId": "c"}),
    Asked(Code.LOCK_BATCH_MQ, body={**LOCK, "clientId": "d"}),
    Asked(Code.UNLOCK_BATCH_MQ, body={**LOCK, "clientId": "c"}),
    Asked(Code.LOCK_BATCH_MQ, body={**LOCK, "clientId": "d"}),
    Asked(Code.UPDATE_AND_CREATE_TOPIC, {**TOPIC, "topicFilterType": "SINGLE_TAG", "order": "false"}),
    Asked(
        Code.UPDATE_AND_CREATE_TOPIC,
        {**TOPIC, "topicFilterType": "SINGLE_TAG", "topic": "RMQ_SYS_TRANS_HALF_TOPIC"},
        only="5",
    ),
    Asked(Code.GET_TOPIC_STATS_INFO, {"topic": "made"}),
    Asked(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body={"groupName": "made", "retryMaxTimes": 3}),
    Asked(Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "made"}),
    Asked(Code.CONSUMER_SEND_MSG_BACK, {"offset": 0, "group": "billing", "delayLevel": 0, "originTopic": "orders"}),
    Asked(Code.CONSUMER_SEND_MSG_BACK, {"offset": 0, "group": "billing", "delayLevel": -1, "originTopic": "orders"}),
    Asked(Code.CONSUMER_SEND_MSG_BACK, {"offset": 2**40, "group": "billing", "delayLevel": 0}),
    Asked(Code.GET_TOPIC_STATS_INFO, {"topic": "%DLQ%billing"}),
    Asked(
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
        {"topic": "orders", "group": "billing", "timestamp": 0, "isForce": "true"},
        # 4.x wants a position in each queue.
        only="5",
    ),
    Asked(Code.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": "billing", "producerGroup": "payments"}),
    Asked(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "billing"}),
    Asked(Code.DELETE_TOPIC_IN_BROKER, {"topic": "made"}),
    Asked(Code.GET_TOPIC_STATS_INFO, {"topic": "made"}),
]


class BrokerConnection:
    """One connection to a broker, one request after the other; what it asks in return is skipped."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), WAIT_LIMIT_S)
        self._opaque = 0

    def ask(self, asked: Asked) -> RemotingCommand:
        self._opaque += 1
        fields = {name: str(value) for name, value in asked.fields.items()}
        body = asked.body if isinstance(asked.body, bytes) else msgspec.json.encode(asked.body)
        command = RemotingCommand(
            code=asked.code, fields=fields, body=body, opaque=self._opaque, language="JAVA", version=409
        )
        self._socket.sendall(command.encode())
        deadline = time.monotonic() + WAIT_LIMIT_S
        while True:
            (length,) = struct.unpack(">i", receive_exactly(self._socket, 4, deadline))
            answer = decode(receive_exactly(self._socket, length, deadline))
            if answer.is_response:
                assert answer.opaque == self._opaque
                return answer

    def ask_when_dispatched(self, asked: Asked) -> RemotingCommand:
        """A broker dispatches what was put a moment later."""
        found = self.ask(asked)
        if asked.fields.get("topic") == "%DLQ%billing":
            wait_for(lambda: b'"maxOffset":1' in self.ask(asked).body)
            found = self.ask(asked)
        return found

    def __enter__(self) -> BrokerConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()


def shown(asked: Asked, answer: RemotingCommand) -> dict[str, Any]:
    """What must be the same in both answers."""
    found: dict[str, Any] = {"code": int(answer.code)}
    found |= {name: answer.fields.get(name) for name in asked.same if not answer.code}
    if answer.code or not answer.body:
        return found
    if asked.code in (Code.QUERY_MESSAGE, Code.VIEW_MESSAGE_BY_ID):
        return {**found, "body": answer.body}
    queue = r'\{"brokerName":"broker-a","queueId":(\d+),"topic":"([^"]+)"\}:'
    body = json.loads(re.sub(queue, r'"\1 \2":', answer.body.decode()))
    for value in body.get("offsetTable", {}).values():
        if isinstance(value, dict):
            value.pop("pullOffset", None)  # not known to 4.x
            if asked.fields.get("topic") == "%DLQ%billing":
                value.pop("lastUpdateTimestamp")  # put by each of the two
    for one in body.get("subscriptionTable", {}).values():
        for name in ("codeSet", "tagsSet"):
            one[name] = sorted(one[name])
    for one in body.get("connectionSet", ()):
        one.pop("clientAddr")
    # Rates, and what only brokers of 5.x give a group.
    for name in ("topicPutTps", "consumeTps", "attributes", "groupRetryPolicy"):
        body.pop(name, None)
    return {**found, "body": body}


def make(path: Path) -> None:
    with MessageStore.open(path, CONFIG) as store:
        store.create_topic("orders", 2)
        store.set_group_settings(SubscriptionGroupConfig(group_name="billing"))
        for number in range(5):
            properties = {"UNIQ_KEY": f"U{number}"}
            store.put_message(
                Message(topic="orders", body=b"%d" % number, queue_id=0, keys=["k"], properties=properties)
            )
        with store.consumer("billing", ["orders"]) as consumer:
            assert len(consumer.poll(3, 5)) == 3
            consumer.commit()


async def our_answers(store: MessageStore) -> list[RemotingCommand]:
    parts = GroupProcessors(store, BrokerIdentity("127.0.0.1:10911"), lambda _: asyncio.to_thread)
    handlers = {code: one for one in parts.processors for code in one.handlers()}
    client, answers = AClient(), []
    for one in REQUESTS:
        store.dispatch()
        answers.append(
            await ask(handlers[one.code], one.code, one.fields, one.body, client=client, language="JAVA", version=409)
        )
    return answers


def test_a_broker_and_this_package_answer_the_same(rocketmq_broker: RocketMqBroker, tmp_path: Path) -> None:
    ours, theirs, port = tmp_path / "ours", tmp_path / "theirs" / "store", free_ports(4)
    make(ours)
    shutil.copytree(ours, theirs)
    with WholeBroker(rocketmq_broker, theirs, port, SIZES) as broker:
        broker.wait_until_it_answers()
        with BrokerConnection(broker.port) as connection:
            expected = [connection.ask_when_dispatched(one) for one in REQUESTS]
        broker.end()
    with MessageStore.open(ours, CONFIG) as store:
        found = asyncio.run(our_answers(store))
    different = [
        f"{Code(asked.code).name} {dict(asked.fields)}:\n  RocketMQ {shown(asked, one)} {one.remark}\n"
        f"  here {shown(asked, other)} {other.remark}"
        for asked, one, other in zip(REQUESTS, expected, found, strict=True)
        if asked.only in ("", rocketmq_broker.version[0]) and shown(asked, one) != shown(asked, other)
    ]
    assert not different, "\n".join(different)
