"""What /metrics shows of messages that consumers have and have not acknowledged, and of those that none has."""

from __future__ import annotations

import gc
from pathlib import Path

from commitlog_store import MessageStore
from commitlog_store.serve.http.samples import REST, Samples
from commitlog_store.serve.http.store_samples import StoreSamples
from commitlog_store.serve.rocketmq.codes import RequestCode
from tests.store.serve.rocketmq.brokers import broker
from tests.store.serve.rocketmq.remoting_client import RemotingClient
from tests.support.waiting import wait_for

# The time of the scrape, in seconds: long after every message.
_NOW = 4_000_000_000


def _put(store: MessageStore, count: int, topic: str = "orders") -> None:
    for _ in range(count):
        store.put(topic, b"x", queue_id=0)
    store.dispatch()


def _age_ms(store: MessageStore, offset: int) -> int:
    """The age of a message of the queue at the time of the scrape."""
    with store.reader() as reader:
        (stored,) = reader.store_timestamps([("orders", 0, offset)])
    assert isinstance(stored, int)
    return _NOW * 1000 - stored


def _shown(store: MessageStore, group: str = "billing", topic: str = "orders", most: int = 9) -> dict[str, float]:
    """The series of a group in a topic, by the rest of their names."""
    samples = Samples([], [])
    with store.reader() as reader:
        StoreSamples(store, most_lags=most, clock=lambda: _NOW).read(samples, reader)
    return {
        name.removeprefix("rocketmq_consumer_"): value
        for name, labels, value in samples.values
        if name.startswith("rocketmq_consumer_") and labels[:2] == (group, topic)
    }


def _counts(shown: dict[str, float]) -> tuple[float, float, float]:
    """Messages that wait, that are ready, and that are in flight."""
    return shown["lag_messages"], shown["ready_messages"], shown["inflight_messages"]


def _latencies(shown: dict[str, float]) -> tuple[float, float]:
    return shown["lag_latency_milliseconds"], shown["queueing_latency_milliseconds"]


def test_messages_of_an_open_consumer_are_in_flight_until_they_are_committed(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        _put(store, 5)
        store.commit_group_offsets("billing", {("orders", 0): 0})
        before = _shown(store)
        assert _counts(before) == (5, 5, 0)
        assert _latencies(before) == (_age_ms(store, 0), _age_ms(store, 0))
        with store.consumer("billing", "orders") as consumer:
            assert len(consumer.poll(2)) == 2  # with the other three read ahead
            polled = _shown(store)
            assert _counts(polled) == (5, 0, 5)
            assert _latencies(polled) == (_age_ms(store, 0), 0)
            consumer.commit()
            _put(store, 3)
            acknowledged = _shown(store)
            assert _counts(acknowledged) == (6, 3, 3)
            assert _latencies(acknowledged) == (_age_ms(store, 2), _age_ms(store, 5))
        assert _counts(_shown(store)) == (6, 6, 0)
        with store.consumer("billing", "orders") as other:
            other.poll(1)
            consumer.close()  # again
            assert _counts(_shown(store)) == (6, 0, 6)
            del consumer
            gc.collect()
            assert _counts(_shown(store)) == (6, 0, 6)
        forgotten = store.consumer("billing", "orders")
        forgotten.poll(1)
        assert _counts(_shown(store)) == (6, 0, 6)
        del forgotten
        gc.collect()
        assert _counts(_shown(store)) == (6, 6, 0)


def test_messages_that_clients_of_rocketmq_have_pulled_are_in_flight(tmp_path: Path) -> None:
    with broker(tmp_path) as served, RemotingClient(served.address) as client:
        _put(served.store, 5)
        served.store.commit_group_offsets("billing", {("orders", 0): 1})
        client.pull("orders", 0, 1, maxMsgNums=3, consumerGroup="billing")
        pulled = _shown(served.store)
        assert _counts(pulled) == (4, 1, 3)
        client.pull("orders", 0, 4, maxMsgNums=3, consumerGroup="billing")
        position = {"consumerGroup": "billing", "topic": "orders", "queueId": 0}
        assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, position | {"commitOffset": 4}).code == 0
        done = _shown(served.store)
        assert _counts(done) == (1, 0, 1)
        back = {"topic": "orders", "group": "billing", "timestamp": 0, "isForce": "true"}
        assert client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, back).code == 0
        moved = _shown(served.store)
        assert _counts(moved) == (5, 5, 0)


def test_a_pull_that_is_held_says_how_far_its_group_has_pulled(tmp_path: Path) -> None:
    with broker(tmp_path) as served, RemotingClient(served.address) as client:
        _put(served.store, 5)

        def hold(position: int) -> None:
            """The messages before the pull's offset are in flight while it is held."""
            served.store.commit_group_offsets("billing", {("orders", 0): position})
            client.start_pull("orders", 0, 5, hold_ms=60_000, consumerGroup="billing")
            wait_for(lambda: _counts(_shown(served.store)) == (5 - position, 0, 5 - position))

        hold(0)
        hold(1)  # of a group that is known, without another thread


def test_groups_beyond_the_limit_are_summed_up(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        for number in range(4):
            _put(store, number + 1, f"t{number}")
            store.commit_group_offsets("billing", {(f"t{number}", 0): 0})
        with store.consumer("billing", "t2") as consumer:
            consumer.poll(1)
            rest = _shown(store, REST, REST, most=1)
    assert rest == {"lag_messages": 1 + 2 + 3, "ready_messages": 1 + 2, "inflight_messages": 3}
