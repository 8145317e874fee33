"""Consumers beside the deletion of topics, and queues that cannot be read when a consumer takes them over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_store import MessageStore
from commitlog_store.errors import CorruptConsumeQueue
from commitlog_store.testing import parts_of
from tests.store.consumers.test_consumer import consumer_offsets, numbers, put
from tests.store.retention.small_stores import SMALL, fill


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        yield store


def test_a_topic_that_begins_again_is_read_from_its_first_message_on(store: MessageStore) -> None:
    fill(store, 25, topic="idle")
    with store.consumer("billing", "idle") as consumer:
        *_, last = consumer.poll(100)
        fill(store, 100)
        store.clean(max_bytes=30_000)
        store.delete_topic("idle")
        consumer.ack(last)
        assert consumer_offsets(store) == {}, "no position of the old messages stays"
        assert consumer.positions() == {}
        fill(store, 3, topic="idle")
        assert [message.queue_offset for message in consumer.poll(100)] == [0, 1, 2]


def test_other_topics_are_consumed_when_one_is_deleted(store: MessageStore) -> None:
    put(store, 4)
    put(store, 4, topic="refunds")
    topics = ["orders", "refunds"]
    first, second = store.consumer("billing", topics), store.consumer("billing", topics)
    assert len(first.poll(100)) + len(second.poll(100)) == 8
    parts_of(store).engine.topics.remove_topic("orders")
    assert store.clean_unused_topics(["refunds"]) == ["orders"]
    second.close()
    first.commit()
    put(store, 4, topic="refunds", start=4)
    assert sorted(numbers(first.poll(100))) == [2, 3, 4, 5, 6, 7], "2 and 3 were the other one's"
    first.close()
    with store.consumer("billing", topics) as third:
        assert set(third.positions()) == {("refunds", queue_id) for queue_id in range(4)}


def test_a_queue_that_cannot_be_read_is_named_at_every_poll_and_keeps_no_other_from_being_acknowledged(
    store: MessageStore,
) -> None:
    put(store, 1)
    Path(store.path, "consumequeue", "orders", "7").write_bytes(b"")
    with store.consumer("billing", "orders") as consumer:
        errors = []
        for _ in range(12):  # the two queues in turn
            try:
                for message in consumer.poll(1):
                    consumer.ack(message)
            except CorruptConsumeQueue as error:
                errors.append(str(error))
    assert consumer_offsets(store) == {("orders", 0): 1}
    assert len(errors) > 2
    assert all("expected a directory" in text for text in errors)
