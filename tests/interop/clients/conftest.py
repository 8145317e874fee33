"""Clients and servers for the tests, each started once for all of them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.clients.mqadmin_answers import unlike_a_broker
from tests.interop.clients.recording_proxy import Recorder, keep_output, write_golden
from tests.interop.clients.rocketmq_client import CLIENTS, RocketMQClient
from tests.interop.clients.servers import (
    SERVER_VERSION,
    broker_address,
    create_topic,
    own_server,
    real_broker,
)
from tests.interop.rocketmq import RocketMqUnavailable

# A directory: what clients and the real broker say to each other is written there.
RECORD = "ROCKETMQ_RECORD"
_BROKER = f"broker-{SERVER_VERSION}"
_NUMBERS = itertools.count()
MqAdmin = Callable[..., str]


@pytest.fixture(scope="session")
def jars_cache(request: pytest.FixtureRequest) -> Path:
    """Where what is downloaded stays, so that only the first run needs the network."""
    cache = request.config.cache
    assert cache is not None, "the jars are kept in pytest's cache: run without -p no:cacheprovider"
    return cache.mkdir("rocketmq")


@pytest.fixture(scope="session")
def recorder() -> Iterator[Recorder | None]:
    """Keeps what is said when the environment asks for it, and writes it at the end."""
    directory = os.environ.get(RECORD)
    one = Recorder(_BROKER) if directory else None
    yield one
    if one is not None and directory:
        write_golden(one.recorded(), Path(directory))


@pytest.fixture(scope="session", params=[_BROKER, "commitlog"])
def server_address(
    request: pytest.FixtureRequest,
    jars_cache: Path,
    tmp_path_factory: pytest.TempPathFactory,
    recorder: Recorder | None,
) -> Iterator[str]:
    """The address of a name server: that of a real broker, or this package's server."""
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "commitlog":
        with own_server(directory) as address:
            yield address
        return
    if recorder is not None:
        recorder.rename(_BROKER)  # its own connections, to the name server
    try:
        with real_broker(SERVER_VERSION, jars_cache, directory, recorder=recorder) as address:
            yield address
    except RocketMqUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session", params=CLIENTS)
def client_kind(request: pytest.FixtureRequest) -> str:
    """Which client a test is run with."""
    kind: str = request.param
    return kind


@pytest.fixture(scope="session")
def client(
    client_kind: str,
    server_address: str,
    jars_cache: Path,
    tmp_path_factory: pytest.TempPathFactory,
    recorder: Recorder | None,
) -> Iterator[RocketMQClient]:
    """One process of it for all tests."""
    if recorder is not None:
        recorder.rename(client_kind)
    try:
        with RocketMQClient(client_kind, jars_cache, tmp_path_factory.mktemp(client_kind)) as one:
            yield one
    except RocketMqUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def another_client(client: RocketMQClient, jars_cache: Path, tmp_path: Path) -> Iterator[RocketMQClient]:
    """A process beside ``client``, to be killed."""
    with RocketMQClient(client.kind, jars_cache, tmp_path) as one:
        yield one


@pytest.fixture
def java_client(client: RocketMQClient) -> RocketMQClient:
    """``client`` where it is one of Java, which have commands that Go's has not."""
    if not client.is_java:
        pytest.skip("the Go client has no such function")
    return client


@pytest.fixture
def mqadmin(java_client: RocketMQClient, server_address: str) -> MqAdmin:
    """What a command of mqadmin prints; it gets the address of the name server.

    Of this package's server it must print what it does of a real broker.
    """

    def run(command: str, *arguments: str) -> str:
        output = java_client.mqadmin(command, "-n", server_address, *arguments)
        directory = os.environ.get(RECORD)
        if directory:
            keep_output(Path(directory) / "mqadmin" / java_client.kind, [command, *arguments], output)
        # One port is name server and broker: it is this package's.
        if broker_address(server_address) == server_address:
            assert not unlike_a_broker(java_client.kind, command, output), output
        return output

    return run


@pytest.fixture
def unique() -> str:
    """What the names of one test's topics, groups, producers and consumers begin with."""
    return f"test{next(_NUMBERS)}"


@pytest.fixture
def topic(unique: str, server_address: str) -> str:
    """A topic that exists: the Go client subscribes to no other."""
    create_topic(server_address, unique)
    return unique
