"""One store served in turns by a real broker and by this package, to the same program with RocketMQ's client."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from commitlog_store import StoreReader
from commitlog_store.errors import CommitLogError
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from tests.interop.clients.rocketmq_client import JAVA_VERSIONS, RocketMQClient, bodies, message
from tests.interop.clients.servers import SERVER_VERSION, SETTINGS, own_server, real_broker
from tests.interop.rocketmq import RocketMqUnavailable
from tests.support.waiting import wait_for

# Killed servers repeat what their files do not say yet: tests wait for them.
QUICK = {**SETTINGS, "flushDelayOffsetInterval": 1_000, "flushConsumerOffsetInterval": 1_000}
TURNS = ("broker", "commitlog", "broker", "commitlog")
QUEUES = 4
TOPIC, GROUP = "orders", "billing"


@contextlib.contextmanager
def server(kind: str, jars_cache: Path, directory: Path, store: Path) -> Iterator[str]:
    """The address of the turn's server, which is killed at the end."""
    directory.mkdir()
    (directory / "store").symlink_to(store)
    ours = kind == "commitlog"
    one = own_server(directory, QUICK) if ours else real_broker(SERVER_VERSION, jars_cache, directory, QUICK)
    with one as address:
        yield address


def saved(store: Path) -> tuple[int, int]:
    """How many messages the group has consumed and how many of delay level 1 are delivered, by the store's files."""
    try:
        positions = ConsumerOffsets(str(store)).all().get((GROUP, TOPIC), {})
        with StoreReader.open(store) as reader:
            delivered = {level.level: level.position for level in reader.delay_levels()}
    except CommitLogError:  # a file is being replaced
        return -1, -1
    return sum(positions.values()), delivered.get(1) or 0


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_messages_and_positions_go_on_from_turn_to_turn(jars_cache: Path, tmp_path: Path, version: str) -> None:
    """What one server was left with, the other one gives to the group, nothing else of before, and nothing twice."""
    store = tmp_path / "store"
    store.mkdir()
    everything: list[str] = []
    left: list[str] = []
    for turn, kind in enumerate(TURNS):
        directory = tmp_path / f"turn-{turn}"
        with contextlib.ExitStack() as stack:
            try:
                address = stack.enter_context(server(kind, jars_cache, directory, store))
                client = stack.enter_context(RocketMQClient(f"java-{version}", jars_cache, directory))
            except RocketMqUnavailable as reason:
                pytest.skip(str(reason))
            client.start_producer("sends", address)
            new = [f"{turn}: {number}" for number in range(2 * QUEUES)]
            client.send("sends", *(message(TOPIC, body, queueId=int(body[-1]) % QUEUES, tags="A") for body in new))
            client.send("sends", message(TOPIC, f"{turn}: delayed", delayLevel=1, queueId=0))
            expected = [*left, *new, f"{turn}: delayed"]
            client.subscribe("takes", address, TOPIC, group=GROUP)
            found = client.received("takes", len(expected), timeout_s=90)
            assert sorted(bodies(found)) == sorted(expected), (turn, kind)
            client.ask("close", name="takes")
            everything += [*new, f"{turn}: delayed"]
            state = len(everything), turn + 1
            wait_for(partial(lambda wanted: saved(store) == wanted, state))
            left = [f"{turn}: left {queue}" for queue in range(QUEUES)]
            client.send("sends", *(message(TOPIC, body, queueId=int(body[-1])) for body in left))
            everything += left
            client.subscribe("reads-all", address, TOPIC, group=f"audit-{turn}")
            assert sorted(bodies(client.received("reads-all", len(everything)))) == sorted(everything), (turn, kind)
