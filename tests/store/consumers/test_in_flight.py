"""Messages that consumers pulled are in flight until their queue goes to another consumer or they are given back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_store import Consumer, MessageStore
from commitlog_store.consumers.queue_progress import QueueProgress
from commitlog_store.consumers.read_ahead import Moved
from commitlog_store.errors import ConsumerClosed
from commitlog_store.testing import parts_of
from tests.support.waiting import WAIT_LIMIT_S, wait_for


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """Topic orders has 5 messages in each of 2 queues."""
    with MessageStore.open(tmp_path) as store:
        for queue_id in (0, 1):
            for _ in range(5):
                store.put("orders", b"x", queue_id=queue_id)
        store.dispatch()
        yield store


def _pulled(store: MessageStore) -> dict[int, int]:
    """The next offset by queue id."""
    return {queue_id: offset for (_, _, queue_id), offset in parts_of(store).groups.pulled.all().items()}


def _poll_all(consumer: Consumer) -> int:
    count = 0
    while messages := consumer.poll(100):
        count += len(messages)
    return count


def _fail(store: MessageStore, consumer: Consumer) -> None:
    with store.transaction("invoices", 1) as batch:
        consumer.commit(in_transaction=batch)
        raise ZeroDivisionError


@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_an_idle_consumer_that_ends_leaves_the_pulls_of_the_others(store: MessageStore, how: str) -> None:
    first = store.consumer("billing", "orders")
    assert _poll_all(first) == 10
    second = store.consumer("billing", "orders")
    assert _pulled(store) == {0: 5}
    assert _poll_all(second) == 5
    assert _pulled(store) == {0: 5, 1: 5}
    if how == "closed":
        first.close()
    del first
    assert _pulled(store) == {1: 5}
    second.close()
    assert _pulled(store) == {}


def test_queues_that_pass_to_a_consumer_that_joins_are_not_in_flight(store: MessageStore) -> None:
    with store.consumer("billing", "orders") as first:
        _poll_all(first)
        with store.consumer("billing", "orders"):
            first.poll()
            assert _pulled(store) == {0: 5}


def test_a_pull_that_ends_after_its_consumer_was_closed_is_not_in_flight(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = store.consumer("billing", "orders")
    closing = threading.Thread(target=consumer.close)
    pull = consumer._ahead.pull_messages

    def pull_while_it_is_closed(progress: QueueProgress) -> Moved | None:
        found = pull(progress)
        if closing.ident is None:
            closing.start()
            wait_for(lambda: not consumer._members.member_count)
        return found

    monkeypatch.setattr(consumer._ahead, "pull_messages", pull_while_it_is_closed)
    with pytest.raises(ConsumerClosed):
        consumer.poll()
    closing.join(WAIT_LIMIT_S)
    assert _pulled(store) == {}


def test_messages_that_a_consumer_goes_back_before_are_not_in_flight(store: MessageStore) -> None:
    with store.consumer("billing", "orders") as consumer:
        _poll_all(consumer)
        assert _pulled(store) == {0: 5, 1: 5}
        consumer.seek("orders", 0, 2)
        assert _pulled(store) == {1: 5}
        consumer.rewind()
        assert _pulled(store) == {}
        assert _poll_all(consumer) == 10
        assert _pulled(store) == {0: 5, 1: 5}
        with pytest.raises(ZeroDivisionError):
            _fail(store, consumer)
        consumer.positions()
        assert _pulled(store) == {}
