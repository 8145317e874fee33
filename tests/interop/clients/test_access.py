"""Java's clients sign with ``AclClientRPCHook``: those with an account are served, others are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.clients.rocketmq_client import JAVA_VERSIONS, RocketMQClient, bodies, message
from tests.interop.clients.servers import own_server
from tests.interop.rocketmq import RocketMqUnavailable
from tests.support.waiting import wait_for

ACL = """
accounts:
  - accessKey: orders-service
    secretKey: a-secret-of-ours
    topicPerms:
      - orders=PUB|SUB
    groupPerms:
      - billing=SUB
"""
KEYS = {"accessKey": "orders-service", "secretKey": "a-secret-of-ours"}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("access")
    acl = directory / "plain_acl.yml"
    acl.write_text(ACL)
    with own_server(directory / "server", more=("--acl", str(acl))) as one:
        yield one


@pytest.mark.parametrize("version", JAVA_VERSIONS)
@pytest.mark.parametrize("header", ["JSON", "ROCKETMQ"])
def test_clients_with_an_account_are_served(
    address: str, version: str, header: str, jars_cache: Path, tmp_path: Path
) -> None:
    try:
        client = RocketMQClient(f"java-{version}", jars_cache, tmp_path, header=header)
    except RocketMqUnavailable as reason:
        pytest.skip(str(reason))
    body = f"{version} {header} äß水"
    with client:
        client.start_producer("signed", address, **KEYS)
        (sent,) = client.send("signed", message("orders", body, tags="A", keys="k"))
        assert sent["status"] == "SEND_OK"
        client.subscribe("reader", address, "orders", group="billing", **KEYS)
        wait_for(lambda: body in bodies(client.received("reader", 1)))  # after those that another client left
        client.start_producer("wrong", address, accessKey="orders-service", secretKey="another-secret", retries=0)
        (refused,) = client.send("wrong", message("orders", body))
        assert "status" not in refused
        client.start_producer("other", address, retries=0, **KEYS)
        (denied,) = client.send("other", message("payments", body))
        assert "No default permission for topic:payments" in str(denied["cause"])
