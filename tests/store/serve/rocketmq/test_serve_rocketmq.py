"""``commitlog serve --rocketmq``: the command, its start and its end."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from commitlog_store import MessageStore, MessageStoreConfig, SubscriptionGroupConfig
from commitlog_store.files.local_address import local_address
from commitlog_store.format.message_id import decode_message_id
from commitlog_store.serve.listen import ListenSettings
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.run import ServeRequest
from tests.store.serve.memory import resident_mib
from tests.store.serve.rocketmq.brokers import broker
from tests.store.serve.rocketmq.name_servers import NameServerForTests
from tests.store.serve.rocketmq.remoting_client import RemotingClient, batch_body, send_fields
from tests.store.serve.rocketmq.signed_client import SignedClient
from tests.store.serve.rocketmq.test_clients import heartbeat
from tests.store.serve.servers import ServeProcess
from tests.support.clean_store import assert_clean
from tests.support.waiting import WAIT_LIMIT_S, wait_for


def test_a_client_finds_the_broker_and_its_messages_stay(tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "s", "--rocketmq", "127.0.0.1:0", new_interpreter=True) as server:
        with RemotingClient(server.broker) as client:
            (data,) = client.route("TBW102")["brokerDatas"]
            assert data["brokerAddrs"] == {"0": server.broker}
            assert client.send("orders", b"kept").code == 0
        code, said = server.stop(signal.SIGTERM)
        assert (code, "stopping" in said) == (0, True)
    assert_clean(tmp_path / "s")
    with MessageStore.open(tmp_path / "s") as store:
        assert store.get_message("orders", 0, 0).messages[0].body == b"kept"


def test_the_advertised_address_is_in_routes_and_message_ids(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = ("--rocketmq", f"127.0.0.1:{port}", "--advertise", "192.0.2.7")
    with ServeProcess(tmp_path / "s", *arguments) as server, RemotingClient(f"127.0.0.1:{port}") as client:
        assert server.broker == "192.0.2.7:10911"
        assert client.route("TBW102")["brokerDatas"][0]["brokerAddrs"] == {"0": "192.0.2.7:10911"}
        place = decode_message_id(client.send("orders", b"x").fields["msgId"])
        assert (place.host, place.port) == (bytes([192, 0, 2, 7]), 10911)


@pytest.mark.parametrize(("own", "expected"), [("", None), ("brokerIP1=192.0.2.7\n", "192.0.2.7")])
def test_a_broker_that_listens_on_all_addresses_has_one_that_clients_reach(
    tmp_path: Path, own: str, expected: str | None
) -> None:
    """No client on another host can connect to 0.0.0.0: the address is brokerIP1, or the machine's own."""
    acl, config = tmp_path / "plain_acl.yml", tmp_path / "broker.conf"
    acl.write_text("globalWhiteRemoteAddresses:\n- 127.0.0.1\n")
    config.write_text(own)
    arguments = ("--rocketmq", "0.0.0.0:0", "--acl", str(acl), "--config", config)
    with ServeProcess(tmp_path / "s", *arguments) as server:
        host, _, port = server.broker.rpartition(":")
        assert host == (expected or local_address())
        with RemotingClient(f"127.0.0.1:{port}") as client:
            assert client.route("TBW102")["brokerDatas"][0]["brokerAddrs"] == {"0": f"{host}:{port}"}
            place = decode_message_id(client.send("orders", b"x").fields["msgId"])
            assert (socket.inet_ntoa(place.host), place.port) == (host, int(port))


def test_an_advertised_address_has_precedence_over_that_of_the_brokers_file() -> None:
    request = ServeRequest(
        stores=["/data/store"],
        listen=ListenSettings.parse("127.0.0.1:0"),
        rocketmq="0.0.0.0:10911",
        advertise="192.0.2.7:7000",
        config=MessageStoreConfig(broker_ip="10.0.0.7"),
    )
    assert request.store_config(ListenSettings.parse("192.0.2.7:7000")).store_host == "192.0.2.7:7000"


def test_slaves_find_the_log_at_the_second_address_of_the_brokers_file(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("brokerIP2=192.0.2.8\n")
    with NameServerForTests() as name_server:
        options = ("--rocketmq", "127.0.0.1:0", "--namesrv", name_server.address, "--config", config)
        with ServeProcess(tmp_path / "s", *options) as server:
            wait_for(lambda: name_server.requests)
            port = int(server.broker.rpartition(":")[2])
            assert name_server.requests[0].fields["haServerAddr"] == f"192.0.2.8:{port + 1}"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_message_ids_name_the_brokers_address(tmp_path: Path, host: str) -> None:
    """By which clients ask for messages: an ip, and the port that was taken for port 0."""
    with (
        ServeProcess(tmp_path / "s", "--rocketmq", f"{host}:0") as server,
        RemotingClient(server.broker) as client,
    ):
        place = decode_message_id(client.send("orders", b"x").fields["msgId"])
        assert (place.host, place.port) == (bytes([127, 0, 0, 1]), int(server.broker.rpartition(":")[2]))


def test_names_of_a_brokers_file_are_those_of_the_broker(tmp_path: Path) -> None:
    """Positions of clients in broadcasting, and mqadmin's -c, are by these names."""
    config = tmp_path / "broker.conf"
    config.write_text("brokerName=orders-b\nbrokerClusterName=shop\n")
    with (
        ServeProcess(tmp_path / "s", "--rocketmq", "127.0.0.1:0", "--config", config) as server,
        RemotingClient(server.broker) as client,
    ):
        (data,) = client.route("TBW102")["brokerDatas"]
        assert (data["brokerName"], data["cluster"]) == ("orders-b", "shop")
        assert b'"shop":["orders-b"]' in client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body


@pytest.mark.parametrize("lists_model", [False, True])
def test_first_messages_create_no_topics_if_the_brokers_file_says_so(tmp_path: Path, lists_model: bool) -> None:
    """Also in a store whose list of topics has the model of new ones, from a broker that created some."""
    config = tmp_path / "broker.conf"
    config.write_text("autoCreateTopicEnable=false\n")
    with MessageStore.open(tmp_path / "s") as store:
        store.create_topic("orders", queues=1)
    if lists_model:
        file = tmp_path / "s" / "config" / "topics.json"
        topics = json.loads(file.read_text())
        table = topics["topicConfigTable"]
        table["TBW102"] = {**table["orders"], "topicName": "TBW102", "writeQueueNums": 8, "readQueueNums": 8, "perm": 7}
        file.write_text(json.dumps(topics))
    with (
        ServeProcess(tmp_path / "s", "--rocketmq", "127.0.0.1:0", "--config", config) as server,
        RemotingClient(server.broker) as client,
    ):
        fields = {"topic": "TBW102"}
        route = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
        assert route.code == (ResponseCode.SUCCESS if lists_model else ResponseCode.TOPIC_NOT_EXIST)
        assert client.send("orders", b"x").code == ResponseCode.SUCCESS
        assert client.send("bills", b"x").code == ResponseCode.TOPIC_NOT_EXIST
        assert b"autoCreateTopicEnable=false" in client.ask(RequestCode.GET_BROKER_CONFIG).body
    with MessageStore.open(tmp_path / "s") as store:
        assert "bills" not in store.reader().topics()


def test_consumers_create_no_groups_if_the_brokers_file_says_so(tmp_path: Path) -> None:
    """The other groups of the same heartbeat are not concerned."""
    config = tmp_path / "broker.conf"
    config.write_text("autoCreateSubscriptionGroup=false\n")
    with MessageStore.open(tmp_path / "s") as store:
        store.put("orders", b"x", queue_id=0)
        store.set_group_settings(SubscriptionGroupConfig(group_name="shipping"))
    with (
        ServeProcess(tmp_path / "s", "--rocketmq", "127.0.0.1:0", "--config", config) as server,
        RemotingClient(server.broker) as client,
    ):
        data = heartbeat(consumers={"billing": {"orders": "*"}, "shipping": {"orders": "*"}})
        assert client.ask(RequestCode.HEART_BEAT, {}, msgspec.json.encode(data)).code == ResponseCode.SUCCESS
        missing = client.pull("orders", 0, 0, consumerGroup="billing")
        assert missing.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert client.pull("orders", 0, 0, consumerGroup="shipping").code == ResponseCode.SUCCESS
        assert client.route("%RETRY%shipping")
        assert b"autoCreateSubscriptionGroup=false" in client.ask(RequestCode.GET_BROKER_CONFIG).body
    with MessageStore.open(tmp_path / "s") as store:
        assert [one.group_name for one in store.reader().group_settings()] == ["shipping"]


def test_a_store_that_mqadmin_read_delivers_delayed_messages(tmp_path: Path) -> None:
    """mqadmin consumes as TOOLS_CONSUMER, which a broker lists from its start: that group does not name a broker."""
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        assert client.send("orders", b"x").code == ResponseCode.SUCCESS
        wait_for(lambda: client.pull("orders", 0, 0, consumerGroup="TOOLS_CONSUMER").code == ResponseCode.SUCCESS)
        assert "TOOLS_CONSUMER" in {one.group_name for one in served.store.reader().group_settings()}
    with MessageStore.open(tmp_path / "s", MessageStoreConfig(message_delay_level="1s")) as store:
        store.put("orders", b"later", delay="1s")
        wait_for(lambda: store.stats().delayed_delivered == 1)


@pytest.mark.parametrize(("given", "delivers"), [(None, True), (False, False), (True, True)])
def test_the_broker_delivers_delayed_messages_unless_its_settings_say_no(given: bool | None, delivers: bool) -> None:
    """Also in a store that RocketMQ's broker had, which another owner leaves to the broker."""
    request = ServeRequest(
        stores=["/data/store"],
        listen=ListenSettings.parse("127.0.0.1:0"),
        rocketmq="127.0.0.1:10911",
        config=MessageStoreConfig(schedule_enable=given),
    )
    config = request.store_config()
    assert config is not None
    assert config.schedule_enable is delivers


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rocketmq", "0.0.0.0:0"), "Other hosts reach 0.0.0.0:0"),
        (("--rocketmq", "127.0.0.1:0", "--read-only"), "--read-only"),
        (("--rocketmq", "nothing:here"), "nothing:here"),
        (("--advertise", "127.0.0.1:1"), "--rocketmq"),
        (("--acl", "plain_acl.yml"), "--rocketmq"),
        (("--rocketmq", "127.0.0.1:0", "--acl", "/nowhere/plain_acl.yml"), "/nowhere/plain_acl.yml"),
    ],
)
def test_what_cannot_be_served_is_said_at_once(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    MessageStore.open(tmp_path / "s").close()
    with ServeProcess(tmp_path / "s", *arguments) as server:
        assert server.process.stderr is not None
        # Not communicate: it would not see what came together with the first line.
        rest = server.process.stderr.read()
        assert server.process.wait(WAIT_LIMIT_S) in (1, 2)
        assert said in (server.first_line + rest).replace("\n", " ")


def test_with_accounts_other_hosts_may_reach_it_and_each_request_is_signed(tmp_path: Path) -> None:
    acl = tmp_path / "plain_acl.yml"
    acl.write_text("accounts:\n- accessKey: somebody\n  secretKey: a-secret\n  defaultTopicPerm: PUB\n")
    arguments = ("--rocketmq", "0.0.0.0:0", "--acl", str(acl))
    with ServeProcess(tmp_path / "s", *arguments) as server:
        assert "RocketMQ's clients with an account" in server.first_line
        address = "127.0.0.1:" + server.broker.rpartition(":")[2]
        with SignedClient(address, "somebody", "a-secret") as client, RemotingClient(address) as other:
            assert client.send("orders", b"x").code == 0
            assert other.send("orders", b"x").code == ResponseCode.NO_PERMISSION


def test_a_port_that_is_taken_is_said_before_the_store_is_opened(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with ServeProcess(tmp_path / "s", "--rocketmq", f"127.0.0.1:{port}") as server:
            assert server.process.wait(WAIT_LIMIT_S) == 1
            assert f"Cannot listen on 127.0.0.1:{port}" in server.first_line
    assert not (tmp_path / "s").exists()


def test_a_server_without_it_loads_none_of_it(tmp_path: Path) -> None:
    code = (
        "import sys, commitlog_store.serve.run, commitlog_store.cli.serve; "
        "print([name for name in sys.modules if 'rocketmq' in name or name == 'asyncio'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is looked for in /proc")
def test_a_hundred_thousand_messages_take_no_more_than_150_mib(tmp_path: Path) -> None:
    """Most of which the process takes at its start: pages of the log that were written and read are released."""
    # A fork of a process that has imported all would have memory of others.
    options = "--rocketmq", "127.0.0.1:0"
    with (
        ServeProcess(tmp_path / "s", *options, new_interpreter=True) as server,
        RemotingClient(server.broker) as client,
    ):
        for number in range(1_000):
            batch = batch_body([(b"x" * 1024, {"UNIQ_KEY": f"7F{number * 100 + place:030X}"}) for place in range(100)])
            assert (
                client.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields("orders", number % 4, m="true"), batch).code == 0
            )
        end = "orders", 3, 25_000 - 100
        wait_for(lambda: client.pull(*end).code == ResponseCode.SUCCESS)  # dispatch has come to the end
        assert resident_mib(server.process.pid) <= 150


def test_nothing_that_was_acknowledged_is_lost_by_a_kill(tmp_path: Path) -> None:
    """Under SYNC_FLUSH; messages that were not acknowledged may be there, too."""
    config = tmp_path / "broker.conf"
    config.write_text("flushDiskType=SYNC_FLUSH\n")
    acknowledged: list[list[bytes]] = [[] for _ in range(4)]

    def send(address: str, number: int) -> None:
        with contextlib.suppress(OSError), RemotingClient(address) as client:
            for turn in itertools.count():
                body = b"%d-%d" % (number, turn)
                if client.send("orders", body, number).code == 0:
                    acknowledged[number].append(body)

    with ServeProcess(tmp_path / "s", "--rocketmq", "127.0.0.1:0", "--config", config) as server:
        senders = [threading.Thread(target=send, args=(server.broker, number)) for number in range(4)]
        for sender in senders:
            sender.start()
        wait_for(lambda: min(map(len, acknowledged)) >= 50)
        server.process.kill()
        for sender in senders:
            sender.join()
    with MessageStore.open(tmp_path / "s") as store:
        store.dispatch()
        for number, bodies in enumerate(acknowledged):
            with store.reader() as reader:
                found = [body for batch in reader.read("orders", number, 0) for body in batch["body"].to_pylist()]
            assert found[: len(bodies)] == bodies
            assert len(found) <= len(bodies) + 1
