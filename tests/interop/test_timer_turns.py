"""A broker of RocketMQ 5 and MessageStore take turns on one store with timer messages: each is delivered once."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from commitlog_store import MessageStore, MessageStoreConfig
from commitlog_store.testing import kill, parts_of
from tests.crash.stored_messages import log_records
from tests.interop.rocketmq import RocketMqBroker
from tests.interop.whole_broker import WholeBroker, free_ports
from tests.support.delayed import timer_of
from tests.support.waiting import wait_for

SETTINGS: dict[str, object] = {"timerWheelEnable": "true", "mappedFileSizeCommitLog": 1 << 20}
CONFIG = MessageStoreConfig(mapped_file_size_commit_log=1 << 20, schedule_enable=False)
TOPIC = "orders"
_LIMIT_S = 120.0


def copies(path: Path) -> Counter[str]:
    """How often each message was delivered so far, by the log."""
    return Counter(one.body.decode() for one in log_records(path, recovered=False) if one.topic == TOPIC)


def only_five(broker: RocketMqBroker) -> None:
    if not broker.version.startswith("5"):
        pytest.skip("RocketMQ 4 has no timer")


def put(store: MessageStore, body: str, due_ms: int) -> None:
    store.put(TOPIC, body.encode(), queue_id=0, deliver_at=due_ms)


def close(store: MessageStore, now_ms: int) -> None:
    """Deliver what is due at a time, and close the store as its owner does."""
    deliverer = timer_of(store)
    deliverer.now = now_ms / 1000
    while deliverer.step() == 0:
        pass
    parts_of(store).engine.run(deliverer.service.save)
    deliverer.service.close()
    store.close()


def test_a_broker_continues_where_this_package_stopped_and_the_other_way_round(
    rocketmq_broker: RocketMqBroker, tmp_path: Path
) -> None:
    only_five(rocketmq_broker)
    path, port = tmp_path / "store", free_ports(4)
    store = MessageStore.open(path, CONFIG)
    # A second of which one part is delivered by each.
    second = (int(time.time()) + 5) * 1000
    times = [second + ms for ms in (100, 400, 800, 900, 40_000, 7_200_000)]
    expected = [str(due) for due in times]
    for body in expected:
        put(store, body, int(body))
    put(store, "early", second - 2_000)
    wait_for(lambda: time.time() * 1000 > second + 500)
    close(store, second + 500)
    assert copies(path) == Counter(["early", *expected[:2]])
    with WholeBroker(rocketmq_broker, path, port, SETTINGS) as broker:
        broker.wait_until_it_answers()
        broker.send(TOPIC, b"broker soon", "k", delay_ms=1_500)
        broker.send(TOPIC, b"broker later", "k", delay_ms=3_600_000)
        broker.send(TOPIC, b"broker in two days and a half", "k", delay_ms=216_000_000)
        due = ["early", "broker soon", *expected[:5]]
        wait_for(lambda: set(copies(path)) >= set(due), limit_s=_LIMIT_S)
        broker.end()
    assert copies(path) == Counter(due)
    store = MessageStore.open(path, CONFIG)
    soon = int(time.time() * 1000) + 2_000
    put(store, "last", soon)
    wait_for(lambda: time.time() * 1000 > soon)
    close(store, soon)
    due.append("last")
    assert copies(path) == Counter(due)
    with WholeBroker(rocketmq_broker, path, port, SETTINGS) as broker:
        broker.wait_until_it_answers()
        broker.send(TOPIC, b"end", "k", delay_ms=2_000)
        wait_for(lambda: "end" in copies(path), limit_s=_LIMIT_S)
        broker.end()
    assert copies(path) == Counter([*due, "end"])
    # What is left, whoever took it in: what RocketMQ would put back after two days among it.
    close(MessageStore.open(path, CONFIG), int(time.time() * 1000) + 220_000_000)
    assert copies(path) == Counter([*due, "end", expected[5], "broker later", "broker in two days and a half"])


def test_a_broker_after_a_kill_loses_nothing(rocketmq_broker: RocketMqBroker, tmp_path: Path) -> None:
    only_five(rocketmq_broker)
    path, port, now = tmp_path / "store", free_ports(4), int(time.time() * 1000)
    store = MessageStore.open(path, CONFIG)
    deliverer = timer_of(store, flush_interval_ms=1)
    expected = [f"{number}" for number in range(40)]
    for number, body in enumerate(expected):
        put(store, body, now + 20_000 + number * 200)
    deliverer.step()
    deliverer.now += 24
    while deliverer.step() == 0:
        pass
    put(store, "not taken in", now + 30_000)
    store.dispatch()
    kill(store)
    with WholeBroker(rocketmq_broker, path, port, SETTINGS) as broker:
        broker.wait_until_it_answers()
        wait_for(lambda: set(copies(path)) == {*expected, "not taken in"}, limit_s=_LIMIT_S)
        broker.end()
    with MessageStore.open(path, CONFIG) as store:
        before = copies(path)
        timer_of(store).everything()
        assert copies(path) == before
