"""Who waits for messages is woken for its own topic, queue and tags, and soon."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from commitlog_store import Message, MessageFilter, MessageStore
from commitlog_store.engine.arrivals import Interest
from commitlog_store.errors import StoreClosed
from commitlog_store.testing import parts_of
from commitlog_store.threads.wakeup import Wakeup
from tests.support.waiting import WAIT_LIMIT_S, wait_for

INTERESTS = {
    "topic": Interest("orders"),
    "queue 0": Interest("orders", 0),
    "queue 1": Interest("orders", 1),
    "paid": Interest("orders", 0, MessageFilter.parse(tags="paid").may_match),
    "void or late": Interest("orders", 0, MessageFilter.parse(tags="void || late").may_match),
    "by property": Interest("orders", 0, MessageFilter.parse(filter="region = 'eu'").may_match),
    "besides 0": Interest("orders", besides=frozenset({0, 2})),
    "paid, besides 1": Interest("orders", None, MessageFilter.parse(tags="paid").may_match, frozenset({1})),
    "other topic": Interest("audit"),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store") as opened:
        yield opened


def woken(store: MessageStore, topic: str, **message: object) -> set[str]:
    """Who is woken for one message."""
    arrivals = parts_of(store).engine.waiters
    with ExitStack() as stack:
        waiting = {
            name: stack.enter_context(arrivals.waiting_for(Wakeup(), [interest]))
            for name, interest in INTERESTS.items()
        }
        store.put(topic, b"x", **message).raise_for_status()  # type: ignore[arg-type]
        store.dispatch()
        return {name for name, wakeup in waiting.items() if wakeup.wait(0)}


def test_a_message_wakes_those_who_wait_for_its_topic_queue_and_tags(store: MessageStore) -> None:
    of_0 = {"topic", "queue 0", "by property"}
    assert woken(store, "orders", queue_id=0, tags="paid") == of_0 | {"paid", "paid, besides 1"}
    assert woken(store, "orders", queue_id=0, tags="late") == of_0 | {"void or late"}
    assert woken(store, "orders", queue_id=0) == of_0
    assert woken(store, "orders", queue_id=1, tags="paid") == {"topic", "queue 1", "besides 0"}
    assert woken(store, "orders", queue_id=3, tags="paid") == {"topic", "besides 0", "paid, besides 1"}
    assert woken(store, "audit", queue_id=0, tags="paid") == {"other topic"}
    assert woken(store, "nobodys", queue_id=0, tags="paid") == set()


def test_many_messages_wake_as_one_does(store: MessageStore) -> None:
    arrivals = parts_of(store).engine.waiters
    with arrivals.waiting_for(Wakeup(), [INTERESTS["paid"]]) as paid:
        for _ in range(100):
            store.put("orders", b"x", queue_id=0, tags="other")
        store.dispatch()
        assert not paid.wait(0)
        for tags in ["other"] * 50 + ["paid"] + ["other"] * 50:
            store.put("orders", b"x", queue_id=0, tags=tags)
        store.dispatch()
        assert paid.wait(0)


def test_messages_of_one_round_count_each_with_its_own_queue_and_tags(store: MessageStore) -> None:
    arrivals = parts_of(store).engine.waiters
    with arrivals.waiting_for(Wakeup(), [INTERESTS["paid, besides 1"]]) as wakeup:
        store.put_messages(
            [
                Message(topic="orders", body=b"x", queue_id=1, tags="paid"),
                Message(topic="orders", body=b"x", queue_id=0),
            ]
        )
        store.dispatch()
        assert not wakeup.wait(0)


def test_a_transaction_wakes_when_it_is_seen(store: MessageStore) -> None:
    arrivals = parts_of(store).engine.waiters
    with arrivals.waiting_for(Wakeup(), [INTERESTS["queue 1"]]) as wakeup:
        with store.transaction("app", 1) as transaction:
            transaction.put_messages([Message(topic="orders", body=b"x", queue_id=1)])
            assert not wakeup.wait(0)
        assert wakeup.wait(WAIT_LIMIT_S)
        assert store.wait_for_messages("orders", 1, 0, 0)


def test_a_transaction_wakes_those_who_wait_for_its_queues(store: MessageStore) -> None:
    arrivals = parts_of(store).engine.waiters
    with ExitStack() as stack:
        waiting = {
            name: stack.enter_context(arrivals.waiting_for(Wakeup(), [interest]))
            for name, interest in INTERESTS.items()
        }
        with store.transaction("app", 1) as transaction:
            transaction.put_messages([Message(topic="orders", body=b"x", queue_id=1, tags="sent")] * 3)
        store.dispatch()
        assert {name for name, wakeup in waiting.items() if wakeup.wait(0)} == {"topic", "queue 1", "besides 0"}


def test_messages_before_a_batch_in_one_round_wake_too(store: MessageStore) -> None:
    arrivals = parts_of(store).engine.waiters
    reput = parts_of(store).engine.reput
    with ExitStack() as stack:
        waiting = {
            name: stack.enter_context(arrivals.waiting_for(Wakeup(), [interest]))
            for name, interest in INTERESTS.items()
        }
        with reput._lock:  # so that one round has all
            store.put("audit", b"x", queue_id=0).raise_for_status()
            transaction = threading.Thread(target=_commit, args=(store,))
            transaction.start()
            wait_for(lambda: len(store.batches()) == 1)
        transaction.join()
        store.dispatch()
        assert {name for name, wakeup in waiting.items() if wakeup.wait(0)} == {
            *("topic", "queue 1", "besides 0"), "other topic"
        }  # fmt: skip


def _commit(store: MessageStore) -> None:
    with store.transaction("app", 1) as transaction:
        transaction.put_messages([Message(topic="orders", body=b"x", queue_id=1)])


def test_get_message_waits_on_while_others_tags_come(store: MessageStore) -> None:
    """And it is not asked again for each of them: what does not match is passed in one look."""
    found: list[int] = []
    thread = threading.Thread(
        target=lambda: found.append(
            store.get_message("orders", 0, 0, tags="paid", wait_s=WAIT_LIMIT_S).messages[0].queue_offset
        )
    )
    thread.start()
    wait_for(lambda: len(parts_of(store).engine.waiters) == 1)
    for _ in range(20):
        store.put("orders", b"x", queue_id=0, tags="other")
        store.dispatch()
    assert thread.is_alive()
    store.put("orders", b"x", queue_id=0, tags="paid")
    thread.join(WAIT_LIMIT_S)
    assert found == [20]


def test_closing_ends_every_wait(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "store")
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            store.wait_for_messages("orders", 0, 0, WAIT_LIMIT_S)
        except StoreClosed as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_for(lambda: len(parts_of(store).engine.waiters) == 1)
    started = time.monotonic()
    store.close()
    thread.join(WAIT_LIMIT_S)
    assert raised
    assert time.monotonic() - started < WAIT_LIMIT_S / 2
