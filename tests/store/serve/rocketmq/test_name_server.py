"""A broker registers with name servers: at once, with each new topic, after a lost connection; and it leaves them."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from commitlog_store import MessageStore, MessageStoreConfig
from commitlog_store.format.remoting_command import decode
from commitlog_store.serve.listen import ListenSettings
from commitlog_store.serve.rocketmq import name_server as name_server_module
from commitlog_store.serve.rocketmq.broker import RocketMQBroker, RocketMQSettings
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.name_server import ha_server_address
from tests.store.serve.rocketmq.name_servers import NameServerForTests, registered_topics
from tests.store.serve.rocketmq.remoting_client import RemotingClient
from tests.store.serve.rocketmq.test_golden_frames import golden
from tests.support.waiting import wait_for


@contextlib.contextmanager
def _broker(path: Path, *servers: str, config: MessageStoreConfig | None = None) -> Iterator[tuple[MessageStore, str]]:
    with MessageStore.open(path, config) as store:
        names = tuple(ListenSettings.parse(one) for one in servers)
        served = RocketMQBroker(store, RocketMQSettings(listen=ListenSettings.parse("127.0.0.1:0"), name_servers=names))
        served.start()
        try:
            yield store, served.address
        finally:
            served.stop(5.0)


@pytest.fixture
def name_server() -> Iterator[NameServerForTests]:
    with NameServerForTests() as server:
        yield server


def test_a_broker_registers_and_leaves(tmp_path: Path, name_server: NameServerForTests) -> None:
    with _broker(tmp_path / "s", name_server.address) as (store, address):
        store.create_topic("orders", 3)
        wait_for(lambda: "orders" in name_server.topics())
    first, last = name_server.requests[0], name_server.requests[-1]
    expected = {"brokerAddr": address, "brokerId": "0", "brokerName": "broker-a", "clusterName": "DefaultCluster"}
    assert expected.items() <= dict(first.fields).items()
    assert (last.code, dict(last.fields)) == (RequestCode.UNREGISTER_BROKER, expected)


def test_a_registration_is_as_a_broker_of_rocketmq_5_sends_it(tmp_path: Path, name_server: NameServerForTests) -> None:
    """By the frames that a real broker sent to a real name server, which took them."""
    theirs = next(decode(one.request) for one in golden("broker-5.3.3") if one.code == RequestCode.REGISTER_BROKER)
    with _broker(tmp_path / "s", name_server.address):
        wait_for(lambda: name_server.requests)
    ours = name_server.requests[0]
    assert theirs.fields.keys() - ours.fields.keys() == {"enableActingMaster"}  # may be null
    assert ours.fields.keys() <= theirs.fields.keys()
    their_body, our_body = orjson.loads(theirs.body), orjson.loads(ours.body)
    assert our_body.keys() == their_body.keys()
    wrapper = "topicConfigSerializeWrapper"
    assert our_body[wrapper]["dataVersion"].keys() == their_body[wrapper]["dataVersion"].keys()
    (entry,) = registered_topics(theirs).values()
    for topic in registered_topics(ours).values():
        assert {name: type(value) for name, value in topic.items()} == {
            name: type(value) for name, value in entry.items() if name != "attributes"
        }


def test_the_address_of_replication_is_registered_for_slaves(tmp_path: Path, name_server: NameServerForTests) -> None:
    """A slave of RocketMQ 5 connects there: at the port of clients it would never follow."""
    config = MessageStoreConfig(ha_listen_address="127.0.0.1:0")
    with _broker(tmp_path / "s", name_server.address, config=config) as (store, _):
        wait_for(lambda: name_server.requests)
        assert dict(name_server.requests[0].fields)["haServerAddr"] == store.ha_address


@pytest.mark.parametrize(
    ("broker", "replication", "registered"),
    [
        ("127.0.0.1:10911", None, "127.0.0.1:10912"),  # as a broker of RocketMQ registers by default
        ("127.0.0.1:10911", "127.0.0.1:7000", "127.0.0.1:7000"),
        ("10.0.0.5:10911", "10.1.0.5:7000", "10.1.0.5:7000"),
        ("10.0.0.5:10911", "0.0.0.0:7000", "10.0.0.5:7000"),
        ("10.0.0.5:10911", "127.0.0.1:7000", "10.0.0.5:7000"),  # another host's slave must not find itself
        ("[fd00::5]:10911", "[::]:7000", "[fd00::5]:7000"),
        ("10.0.0.5:65535", None, "10.0.0.5:65535"),  # nothing is there in any case
    ],
)
def test_the_registered_address_is_one_that_slaves_reach(broker: str, replication: str | None, registered: str) -> None:
    assert ha_server_address(broker, replication) == registered


@pytest.mark.parametrize("replication", [None, "0.0.0.0:10912", "10.1.0.5:10912"])
def test_slaves_are_sent_to_the_brokers_second_address(replication: str | None) -> None:
    """RocketMQ's brokerIP2: slaves may have a network of their own."""
    assert ha_server_address("10.0.0.5:10911", replication, "10.9.9.9") == "10.9.9.9:10912"


def test_replication_that_no_other_host_reaches_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    for broker, replication in (("127.0.0.1:10911", "127.0.0.1:7000"), ("10.0.0.5:10911", "10.0.0.5:7000")):
        ha_server_address(broker, replication)
    assert not caplog.records
    ha_server_address("10.0.0.5:10911", "127.0.0.1:7000")
    assert "Set haListenAddress and haAllow" in caplog.text


def test_a_new_topic_is_registered_at_once(tmp_path: Path, name_server: NameServerForTests) -> None:
    with _broker(tmp_path / "s", name_server.address) as (_, address), RemotingClient(address) as client:
        wait_for(lambda: name_server.requests)
        client.send("orders", b"x", d=3)
        wait_for(lambda: "orders" in name_server.topics())
        entry = registered_topics(name_server.requests[-1])["orders"]
        assert (entry["writeQueueNums"], entry["readQueueNums"], entry["perm"]) == (3, 3, 6)
        counters = [
            orjson.loads(one.body)["topicConfigSerializeWrapper"]["dataVersion"]["counter"]
            for one in name_server.requests
        ]
        assert counters == sorted(set(counters))


def test_after_a_lost_connection_it_registers_again(tmp_path: Path, name_server: NameServerForTests) -> None:
    with _broker(tmp_path / "s", name_server.address):
        wait_for(lambda: len(name_server.requests) == 1)
        name_server.drop()
        wait_for(lambda: len(name_server.requests) == 2)


def test_it_registers_again_every_30_seconds(
    tmp_path: Path, name_server: NameServerForTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that hears nothing for two minutes takes the broker out of its routes."""
    assert name_server_module.PERIOD_S == 30
    monkeypatch.setattr(name_server_module, "PERIOD_S", 0.1)
    with _broker(tmp_path / "s", name_server.address):
        wait_for(lambda: [one.code for one in name_server.requests].count(RequestCode.REGISTER_BROKER) >= 3)


def test_a_name_server_that_is_away_is_asked_again_and_logged_once(
    tmp_path: Path,
    name_server: NameServerForTests,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(name_server_module, "_LOOK_S", 0.02)
    with socket.create_server(("127.0.0.1", 0)) as free:
        away = f"127.0.0.1:{free.getsockname()[1]}"
    name_server.code = ResponseCode.SYSTEM_ERROR
    with caplog.at_level(logging.WARNING), _broker(tmp_path / "s", away, name_server.address) as (_, address):
        wait_for(lambda: len(name_server.requests) >= 2)
        with RemotingClient(address) as client:
            assert client.send("orders", b"served all the same").code == 0
    said = [record.getMessage() for record in caplog.records if "registration" in record.getMessage()]
    assert len(said) == 2
    assert any("it answers 1: refused" in one for one in said)
    assert any(away in one for one in said)


def test_topics_that_producers_start_with_are_registered(tmp_path: Path, name_server: NameServerForTests) -> None:
    """Without the route of TBW102 in the name server no producer could begin a topic."""
    with _broker(tmp_path / "s", name_server.address):
        wait_for(lambda: name_server.requests)
        entry = registered_topics(name_server.requests[0])["TBW102"]
        assert (entry["perm"], entry["writeQueueNums"]) == (7, 8)
