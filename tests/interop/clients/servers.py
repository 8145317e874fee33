"""What clients of RocketMQ are given the address of: a real name server with a broker, or this package's server."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from commitlog_store.format.remoting_command import RemotingCommand, decode
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from tests.interop.clients.recording_proxy import Recorder
from tests.interop.clients.rocketmq_client import SMALL_JVM
from tests.interop.rocketmq import RocketMqBroker, jars
from tests.interop.whole_broker import WholeBroker, free_ports
from tests.support.programs import child_environment
from tests.support.quick_spark import JAVA_OPTIONS
from tests.support.waiting import WAIT_LIMIT_S, wait_for

SERVER_VERSION = "5.3.3"
# As a real broker of `tests/interop` has them.
CLUSTER, BROKER = "interop", "broker-a"
# Delays, checks of transactions and notices that tests can wait for.
SETTINGS: dict[str, object] = {
    "brokerClusterName": CLUSTER,
    "brokerName": BROKER,
    "mappedFileSizeCommitLog": 16 << 20,
    "mappedFileSizeConsumeQueue": 6_000,
    "enablePropertyFilter": "true",
    "autoCreateTopicEnable": "true",
    "defaultTopicQueueNums": 4,
    "messageDelayLevel": "1s 2s 1s 1s 1s 1s 1s 1s",
    "transactionTimeOut": 500,
    "transactionCheckInterval": 1_000,
    "transactionCheckMax": 100,
    "flushDiskType": "ASYNC_FLUSH",
}


def ask(address: str, code: int, fields: Mapping[str, str] | None = None, body: bytes = b"") -> RemotingCommand:
    """The answer to one request, on a connection of its own. ``OSError``."""
    host, port = address.rsplit(":", 1)
    request = RemotingCommand(code=code, opaque=1, fields=fields or {}, body=body)
    with socket.create_connection((host, int(port)), WAIT_LIMIT_S) as connection:
        connection.sendall(request.encode())
        with connection.makefile("rb") as stream:
            return decode(stream.read(int.from_bytes(stream.read(4), "big")))


def routes(address: str, topic: str) -> bytes | None:
    """The route of a topic as a name server has it, None while there is none."""
    try:
        answer = ask(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    except OSError:
        return None
    return answer.body if answer.code == ResponseCode.SUCCESS else None


@contextlib.contextmanager
def real_broker(
    version: str,
    cache: Path,
    directory: Path,
    settings: Mapping[str, object] = SETTINGS,
    *,
    jvm: Sequence[str] = SMALL_JVM,
    recorder: Recorder | None = None,
) -> Iterator[str]:
    """A name server and a broker with its store in ``directory``; the name server's address.

    With a ``recorder`` (5.x), clients and the broker speak to them through proxies. ``RocketMqUnavailable``.
    """
    server = _installed(version, cache, jvm)
    directory.mkdir(parents=True, exist_ok=True)
    first = free_ports(5)
    name_server = first + 4
    with contextlib.ExitStack() as stack:
        stack.enter_context(_name_server(server, directory / "namesrv", name_server))
        address = f"127.0.0.1:{name_server}"
        own: dict[str, object] = {"registerNameServerPeriod": 10_000, "timerWheelEnable": "true"}
        if recorder is not None:
            front = recorder.proxy(("127.0.0.1", 0), ("127.0.0.1", name_server), "namesrv")
            address = stack.enter_context(front).address
            # Clients are given another address of this host, where the proxy is.
            own |= {"bindAddress": "127.0.0.1", "brokerIP1": "127.0.0.2", "brokerIP2": "127.0.0.1"}
            stack.enter_context(recorder.proxy(("127.0.0.2", first + 2), ("127.0.0.1", first + 2), "broker"))
        own["namesrvAddr"] = address
        broker = stack.enter_context(WholeBroker(server, directory / "store", first, own | dict(settings)))
        broker.wait_until_it_answers()
        wait_for(lambda: routes(address, "TBW102"))
        yield address


def _installed(version: str, cache: Path, jvm: Sequence[str] = SMALL_JVM) -> RocketMqBroker:
    """A broker's and a name server's jars, installed before if needed. ``RocketMqUnavailable``."""
    classpath = f"{jars(version, cache, Path(__file__).parent / 'server', 'server-')}/*"
    return RocketMqBroker(version, classpath, cache / "home", jvm)


@contextlib.contextmanager
def real_name_server(version: str, cache: Path, directory: Path) -> Iterator[str]:
    """A name server alone; its address. ``RocketMqUnavailable``."""
    port = free_ports(1)
    with _name_server(_installed(version, cache), directory, port):
        address = f"127.0.0.1:{port}"
        wait_for(lambda: _listens(address))
        yield address


def _listens(address: str) -> bool:
    with contextlib.suppress(OSError):
        ask(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})  # or a refusal
        return True
    return False


@contextlib.contextmanager
def _name_server(server: RocketMqBroker, home: Path, port: int) -> Iterator[None]:
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "logback_namesrv.xml").write_text("<configuration/>")  # 4.x wants one
    config = home / "namesrv.conf"
    config.write_text(f"listenPort={port}\nkvConfigPath={home / 'kv.json'}\n")
    environment = {name: value for name, value in os.environ.items() if name != JAVA_OPTIONS}
    command = [*server.java(home), "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(config)]
    with (home / "output").open("ab") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, cwd=home, env=environment | {"ROCKETMQ_HOME": str(home)}
        )
    try:
        yield
    finally:
        process.kill()
        process.wait(WAIT_LIMIT_S)


@contextlib.contextmanager
def own_server(
    directory: Path, settings: Mapping[str, object] = SETTINGS, *, more: Sequence[str] = ()
) -> Iterator[str]:
    """``commitlog serve --rocketmq`` with a new store in ``directory``, with ``more`` options, as a process."""
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "broker.conf"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    address = f"127.0.0.1:{free_ports(1)}"
    command = [sys.executable, "-m", "commitlog_store", "serve", str(directory / "store"), "--create"]
    options = ["--config", str(config), "--listen", "127.0.0.1:0", "--rocketmq", address, *more]
    with (directory / "output").open("ab") as output:
        process = subprocess.Popen([*command, *options], stderr=output, env=child_environment())
    try:

        def answers() -> bool:
            assert process.poll() is None, (directory / "output").read_text()
            return _listens(address)

        wait_for(answers)
        yield address
    finally:
        process.kill()
        process.wait(WAIT_LIMIT_S)


def broker_address(address: str) -> str:
    """Where the broker is that a name server knows."""
    answer = ask(address, RequestCode.GET_BROKER_CLUSTER_INFO)
    # Its addresses are by numbers, which fastjson writes without quotes.
    text = answer.body.decode().replace("{0:", '{"0":')
    (broker,) = json.loads(text)["brokerAddrTable"].values()
    return str(broker["brokerAddrs"]["0"])


def create_topic(address: str, topic: str, queues: int = 4) -> None:
    """A topic at the broker that a name server knows; returns when the name server knows of it."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    answer = ask(broker_address(address), RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    wait_for(lambda: routes(address, topic))


def positions(address: str, group: str, topic: str, queues: int = 4) -> list[int]:
    """The positions of a group in the queues of a topic, -1 where it has none."""
    broker, found = broker_address(address), []
    for queue in range(queues):
        fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue)}
        answer = ask(broker, RequestCode.QUERY_CONSUMER_OFFSET, fields)
        found.append(int(answer.fields["offset"]) if answer.code == ResponseCode.SUCCESS else -1)
    return found
