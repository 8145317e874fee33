"""Java's clients with ``useTLS``, on the port that clients without it use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.clients.rocketmq_client import JAVA_VERSIONS, SMALL_JVM, RocketMQClient, bodies, message
from tests.interop.clients.servers import own_server
from tests.interop.rocketmq import RocketMqUnavailable
from tests.store.follower.certificates import make_certificate


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("tls")
    certificate, key = make_certificate(directory)
    with own_server(directory / "server", more=("--tls-cert", str(certificate), "--tls-key", str(key))) as one:
        yield one


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_clients_with_and_without_tls_get_each_others_messages(
    address: str, version: str, unique: str, jars_cache: Path, tmp_path: Path
) -> None:
    kind = f"java-{version}"
    try:
        # What a client's useTLS is unless a program sets it. By RocketMQ's default it trusts each certificate.
        with_tls = RocketMQClient(kind, jars_cache, tmp_path, jvm=(*SMALL_JVM, "-Dtls.enable=true"))
        without = RocketMQClient(kind, jars_cache, tmp_path)
    except RocketMqUnavailable as reason:
        pytest.skip(str(reason))
    with with_tls, without:
        for client, name in ((with_tls, f"{unique}-tls"), (without, f"{unique}-plain")):
            client.start_producer(name, address)
            client.subscribe(name, address, unique)
            (sent,) = client.send(name, message(unique, name))
            assert sent["status"] == "SEND_OK"
        for client, name in ((with_tls, f"{unique}-tls"), (without, f"{unique}-plain")):
            assert sorted(bodies(client.received(name, 2))) == [f"{unique}-plain", f"{unique}-tls"]
