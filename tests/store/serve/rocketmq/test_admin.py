"""Topics, groups and the broker, as mqadmin asks for them and changes them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from commitlog_store import Message, MessageStore, StoreReader
from commitlog_store.format.record import Record, decode_record
from commitlog_store.groups.group_settings import SubscriptionGroupConfig
from commitlog_store.serve.rocketmq import client_calls
from commitlog_store.serve.rocketmq.answering import RequestFault
from commitlog_store.serve.rocketmq.broker_identity import BrokerIdentity
from commitlog_store.serve.rocketmq.client_calls import ClientCalls
from commitlog_store.serve.rocketmq.clients import ClientRegistry, HeartbeatData
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.consumer_groups import ConsumerGroups
from commitlog_store.serve.rocketmq.processors.broker_admin import BrokerAdminProcessor
from commitlog_store.serve.rocketmq.processors.consumer_admin import ConsumerAdminProcessor
from commitlog_store.serve.rocketmq.processors.group_admin import GroupAdminProcessor
from commitlog_store.serve.rocketmq.processors.topic_admin import TopicAdminProcessor
from commitlog_store.serve.rocketmq.request_times import CreationTimes
from commitlog_store.store import owned_by
from tests.store.serve.rocketmq.asking import AClient, ask, eventually, on_a_loop, readers_of
from tests.store.serve.rocketmq.brokers import creation_fields
from tests.store.serve.rocketmq.test_clients import heartbeat

IDENTITY = BrokerIdentity("127.0.0.1:10911")


@dataclass
class Admin:
    store: MessageStore
    registry: ClientRegistry
    calls: ClientCalls
    topics: TopicAdminProcessor
    groups: GroupAdminProcessor
    broker: BrokerAdminProcessor
    consumers: ConsumerAdminProcessor


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Admin]:
    with MessageStore.open(tmp_path) as store:
        store.create_topic("orders", 2)
        readers, registry, calls = readers_of(store), ClientRegistry(), ClientCalls()
        groups, thread = ConsumerGroups(owned_by(store), readers), asyncio.to_thread
        yield Admin(
            store,
            registry,
            calls,
            TopicAdminProcessor(store, IDENTITY, groups, readers, thread, CreationTimes()),
            GroupAdminProcessor(store, IDENTITY, registry, groups, readers, thread, CreationTimes()),
            BrokerAdminProcessor(store, IDENTITY, readers, thread),
            ConsumerAdminProcessor(store, IDENTITY, registry, calls, groups, readers, thread),
        )


def table_of(body: bytes, name: str = "offsetTable") -> dict[tuple[str, int], Any]:
    """A table whose names are queues, as fastjson reads it: ``{{"brokerName":...,"queueId":0,"topic":"t"}:...}``."""
    quoted = re.sub(rb'\{"brokerName":"broker-a","queueId":(\d+),"topic":"([^"]+)"\}:', rb'"\1 \2":', body)
    found = {}
    for place, value in json.loads(quoted)[name].items():
        queue_id, topic = place.split(" ", 1)
        found[topic, int(queue_id)] = value
    return found


def fill(store: MessageStore, count: int = 3, queue_id: int = 0) -> None:
    for number in range(count):
        store.put_message(Message(topic="orders", body=b"%d" % number, queue_id=queue_id))
    store.dispatch()


def consume(store: MessageStore, count: int, group: str = "billing") -> None:
    with store.consumer(group, ["orders"]) as consumer:
        assert len(consumer.poll(count, 5)) == count
        consumer.commit()


def settings_of(store: MessageStore, topic: str) -> tuple[int, int, int]:
    with store.reader() as reader:
        found = reader.topic_settings()[topic]
        return found.write_queue_nums, found.read_queue_nums, found.perm


@on_a_loop
async def test_a_topic_is_created_and_changed_and_puts_obey_at_once(admin: Admin) -> None:
    topics, store = admin.topics, admin.store
    assert not (await ask(topics, RequestCode.UPDATE_AND_CREATE_TOPIC, creation_fields())).code
    assert settings_of(store, "paid") == (4, 8, 6)
    changed = creation_fields(readQueueNums=2, writeQueueNums=1, perm=4, attributes="+message.type=FIFO", order="true")
    assert not (await ask(topics, RequestCode.UPDATE_AND_CREATE_TOPIC, changed)).code
    assert settings_of(store, "paid") == (1, 2, 4)
    assert store.put_message(Message(topic="paid", body=b"x")).status.value == "MESSAGE_ILLEGAL"
    answer = await ask(topics, RequestCode.GET_TOPIC_CONFIG, {"topic": "paid"})
    expected = {"topicName": "paid", "order": True, "perm": 4, "attributes": {"message.type": "FIFO"}}
    assert expected.items() <= json.loads(answer.body).items()
    dropped = creation_fields(attributes="-message.type")
    assert not (await ask(topics, RequestCode.UPDATE_AND_CREATE_TOPIC, dropped)).code
    answer = await ask(topics, RequestCode.GET_TOPIC_CONFIG, {"topic": "paid"})
    assert json.loads(answer.body)["attributes"] == {}
    with StoreReader.open(store.path) as reader:
        assert reader.topic_settings()["paid"].write_queue_nums == 4


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, "system topic"),
        ({"topic": "no/topic"}, "no/topic"),
        ({"topic": ""}, "system topic"),
        ({"writeQueueNums": 0}, "65536"),
        ({"writeQueueNums": 70_000}, "65536"),
        ({"perm": -1}, "perm"),
        ({"readQueueNums": "many"}, "<readQueueNums>"),
        ({"attributes": "message.type=FIFO"}, "attributes"),
        ({"attributes": "+queue.type=BatchCQ"}, "queue.type"),
    ],
)
def test_a_topic_that_cannot_be_is_refused(admin: Admin, fields: dict[str, object], said: str) -> None:
    @on_a_loop
    async def check() -> None:
        answer = await ask(admin.topics, RequestCode.UPDATE_AND_CREATE_TOPIC, creation_fields(**fields))
        assert answer.code in (ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR)
        assert said.replace("65536", "65") in str(answer.remark).replace(",", "")
        with admin.store.reader() as reader:
            assert list(reader.topic_settings()) == ["orders"]

    check()


@on_a_loop
async def test_topics_are_listed_and_deleted_with_their_messages(admin: Admin) -> None:
    fill(admin.store)
    answer = await ask(admin.topics, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert json.loads(answer.body) == {"topicList": ["orders"]}
    answer = await ask(admin.topics, RequestCode.GET_ALL_TOPIC_CONFIG)
    body = json.loads(answer.body)
    assert body["topicConfigTable"]["orders"]["writeQueueNums"] == 2
    assert body["dataVersion"]["counter"] > 0
    assert answer.fields == {"totalTopicNum": "1"}
    for _ in range(2):  # the second one finds none, as with a broker
        for code in (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_TOPIC_IN_NAMESRV):
            assert not (await ask(admin.topics, code, {"topic": "orders"})).code
    answer = await ask(admin.topics, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert json.loads(answer.body) == {"topicList": []}
    for code in (RequestCode.GET_TOPIC_CONFIG, RequestCode.GET_TOPIC_STATS_INFO):
        assert (await ask(admin.topics, code, {"topic": "orders"})).code == ResponseCode.TOPIC_NOT_EXIST
    refused = await ask(admin.topics, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "rmq_sys_wheel_timer"})
    assert refused.code == ResponseCode.INVALID_PARAMETER


@on_a_loop
async def test_the_state_of_a_topic_has_each_queue_also_the_empty_ones(admin: Admin) -> None:
    fill(admin.store)
    answer = await ask(admin.topics, RequestCode.GET_TOPIC_STATS_INFO, {"topic": "orders"})
    table = table_of(answer.body)
    with admin.store.reader() as reader:
        stored = reader.store_timestamp("orders", 0, 2)
    assert table["orders", 0] == {"minOffset": 0, "maxOffset": 3, "lastUpdateTimestamp": stored}
    assert table["orders", 1] == {"minOffset": 0, "maxOffset": 0, "lastUpdateTimestamp": 0}


@pytest.mark.parametrize("number", [1, 2])
def test_a_group_that_is_deleted_as_soon_as_it_is_created_is_not_taken_for_created(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    owned = owned_by(admin.store)
    groups = ConsumerGroups(owned, readers_of(admin.store))
    run, jobs = owned.engine.run, itertools.count(1)

    def run_and_delete(work: Callable[[], object]) -> object:
        """Another client's deletion comes right after one of the jobs."""
        done = run(work)
        if next(jobs) == number:
            run(lambda: owned.groups.subscription_groups.remove("billing"))
            groups.forget("billing")
        return done

    with monkeypatch.context() as patch, contextlib.suppress(RequestFault):
        patch.setattr(owned.engine, "run", run_and_delete)
        groups.create("billing")
    assert groups.is_created("billing") is groups.is_ready("billing") is groups.has_group("billing")
    groups.create("billing")
    assert groups.has_group("billing")


@on_a_loop
async def test_a_group_is_created_changed_listed_and_deleted(admin: Admin) -> None:
    body = {"groupName": "billing", "retryMaxTimes": 3, "consumeEnable": True, "groupRetryPolicy": {"type": "x"}}
    assert not (await ask(admin.groups, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)).code
    answer = await ask(admin.groups, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "billing"})
    assert json.loads(answer.body)["retryMaxTimes"] == 3
    answer = await ask(admin.groups, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    found = json.loads(answer.body)
    assert found["subscriptionGroupTable"]["billing"]["groupName"] == "billing"
    assert found["dataVersion"]["counter"] == 1
    fill(admin.store)
    consume(admin.store, 2)
    gone = {"groupName": "billing", "cleanOffset": "true"}
    assert not (await ask(admin.groups, RequestCode.DELETE_SUBSCRIPTIONGROUP, gone)).code
    with StoreReader.open(admin.store.path) as reader:
        assert reader.group_settings() == []
        assert reader.group_offsets("billing") == {}
    answer = await ask(admin.groups, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "billing"})
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    refused = await ask(admin.groups, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body={"groupName": "a b"})
    assert refused.code == ResponseCode.INVALID_PARAMETER


@on_a_loop
async def test_the_progress_of_a_group_and_who_consumes_a_topic(admin: Admin) -> None:
    fill(admin.store)
    consume(admin.store, 2)
    answer = await ask(admin.groups, RequestCode.GET_CONSUME_STATS, {"consumerGroup": "billing"})
    table = table_of(answer.body)
    with admin.store.reader() as reader:
        stored = reader.store_timestamp("orders", 0, 1)
    expected = {"brokerOffset": 3, "consumerOffset": 2, "pullOffset": 2, "lastTimestamp": stored}
    assert table["orders", 0] == expected
    assert table["orders", 1]["brokerOffset"] == table["orders", 1]["consumerOffset"] == 0
    data = msgspec.convert(heartbeat(consumers={"shipping": {"orders": "*"}}), HeartbeatData)
    admin.registry.heartbeat(AClient(), data, "JAVA", 409)
    answer = await ask(admin.groups, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "orders"})
    assert json.loads(answer.body) == {"groupList": ["billing", "shipping"]}
    answer = await ask(admin.groups, RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "billing"})
    assert "orders" in json.loads(answer.body)["topicList"]
    answer = await ask(admin.groups, RequestCode.GET_ALL_CONSUMER_OFFSET)
    assert b'"orders@billing":{0:2' in answer.body
    # Topics that connected consumers do not subscribe to are left out.
    other = msgspec.convert(heartbeat(consumers={"billing": {"other": "*"}}), HeartbeatData)
    admin.registry.heartbeat(AClient(2), other, "JAVA", 409)
    answer = await ask(admin.groups, RequestCode.GET_CONSUME_STATS, {"consumerGroup": "billing"})
    assert table_of(answer.body) == {}


@on_a_loop
async def test_the_clients_of_a_group_are_shown(admin: Admin) -> None:
    data = heartbeat(client="10.0.0.1@7", consumers={"billing": {"orders": "paid||sent"}}, producers=["payments"])
    admin.registry.heartbeat(AClient(7), msgspec.convert(data, HeartbeatData), "JAVA", 409)
    answer = await ask(admin.groups, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "billing"})
    body = json.loads(answer.body)
    one = {"clientAddr": "10.0.0.1:7", "clientId": "10.0.0.1@7", "language": "JAVA", "version": 409}
    assert body["connectionSet"] == [one]
    assert (body["consumeType"], body["messageModel"]) == ("CONSUME_PASSIVELY", "CLUSTERING")
    wanted = body["subscriptionTable"]["orders"]
    assert sorted(wanted["tagsSet"]) == ["paid", "sent"]
    assert len(wanted["codeSet"]) == 2
    answer = await ask(admin.groups, RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "payments"})
    assert json.loads(answer.body)["connectionSet"] == [one]
    answer = await ask(admin.groups, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "none"})
    assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
    answer = await ask(admin.groups, RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "none"})
    assert answer.code == ResponseCode.SYSTEM_ERROR


@on_a_loop
async def test_a_reset_moves_the_positions_of_the_store_and_tells_connected_consumers(admin: Admin) -> None:
    fill(admin.store)
    consume(admin.store, 3)
    java, cpp = AClient(1), AClient(2)
    data = msgspec.convert(heartbeat(consumers={"billing": {"orders": "*"}}), HeartbeatData)
    admin.registry.heartbeat(java, data, "JAVA", 409)
    admin.registry.heartbeat(cpp, data, "CPP", 409)
    await eventually(lambda: java.received)
    java.received.clear()
    cpp.received.clear()
    reset = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    header = {"topic": "orders", "group": "billing", "timestamp": 0, "isForce": "true"}
    answer = await ask(admin.consumers, reset, header)
    assert table_of(answer.body) == {("orders", 0): 0, ("orders", 1): 0}
    with admin.store.consumer("billing", ["orders"]) as consumer:
        assert len(consumer.poll(9, 5)) == 3
    (sent,) = java.received
    assert sent.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    assert sent.is_one_way
    assert table_of(sent.body) == {("orders", 0): 0, ("orders", 1): 0}
    assert sent.fields == {"topic": "orders", "group": "billing", "timestamp": "0", "isForce": "true"}
    (sent,) = cpp.received
    assert json.loads(sent.body)["offsetTable"][0] == {**IDENTITY.queue("orders", 0), "offset": 0}
    # Without force, forward is not a reset.
    answer = await ask(admin.consumers, reset, {**header, "timestamp": -1, "isForce": "false"})
    assert table_of(answer.body)["orders", 0] == 0
    answer = await ask(admin.consumers, reset, {**header, "timestamp": -1})
    assert table_of(answer.body)["orders", 0] == 3
    answer = await ask(admin.consumers, reset, {**header, "queueId": 0, "offset": 1})
    assert table_of(answer.body) == {("orders", 0): 1}


@on_a_loop
async def test_a_reset_that_cannot_be_moves_nothing(admin: Admin) -> None:
    fill(admin.store)
    consume(admin.store, 2)
    reset = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    header = {"topic": "orders", "group": "billing", "timestamp": 0, "isForce": "true"}
    for wrong, code in (
        ({"group": "none"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 5}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 0, "offset": 9}, ResponseCode.SYSTEM_ERROR),
        ({"timestamp": "then"}, ResponseCode.SYSTEM_ERROR),
    ):
        answer = await ask(admin.consumers, reset, {**header, **wrong})
        assert answer.code == code, answer.remark
    assert owned_by(admin.store).groups.offsets.get("billing", "orders")[0] == 2


@on_a_loop
async def test_a_request_goes_on_to_a_consumer_and_its_answer_back(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = admin.store.put_message(Message(topic="orders", body=b"x"))
    client = AClient()
    data = msgspec.convert(heartbeat(client="c", consumers={"billing": {"orders": "*"}}), HeartbeatData)
    admin.registry.heartbeat(client, data, "JAVA", 409)
    await eventually(lambda: client.received)
    client.received.clear()
    fields = {"consumerGroup": "billing", "clientId": "c", "msgId": put.message_id, "brokerName": "x"}
    asked_bodies = []
    for code in (RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY):
        asking = asyncio.ensure_future(ask(admin.consumers, code, fields))
        await eventually(lambda: client.received)
        asked = client.received.pop()
        assert asked.code == code
        assert asked.fields["brokerName"] == ("x" if code == RequestCode.GET_CONSUMER_RUNNING_INFO else "broker-a")
        asked_bodies.append(asked.body)
        assert not asked.is_one_way
        admin.calls.answered(asked.answer(0, "mine", fields={"a": "1"}, body=b"{}"), AClient(9))  # another's
        assert not asking.done()
        admin.calls.answered(asked.answer(0, "mine", fields={"a": "1"}, body=b"{}"), client)
        answer = await asking
        assert (answer.remark, answer.fields, answer.body) == ("mine", {"a": "1"}, b"{}")
    record = decode_record(asked_bodies[1])
    assert isinstance(record, Record)
    assert record.body == b"x"
    asking = asyncio.ensure_future(ask(admin.consumers, RequestCode.GET_CONSUMER_RUNNING_INFO, fields))
    await eventually(lambda: client.received)
    admin.consumers.connection_lost(client)
    assert (await asking).code == ResponseCode.SYSTEM_ERROR
    monkeypatch.setattr(client_calls, "ANSWER_TIMEOUT_S", 0.01)
    answer = await ask(admin.consumers, RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
    assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert not admin.calls._waiting
    answer = await ask(admin.consumers, RequestCode.GET_CONSUMER_RUNNING_INFO, {**fields, "clientId": "other"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    answer = await ask(admin.consumers, RequestCode.CONSUME_MESSAGE_DIRECTLY, {**fields, "msgId": "none"})
    assert answer.code == ResponseCode.INVALID_PARAMETER


@on_a_loop
async def test_the_broker_says_who_it_is_and_how_it_is(admin: Admin) -> None:
    fill(admin.store)
    answer = await ask(admin.broker, RequestCode.GET_BROKER_CLUSTER_INFO)
    assert b'"brokerAddrs":{0:"127.0.0.1:10911"}' in answer.body
    assert b'"clusterAddrTable":{"DefaultCluster":["broker-a"]}' in answer.body
    answer = await ask(admin.broker, RequestCode.GET_BROKER_CONFIG)
    lines = dict(line.split("=", 1) for line in answer.body.decode().splitlines())
    assert lines["brokerName"] == "broker-a"
    assert lines["flushDiskType"] == "ASYNC_FLUSH"
    assert lines["messageIndexEnable"] == "true"
    assert lines["listenPort"] == "10911"
    admin.store.put_message(Message(topic="orders", body=b"later", delay_level=18))
    admin.store.dispatch()
    answer = await ask(admin.broker, RequestCode.GET_ALL_DELAY_OFFSET)
    assert answer.body == b'{"offsetTable":{18:0}}'
    answer = await ask(admin.broker, RequestCode.GET_BROKER_RUNTIME_INFO)
    table = json.loads(answer.body)["table"]
    assert all(isinstance(value, str) for value in table.values())
    assert table["msgPutTotalTodayNow"] == "4"
    assert float(table["putTps"].split()[0]) >= 0.0
    assert int(table["earliestMessageTimeStamp"]) > 0
    assert 0.0 < float(table["commitLogDiskRatio"]) < 1.0


@on_a_loop
async def test_settings_that_the_program_changes_are_seen_at_once(admin: Admin) -> None:
    admin.store.set_group_settings(SubscriptionGroupConfig(group_name="billing", retry_max_times=7))
    answer = await ask(admin.groups, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "billing"})
    assert json.loads(answer.body)["retryMaxTimes"] == 7
    admin.store.create_topic("later", 3)
    answer = await ask(admin.topics, RequestCode.GET_TOPIC_CONFIG, {"topic": "later"})
    assert json.loads(answer.body)["readQueueNums"] == 3
