"""Unit mode of RocketMQ's clients: the flag of the topics that it creates, and the lists of topics with a flag."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import orjson
import pytest

from commitlog_store import Message, MessageStore, StoreReader
from commitlog_store.groups.group_settings import SubscriptionGroupConfig
from commitlog_store.serve.listen import ListenSettings
from commitlog_store.serve.rocketmq.broker import RocketMQBroker, RocketMQSettings
from commitlog_store.serve.rocketmq.codes import RequestCode
from commitlog_store.serve.rocketmq.consumer_groups import ConsumerGroups
from commitlog_store.serve.rocketmq.processors.send_back import SendBackProcessor
from commitlog_store.store import owned_by
from tests.store.serve.rocketmq.asking import ask, on_a_loop, readers_of
from tests.store.serve.rocketmq.brokers import broker, creation_fields
from tests.store.serve.rocketmq.name_servers import NameServerForTests, registered_topics
from tests.store.serve.rocketmq.remoting_client import RemotingClient, send_fields
from tests.store.serve.rocketmq.test_clients import heartbeat
from tests.support.waiting import wait_for

UNIT, UNIT_SUB = 1, 2


def flags_in(path: str | os.PathLike[str]) -> dict[str, int]:
    """topicSysFlag of each topic, as the file has it."""
    content = orjson.loads((Path(path) / "config" / "topics.json").read_bytes())
    return {topic: entry["topicSysFlag"] for topic, entry in content["topicConfigTable"].items()}


def consumer(group: str, *, unit_mode: bool) -> bytes:
    """The body of a heartbeat."""
    body = heartbeat(client=group, consumers={group: {"orders": "*"}})
    body["consumerDataSet"][0]["unitMode"] = unit_mode
    return orjson.dumps(body)


def create(client: RemotingClient, flags: Mapping[str, int]) -> None:
    """As ``mqadmin updateTopic -u true -s true`` does."""
    for topic, flag in flags.items():
        fields = creation_fields(topic=topic, topicSysFlag=flag)
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0


@pytest.mark.parametrize(
    ("topic", "flag"), [("orders", UNIT), ("%RETRY%billing", UNIT_SUB), ("%DLQ%billing", UNIT), ("plain", 0)]
)
def test_a_topic_that_a_send_creates_has_the_flag_of_its_producer(tmp_path: Path, topic: str, flag: int) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        assert client.send(topic, b"x", k="true" if flag else "false").code == 0
        assert flags_in(served.store.path) == {topic: flag}
        assert client.route(topic)["queueDatas"][0]["topicSysFlag"] == flag


def test_the_old_send_has_unit_mode_too(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        names = "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag properties"
        long_names = *names.split(), "reconsumeTimes", "unitMode"
        fields = dict(zip(long_names, send_fields("orders", k="true").values(), strict=True))
        assert client.ask(RequestCode.SEND_MESSAGE, fields, b"x").code == 0
        assert flags_in(served.store.path) == {"orders": UNIT}


def test_a_topic_that_exists_keeps_its_flag(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        client.send("plain", b"x")
        client.send("unit", b"x", k="true")
        client.ask(RequestCode.HEART_BEAT, body=consumer("billing", unit_mode=True))
        for _ in range(2):
            client.send("plain", b"x", k="true")
            client.send("unit", b"x", k="false")
            client.ask(RequestCode.HEART_BEAT, body=consumer("billing", unit_mode=False))
            served.store.put_message(Message(topic="unit", body=b"x", queue_id=20))  # more queues to read
            assert flags_in(served.store.path) == {"plain": 0, "unit": UNIT, "%RETRY%billing": UNIT_SUB}
    with MessageStore.open(tmp_path / "s"):
        assert flags_in(tmp_path / "s") == {"plain": 0, "unit": UNIT, "%RETRY%billing": UNIT_SUB}


def test_a_list_that_is_gone_is_written_again_with_its_flags(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        client.send("unit", b"x", k="true")
        for name in ("topics.json", "topics.json.bak"):
            (tmp_path / "s" / "config" / name).unlink(missing_ok=True)
        client.send("plain", b"x")
        assert flags_in(served.store.path) == {"plain": 0, "unit": UNIT}


def test_the_retry_topic_has_the_flag_of_its_consumers(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        assert client.ask(RequestCode.HEART_BEAT, body=consumer("unit", unit_mode=True)).code == 0
        assert client.ask(RequestCode.HEART_BEAT, body=consumer("plain", unit_mode=False)).code == 0
        assert flags_in(served.store.path) == {"%RETRY%unit": UNIT_SUB, "%RETRY%plain": 0}
        assert client.route("%RETRY%unit")["queueDatas"][0]["topicSysFlag"] == UNIT_SUB


def test_a_pull_before_the_first_heartbeat_leaves_the_retry_topic_to_it(tmp_path: Path) -> None:
    """As with a broker: a pull does not say whether its consumer is in unit mode."""
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        client.send("orders", b"x")
        served.store.dispatch()
        assert client.pull("orders", 0, 0, consumerGroup="unit").code == 0
        assert [one.group_name for one in served.store.reader().group_settings()] == ["unit"]
        assert flags_in(served.store.path) == {"orders": 0}
        assert client.ask(RequestCode.HEART_BEAT, body=consumer("unit", unit_mode=True)).code == 0
        assert flags_in(served.store.path) == {"orders": 0, "%RETRY%unit": UNIT_SUB}


@on_a_loop
async def test_a_message_that_is_sent_back_creates_the_retry_topic_with_the_flag(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        store.set_group_settings(SubscriptionGroupConfig(group_name="billing"))
        put = store.put_message(Message(topic="orders", body=b"x"))
        readers, owned = readers_of(store), owned_by(store)
        processor = SendBackProcessor(owned, ConsumerGroups(owned, readers), readers, asyncio.to_thread)
        fields = {"offset": put.physical_offset, "group": "billing", "unitMode": "true"}
        for level in (0, -1):
            answer = await ask(processor, RequestCode.CONSUMER_SEND_MSG_BACK, {**fields, "delayLevel": level})
            assert not answer.code
        assert flags_in(tmp_path) == {"orders": 0, "%RETRY%billing": UNIT_SUB, "%DLQ%billing": 0}


def test_topics_are_listed_by_their_flags(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        create(client, {"plain": 0, "both": UNIT | UNIT_SUB, "sub": UNIT_SUB, "unit": UNIT})
        expected = {
            RequestCode.GET_UNIT_TOPIC_LIST: ["both", "unit"],
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: ["both", "sub"],
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: ["sub"],
        }
        for code, topics in expected.items():
            answer = client.ask(code)
            assert (answer.code, orjson.loads(answer.body)) == (0, {"topicList": topics})


def test_an_answer_to_a_pull_has_the_flag_of_its_topic(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        client.send("orders", b"x", k="true")
        served.store.dispatch()
        assert client.pull("orders", 0, 0).fields["topicSysFlag"] == str(UNIT)


def test_a_changed_flag_is_registered_with_name_servers(tmp_path: Path) -> None:
    with NameServerForTests() as server, MessageStore.open(tmp_path) as store:
        listen = ListenSettings.parse("127.0.0.1:0")
        names = (ListenSettings.parse(server.address),)
        served = RocketMQBroker(store, RocketMQSettings(listen=listen, name_servers=names))
        served.start()
        try:
            with RemotingClient(served.address) as client:
                client.send("orders", b"x")
                wait_for(lambda: "orders" in server.topics())
                create(client, {"orders": UNIT})
                wait_for(lambda: registered_topics(server.requests[-1])["orders"]["topicSysFlag"] == UNIT)
        finally:
            served.stop(5.0)


@pytest.mark.parametrize("flag", [None, "1", 1.5, True, 2**31])
def test_a_flag_that_is_no_int_refuses_no_put(tmp_path: Path, flag: object) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        store.put("a", b"x")
    topics = tmp_path / "store" / "config" / "topics.json"
    content = orjson.loads(topics.read_text())
    content["topicConfigTable"]["a"]["topicSysFlag"] = flag
    topics.write_bytes(orjson.dumps(content))
    with MessageStore.open(tmp_path / "store") as store, StoreReader.open(tmp_path / "store") as reader:
        store.put("b", b"x")
        assert {one.topic_sys_flag for one in reader.topic_settings().values()} == {0}
