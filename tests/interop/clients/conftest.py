"""Clients and servers for the tests, each started once for all of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.clients.rocketmq_client import CLIENTS, RocketMQClient
from tests.interop.clients.servers import SERVER_VERSION, SERVES_ROCKETMQ, own_server, real_broker
from tests.interop.rocketmq import RocketMqUnavailable

_NUMBERS = itertools.count()
StartClient = Callable[[], RocketMQClient]


@pytest.fixture(scope="session")
def jars_cache(request: pytest.FixtureRequest) -> Path:
    """Where what is downloaded stays, so that only the first run needs the network."""
    cache = request.config.cache
    assert cache is not None, "the jars are kept in pytest's cache: run without -p no:cacheprovider"
    return cache.mkdir("rocketmq")


@pytest.fixture(scope="session", params=[f"broker-{SERVER_VERSION}", "commitlog"])
def server_address(
    request: pytest.FixtureRequest, jars_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a name server: that of a real broker, or this package's server."""
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "commitlog":
        if not SERVES_ROCKETMQ:
            pytest.skip("commitlog serve has no --rocketmq yet")
        with own_server(directory) as address:
            yield address
        return
    try:
        with real_broker(SERVER_VERSION, jars_cache, directory) as address:
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
    client_kind: str, server_address: str, jars_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RocketMQClient]:
    """One process of it for all tests."""
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
def unique() -> str:
    """What the names of one test's topics, groups, producers and consumers begin with."""
    return f"test{next(_NUMBERS)}"
