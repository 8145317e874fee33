"""This package's server registers with RocketMQ's own name server, which is what clients are given the address of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.clients.rocketmq_client import CLIENTS, RocketMQClient, bodies, message
from tests.interop.clients.servers import broker_address, own_server, real_name_server, routes
from tests.interop.rocketmq import RocketMqUnavailable
from tests.support.waiting import wait_for


@pytest.fixture(scope="module", params=("5.3.3", "4.9.7"))
def name_server(
    request: pytest.FixtureRequest, jars_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a name server that knows no broker but this package's."""
    directory = tmp_path_factory.mktemp(f"name-server-{request.param}")
    try:
        with (
            real_name_server(request.param, jars_cache, directory / "namesrv") as address,
            own_server(directory / "server", more=("--namesrv", address)) as own,
        ):
            wait_for(lambda: routes(address, "TBW102"))
            assert broker_address(address) == own
            yield address
    except RocketMqUnavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("kind", CLIENTS)
def test_clients_find_the_server_by_a_real_name_server(
    name_server: str, kind: str, unique: str, jars_cache: Path, tmp_path: Path
) -> None:
    try:
        client = RocketMQClient(kind, jars_cache, tmp_path)
    except RocketMqUnavailable as reason:
        pytest.skip(str(reason))
    with client:
        client.start_producer(unique, name_server)
        sent = client.send(unique, *(message(unique, f"{number}") for number in range(4)))
        assert [one["status"] for one in sent] == ["SEND_OK"] * 4
        wait_for(lambda: routes(name_server, unique))  # the new topic is registered
        client.subscribe(unique, name_server, unique)
        assert sorted(bodies(client.received(unique, 4))) == ["0", "1", "2", "3"]
