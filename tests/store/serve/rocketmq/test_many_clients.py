"""Many clients, and requests that no client would send: the server answers the others, and its memory stays."""

from __future__ import annotations

import contextlib
import os
import random
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_store.files.limits import allow_most_open_files
from commitlog_store.format.remoting_command import HeaderKind, RemotingCommand
from commitlog_store.serve.rocketmq.codes import RequestCode
from commitlog_store.serve.rocketmq.connection import ConnectionLimits
from commitlog_store.testing import waiting_calls
from tests.store.serve.memory import anonymous_mib
from tests.store.serve.rocketmq.brokers import broker
from tests.store.serve.rocketmq.remoting_client import RemotingClient, batch_body, pull_fields, send_fields
from tests.support.long_runs import LONG_RUN_S
from tests.support.waiting import wait_for

CLIENTS = 1_000
QUEUES = 4
# What an allocator keeps, and tables of bounded sizes.
MOST_GROWTH_MIB = 64
# All but two: one waits for another client, and one deletes the topic of the other requests.
CODES = [
    code
    for code in RequestCode
    if code not in (RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.DELETE_TOPIC_IN_BROKER)
]
VALUES = [
    "",
    "0",
    "1",
    "3",
    "-1",
    "32",
    "orders",
    "billing",
    "%RETRY%billing",
    "TBW102",
    "*",
    "a > 1",
    "true",
    "x" * 300,
]
KNOWN = {**send_fields("orders", 0, {"TAGS": "a"}), **pull_fields("orders", 0, 0)}
NAMES = [*KNOWN, "group", "groupName", "offset", "timestamp", "key", "maxNum", "msgId", "delayLevel", "clientID"]
BODIES = [b"", b"x", b"{}", b'{"clientID":"c"}', b"[" * 1_000, batch_body([(b"a", {"TAGS": "a"})] * 3)]
ROUND = 500


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many descriptors as the server itself asks for; both ends of each connection are in this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    allow_most_open_files()
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 3 * CLIENTS:
        pytest.skip("the system lets a process have too few open files")
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("many_files")
def test_a_thousand_clients_wait_and_each_is_answered(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, contextlib.ExitStack() as stack:
        served.store.create_topic("orders", QUEUES)
        clients = [stack.enter_context(RemotingClient(served.address)) for _ in range(CLIENTS)]
        asked = [
            client.start_pull("orders", place % QUEUES, 0, hold_ms=200_000) for place, client in enumerate(clients)
        ]
        wait_for(lambda: waiting_calls(served.store) >= CLIENTS)
        for queue_id in range(QUEUES):
            served.store.put("orders", b"x", queue_id=queue_id)
        assert {client.answer(opaque).code for client, opaque in zip(clients, asked, strict=True)} == {0}
        assert clients[0].send("orders", b"x").code == 0


@pytest.mark.timeout(LONG_RUN_S)
@pytest.mark.parametrize("count", [4_000, pytest.param(1_000_000, marks=pytest.mark.stress)])
def test_frames_of_any_kind_crash_nothing_and_take_no_memory(tmp_path: Path, count: int) -> None:
    """Fields, codes and bodies as they come. One of 2,000 frames is damaged: its connection ends, the next begins."""
    chosen, sizes = random.Random(7), []
    with broker(tmp_path / "s", limits=ConnectionLimits(bytes_in_flight=1 << 20)) as served:
        served.store.create_topic("orders", QUEUES)
        for _ in range(max(count // ROUND, 1)):
            with RemotingClient(served.address) as client, contextlib.suppress(OSError):
                for _ in range(ROUND):
                    client.socket.sendall(_frame(chosen))
                client.ask(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": 0})  # all have been taken
            with RemotingClient(served.address) as client:
                assert client.send("orders", b"good").code == 0
            sizes.append(anonymous_mib(os.getpid()))
        served.store.dispatch()
    assert max(sizes[len(sizes) // 4 :]) - max(sizes[: len(sizes) // 4 + 1]) < MOST_GROWTH_MIB


def _frame(chosen: random.Random) -> bytes:
    fields = {name: chosen.choice(VALUES) for name in chosen.sample(NAMES, chosen.randrange(len(NAMES)))}
    if chosen.random() < 0.5:
        fields = {**{name: str(value) for name, value in KNOWN.items()}, **dict([*fields.items()][:3])}
    fields["suspendTimeoutMillis"] = "1"
    command = RemotingCommand(
        code=chosen.choice(CODES),
        opaque=chosen.randrange(1 << 30),
        flag=chosen.choice([0, 2, 2, 1]),
        fields=fields,
        body=chosen.choice(BODIES),
        kind=chosen.choice(list(HeaderKind)),
    )
    data = bytearray(command.encode())
    if chosen.random() < 0.0005:
        data[chosen.randrange(len(data))] = chosen.randrange(256)
    return bytes(data)
