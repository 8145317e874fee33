"""Java clients whose headers are of RocketMQ's own kind, instead of JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.clients.recording_proxy import Recorder
from tests.interop.clients.rocketmq_client import JAVA_VERSIONS, RocketMQClient, bodies, message
from tests.interop.rocketmq import RocketMqUnavailable


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_a_java_client_with_headers_of_kind_rocketmq(
    jars_cache: Path, server_address: str, unique: str, version: str, tmp_path: Path, recorder: Recorder | None
) -> None:
    if recorder is not None:
        recorder.rename(f"java-{version}-rocketmq")
    try:
        client = RocketMQClient(f"java-{version}", jars_cache, tmp_path, header="ROCKETMQ")
    except RocketMqUnavailable as reason:
        pytest.skip(str(reason))
    with client:
        client.start_producer(unique, server_address)
        properties = {"name": "Zürich 水"}
        client.send(unique, message(unique, "one", tags="A", keys="k", properties=properties), message(unique, "no"))
        client.send(unique, message(unique, "two", tags="A"), message(unique, "three", tags="A"), batch=True)
        client.subscribe(unique, server_address, unique, "A")
        found = {str(one["body"]): one for one in client.received(unique, 3)}
        assert sorted(found) == ["one", "three", "two"]
        assert found["one"]["properties"].items() >= properties.items()
        client.ask("close", name=unique)
        client.subscribe(f"{unique}-2", server_address, unique, "A", failures=1, orderly=True)
        assert bodies(client.received(f"{unique}-2", 6))
