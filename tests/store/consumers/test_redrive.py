"""Dead letters: each is given to its group again exactly once, and says where it came from."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_store import Message, MessageExt, MessageExtBrokerInner, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.errors import CorruptRecord, InvalidValue, PutRefused, StoreClosed
from commitlog_store.testing import parts_of

CONFIG = MessageStoreConfig(mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=100 * 20)
DEAD = "%DLQ%billing"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        yield store


def give_up(store: MessageStore, *bodies: bytes, topic: str = "orders") -> None:
    """Messages that group billing consumes and makes dead letters of."""
    for body in bodies:
        message = Message(
            topic=topic, queue_id=0, body=body, tags="paid", keys=["k1", "k2"], flag=7, properties={"region": "eu"},
            born_timestamp=1_700_000_000_000, sharding_key="c1",
        )  # fmt: skip
        store.put_message(message).raise_for_status()
    store.dispatch()
    with store.consumer("billing", topic) as consumer:
        for message_of_group in consumer.poll(1_000):
            consumer.retry(message_of_group, delay_level=-1)
    store.dispatch()


def polled(store: MessageStore, group: str = "billing", topic: str = "orders") -> list[MessageExt]:
    store.dispatch()
    with store.consumer(group, topic) as consumer:
        found = consumer.poll(10_000)
        consumer.commit()
        return found


def test_dead_letters_come_to_their_group_again_and_keep_what_they_have(store: MessageStore) -> None:
    give_up(store, b"1", b"2")
    assert polled(store) == []
    assert store.redrive("billing") == 2
    found = polled(store)
    assert [message.body for message in found] == [b"1", b"2"]
    again = found[0]
    assert (again.topic, again.original_topic, again.reconsume_times) == ("%RETRY%billing", "orders", 0)
    assert (again.tags, again.keys, again.flag, again.sharding_key) == ("paid", ("k1", "k2"), 7, "c1")
    assert (again.properties["region"], again.born_timestamp) == ("eu", 1_700_000_000_000)
    assert [message.body for message in polled(store, "audit")] == [b"1", b"2"], "once, for another group"


def test_each_dead_letter_is_put_back_once(store: MessageStore) -> None:
    give_up(store, b"1", b"2", b"3")
    assert [store.redrive("billing", max_messages=2), store.redrive("billing"), store.redrive("billing")] == [2, 1, 0]
    assert [message.body for message in polled(store)] == [b"1", b"2", b"3"]
    give_up(store, b"4")
    assert store.redrive("billing") == 1
    assert [message.body for message in polled(store)] == [b"4"]
    assert len(store.get_message(DEAD, 0, 0).messages) == 4, "dead letters stay"


def test_the_position_is_in_the_log_with_the_messages(tmp_path: Path) -> None:
    """The file of positions is that of before the redrive, as after a crash."""
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        give_up(store, b"1")
        before = Path(store.path, "config", "consumerOffset.json")
        parts_of(store).engine.run(parts_of(store).groups.flush)
        old = before.read_bytes()
        assert store.redrive("billing") == 1
    before.write_bytes(old)
    before.with_suffix(".json.bak").unlink(missing_ok=True)
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        assert store.redrive("billing") == 0
        assert [message.body for message in polled(store)] == [b"1"]


def test_redrives_in_several_threads_put_each_back_once(store: MessageStore) -> None:
    give_up(store, *(b"%d" % number for number in range(300)))
    counts: list[int] = []

    def work() -> None:
        while found := store.redrive("billing", max_messages=7):
            counts.append(found)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 300
    assert [int(message.body) for message in polled(store)] == list(range(300))


def test_to_the_topic_each_message_goes_to_the_one_that_it_was_sent_to(store: MessageStore) -> None:
    give_up(store, b"1")
    give_up(store, b"2", topic="refunds")
    assert store.redrive("billing", to="topic") == 2
    assert [message.body for message in polled(store)] == [b"1"]
    (other,) = polled(store, topic="refunds")
    assert (other.topic, other.reconsume_times, "RETRY_TOPIC" in other.properties) == ("refunds", 0, False)
    give_up(store, b"3")
    assert store.redrive("billing") == 1, "it may die again, and come back again"


def test_a_message_that_was_redriven_is_retried_as_often_as_a_new_one(store: MessageStore) -> None:
    give_up(store, b"1")
    store.redrive("billing")
    store.dispatch()
    with store.consumer("billing", "orders") as consumer:
        (message,) = consumer.poll()
        consumer.retry(message)
    store.dispatch()
    (copy,) = store.get_message("SCHEDULE_TOPIC_XXXX", 2, 0).messages
    assert (copy.reconsume_times, copy.properties["REAL_TOPIC"]) == (1, "%RETRY%billing")
    assert copy.original_topic == "orders"


def test_a_dead_letter_without_its_topic_goes_to_the_retry_topic_only(store: MessageStore) -> None:
    store.put_message(MessageExtBrokerInner(topic=DEAD, body=b"x", reconsume_times=17)).raise_for_status()
    with pytest.raises(InvalidValue, match=r"offset 0 of '%DLQ%billing' has no property RETRY_TOPIC.*retry topic"):
        store.redrive("billing", to="topic")
    assert store.redrive("billing") == 1


def test_a_closed_topic_is_refused_and_nothing_is_put_back(store: MessageStore) -> None:
    give_up(store, b"1")
    parts_of(store).engine.run(lambda: parts_of(store).engine.topics.create_topic("orders", 4, perm=4))
    with pytest.raises(PutRefused, match="orders"):
        store.redrive("billing", to="topic")
    assert store.redrive("billing") == 1


def test_those_before_damage_are_put_back(store: MessageStore) -> None:
    give_up(store, *(b"body %d" % number for number in range(5)))
    store.flush()
    with StoreReader.open(store.path) as reader:
        dead = [reader.get_message(DEAD, 0, offset, 1).messages[0] for offset in range(5)]
    log = Path(store.path, "commitlog", "00000000000000000000")
    place = log.read_bytes().index(b"body 3", dead[3].physical_offset)
    with log.open("r+b") as file:
        file.seek(place)
        file.write(b"B")
    with pytest.raises(CorruptRecord):
        store.redrive("billing")
    assert [message.body for message in polled(store)] == [b"body 0", b"body 1", b"body 2"]


def test_a_group_without_dead_letters_has_none_to_redrive(store: MessageStore) -> None:
    assert store.redrive("nobody") == 0
    assert not Path(store.path, "config", "topics.json").exists(), "no topic is listed for it"


def test_dead_letters_of_a_deleted_topic_are_counted_from_its_first_again(store: MessageStore) -> None:
    give_up(store, b"1", b"2")
    store.redrive("billing")
    assert [message.body for message in polled(store)] == [b"1", b"2"]
    store.delete_topic(DEAD, with_messages=True)
    give_up(store, b"3")
    assert store.redrive("billing") == 1
    assert [message.body for message in polled(store)] == [b"3"]


def test_wrong_arguments_are_refused(store: MessageStore) -> None:
    with pytest.raises(InvalidValue, match="'retry' or 'topic', not 'orders'"):
        store.redrive("billing", to="orders")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="max_messages"):
        store.redrive("billing", max_messages=0)
    with pytest.raises(InvalidValue, match="consumer group"):
        store.redrive("no group")
    with pytest.raises(InvalidValue, match="belongs to the store"):
        store.transaction("rmq-redrive/billing", 1)
    store.close()
    with pytest.raises(StoreClosed):
        store.redrive("billing")


def test_batches_that_redrive_are_not_listed_as_an_applications(store: MessageStore) -> None:
    give_up(store, b"1")
    store.redrive("billing")
    assert store.batches() == []
