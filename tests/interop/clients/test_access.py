"""Java's clients sign with ``AclClientRPCHook``: those with an account are served, others are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.clients.rocketmq_client import JAVA_VERSIONS, RocketMQClient, bodies, message
from tests.interop.clients.servers import own_server
from tests.interop.rocketmq import RocketMqUnavailable

HEADERS = ("JSON", "ROCKETMQ")
# A topic and a group for each client.
NAMES = [f"{header}-{version[0]}" for header in HEADERS for version in JAVA_VERSIONS]
ACL = f"""
accounts:
  - accessKey: orders-service
    secretKey: a-secret-of-ours
    topicPerms: [{", ".join(f"orders-{name}=PUB|SUB" for name in NAMES)}]
    groupPerms: [{", ".join(f"billing-{name}=SUB" for name in NAMES)}]
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
@pytest.mark.parametrize("header", HEADERS)
def test_clients_with_an_account_are_served(
    address: str, version: str, header: str, jars_cache: Path, tmp_path: Path
) -> None:
    try:
        client = RocketMQClient(f"java-{version}", jars_cache, tmp_path, header=header)
    except RocketMqUnavailable as reason:
        pytest.skip(str(reason))
    name = f"{header}-{version[0]}"
    topic, body = f"orders-{name}", "paid äß水"
    with client:
        client.start_producer("signed", address, **KEYS)
        (sent,) = client.send("signed", message(topic, body, tags="A", keys="k"))
        assert sent["status"] == "SEND_OK"
        client.subscribe("reader", address, topic, group=f"billing-{name}", **KEYS)
        assert bodies(client.received("reader", 1)) == [body]
        client.start_producer("wrong", address, accessKey="orders-service", secretKey="another-secret", retries=0)
        (refused,) = client.send("wrong", message(topic, body))
        assert "status" not in refused
        client.start_producer("other", address, retries=0, **KEYS)
        (denied,) = client.send("other", message("payments", body))
        assert "No default permission for topic:payments" in str(denied["cause"])
