"""A consumer is woken for the queues that it reads, and for those that it takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from commitlog_store import Consumer, MessageExt, MessageStore
from commitlog_store.consumers import consumer as consumer_module
from commitlog_store.testing import parts_of, waiting_calls
from tests.support.waiting import WAIT_LIMIT_S, wait_for


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MessageStore]:
    """Topic orders has 4 queues without messages that wait. A wait that nothing ends takes until the test's limit."""
    monkeypatch.setattr(consumer_module, "_LONGEST_WAIT_S", 10 * WAIT_LIMIT_S)
    with MessageStore.open(tmp_path) as store:
        for queue_id in range(4):
            put(store, queue_id)
        store.commit_group_offsets("billing", {("orders", queue_id): 1 for queue_id in range(4)})
        yield store


def put(store: MessageStore, queue_id: int, *, tags: str = "") -> None:
    store.put("orders", b"x", queue_id=queue_id, tags=tags).raise_for_status()
    store.dispatch()


def queues_of(consumer: Consumer) -> list[int]:
    return [queue_id for topic, queue_id in consumer.positions() if topic == "orders"]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> dict[Consumer, int]:
    """How often each consumer has asked its queues."""
    found: dict[Consumer, int] = {}
    look = Consumer._pull_next

    def counted(consumer: Consumer, pull: Callable[..., object]) -> bool:
        has_moved = look(consumer, pull)  # type: ignore[arg-type]
        found[consumer] = found.get(consumer, 0) + 1
        return has_moved

    monkeypatch.setattr(Consumer, "_pull_next", counted)
    return found


def _poll(consumer: Consumer) -> list[MessageExt]:
    return consumer.poll(1, 10 * WAIT_LIMIT_S)


def _apoll(consumer: Consumer) -> list[MessageExt]:
    return asyncio.run(consumer.apoll(1, 10 * WAIT_LIMIT_S))


def _found(polling: Future[list[MessageExt]]) -> list[int]:
    return [message.queue_id for message in polling.result(WAIT_LIMIT_S)]


@pytest.mark.parametrize("poll", [_poll, _apoll])
def test_a_consumer_does_not_look_for_messages_of_anothers_queues(
    store: MessageStore, looks: dict[Consumer, int], poll: Callable[[Consumer], list[MessageExt]]
) -> None:
    with store.consumer("billing", "orders") as first, store.consumer("billing", "orders") as second:
        assert (queues_of(first), queues_of(second)) == ([0, 1], [2, 3])
        with ThreadPoolExecutor() as threads:
            polling = threads.submit(poll, first)
            wait_for(lambda: waiting_calls(store) and looks.get(first))
            before = looks[first]
            for number in range(20):
                put(store, 2 + number % 2)
            assert looks[first] == before
            put(store, 1)
            assert _found(polling) == [1]


def test_a_consumer_does_not_look_for_messages_with_other_tags(store: MessageStore, looks: dict[Consumer, int]) -> None:
    with store.consumer("billing", "orders", tags="paid") as consumer, ThreadPoolExecutor() as threads:
        assert queues_of(consumer) == [0, 1, 2, 3]
        polling = threads.submit(_poll, consumer)
        wait_for(lambda: waiting_calls(store) and looks.get(consumer))
        before = looks[consumer]
        for number in range(20):
            put(store, number % 4, tags="sent")
        assert looks[consumer] == before
        put(store, 3, tags="paid")
        assert _found(polling) == [3]


def test_the_first_message_of_a_queue_wakes_the_consumer_that_gets_it(store: MessageStore) -> None:
    with store.consumer("billing", "orders") as first, store.consumer("billing", "orders") as second:
        assert queues_of(first) + queues_of(second) == [0, 1, 2, 3]
        with ThreadPoolExecutor() as threads:
            polling = [threads.submit(_poll, one) for one in (first, second)]
            wait_for(lambda: waiting_calls(store) == 2)
            put(store, 4)
            assert _found(polling[1]) == [4]
            put(store, 0)
            assert _found(polling[0]) == [0]


@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_a_consumer_that_takes_queues_over_is_woken_for_their_messages(store: MessageStore, how: str) -> None:
    with store.consumer("billing", "orders") as first, ThreadPoolExecutor() as threads:
        second = store.consumer("billing", "orders")
        assert queues_of(first) + queues_of(second) == [0, 1, 2, 3]
        polling = threads.submit(_poll, first)
        wait_for(lambda: waiting_calls(store))
        if how == "closed":
            second.close()
        del second
        put(store, 3)
        assert _found(polling) == [3]


def test_a_third_consumer_moves_queues_between_two_that_wait(store: MessageStore) -> None:
    """Queue 2 passes from the second, which closes then, to the first: it is woken for its message at once."""
    first, second, third = (store.consumer("billing", "orders") for _ in range(3))
    assert [queues_of(one) for one in (first, second, third)] == [[0, 1], [2], [3]]
    with ThreadPoolExecutor() as threads:
        polling = [threads.submit(_poll, one) for one in (first, second)]
        wait_for(lambda: waiting_calls(store) == 2)
        third.close()  # the second has 2 and 3 now
        put(store, 3)
        assert _found(polling[1]) == [3]
        second.commit()
        second.close()
        put(store, 2)
        assert _found(polling[0]) == [2]
    first.close()


def test_closing_a_consumer_wakes_no_other_group(store: MessageStore, looks: dict[Consumer, int]) -> None:
    with store.consumer("billing", "orders") as consumer, ThreadPoolExecutor() as threads:
        assert queues_of(consumer) == [0, 1, 2, 3]
        polling = threads.submit(_poll, consumer)
        wait_for(lambda: waiting_calls(store) and looks.get(consumer))
        before = looks[consumer]
        store.consumer("audit", "orders").close()
        put(store, 0)
        assert _found(polling) == [0]
        assert looks[consumer] == before + 1
    assert not len(parts_of(store).engine.waiters)
