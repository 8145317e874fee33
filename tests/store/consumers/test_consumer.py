"""Consumers: what is polled, what counts as done, and where a group continues."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import Consumer, Message, MessageExt, MessageExtBrokerInner, MessageStore, MessageStoreConfig
from commitlog_store.consumers.group import average_share
from commitlog_store.errors import ConsumerClosed, CorruptRecord, DiskFull, InvalidValue, NotAStore, StoreClosed
from commitlog_store.files import disk
from commitlog_store.files.whole_file import replace_file
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.groups.group_settings import SubscriptionGroupConfig, SubscriptionGroups
from commitlog_store.testing import parts_of, waiting_calls
from tests.support.waiting import WAIT_LIMIT_S, wait_for

CONFIG = MessageStoreConfig(mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=100 * 20)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        yield store


def put(store: MessageStore, count: int, *, topic: str = "orders", queues: int = 4, start: int = 0) -> None:
    """Messages with their numbers as bodies, in turn to the queues; those with even numbers are paid."""
    for number in range(start, start + count):
        tags = ("paid", "sent")[number % 2]
        message = Message(topic=topic, body=b"%d" % number, tags=tags, queue_id=number % queues)
        store.put_message(message).raise_for_status()
    store.dispatch()


def numbers(messages: list[MessageExt]) -> list[int]:
    return [int(message.body) for message in messages]


def test_a_new_group_gets_every_message_and_the_next_consumer_continues(store: MessageStore) -> None:
    put(store, 100)
    with store.consumer("billing", "orders") as consumer:
        found: list[int] = []
        while messages := consumer.poll(7):
            found += numbers(messages)
            consumer.commit()
        assert sorted(found) == list(range(100))
        for queue_id in range(4):
            assert [one for one in found if one % 4 == queue_id] == list(range(queue_id, 100, 4)), "in order"
    put(store, 10, start=100)
    with store.consumer("billing", ["orders"]) as consumer:
        assert sorted(numbers(consumer.poll(100))) == list(range(100, 110))


def test_what_is_not_acknowledged_comes_again(store: MessageStore) -> None:
    put(store, 10, queues=1)
    with store.consumer("billing", "orders") as consumer:
        messages = consumer.poll(10)
        for number in (0, 1, 4, 2):
            consumer.ack(messages[number])
        consumer.ack(messages[4])
    with store.consumer("billing", "orders") as consumer:
        assert numbers(consumer.poll(10)) == [3, 4, 5, 6, 7, 8, 9], "3 is the first that is not done"


@pytest.mark.parametrize("done", [Consumer.ack, Consumer.retry])
def test_rows_are_done_by_commit_alone(store: MessageStore, done: Callable[[Consumer, MessageExt], object]) -> None:
    put(store, 10, queues=1)
    with store.consumer("billing", "orders") as consumer:
        (first,) = consumer.poll(1)
        consumer.rewind()
        assert consumer.poll_batch() is not None
        done(consumer, first)
    with store.consumer("billing", "orders") as consumer:
        assert numbers(consumer.poll(10)) == list(range(10)), "the rows after the first one are not done"
        consumer.commit()
        assert consumer.poll() == []


def test_messages_that_were_read_ahead_are_not_committed(store: MessageStore) -> None:
    put(store, 10, queues=1)
    with store.consumer("billing", "orders") as consumer:
        assert numbers(consumer.poll(3)) == [0, 1, 2]
        consumer.commit()
    with store.consumer("billing", "orders") as consumer:
        assert numbers(consumer.poll(3)) == [3, 4, 5]


@pytest.mark.parametrize("filter_", [None, "TAGS = 'paid'", "number IS NULL"])
@pytest.mark.parametrize("how", ["messages", "rows"])
def test_what_lies_before_damage_is_given_and_a_seek_passes_it(
    store: MessageStore, how: str, filter_: str | None
) -> None:
    put(store, 600, queues=2)
    damage(store, store.get_message("orders", 0, 150).messages[0].physical_offset)
    with store.consumer("billing", "orders", filter=filter_) as consumer:
        found: list[int] = []
        errors = 0
        while errors < 3:
            try:
                found += polled(consumer, how)
            except CorruptRecord:
                errors += 1
        wanted = [number for number in range(600) if filter_ != "TAGS = 'paid'" or number % 2 == 0]
        assert sorted(found) == [one for one in wanted if one % 2 or one < 300]
        consumer.seek("orders", 0, consumer.positions()["orders", 0] + 1)
        while numbers_there := polled(consumer, how):
            found += numbers_there
        assert sorted(found) == [one for one in wanted if one != 300]


def damage(store: MessageStore, physical_offset: int) -> None:
    """Change the magic code of a record."""
    with Path(store.path, "commitlog", f"{0:020}").open("r+b") as log:
        log.seek(physical_offset + 4)
        log.write(b"?")


def polled(consumer: Consumer, how: str) -> list[int]:
    if how == "messages":
        return numbers(consumer.poll(70))
    batch = consumer.poll_batch(70, columns=["body"])
    return [] if batch is None else [int(body) for body in batch.column("body").to_pylist()]


def test_messages_that_a_filter_leaves_out_are_done(store: MessageStore) -> None:
    put(store, 10, queues=1)
    with store.consumer("billing", "orders", tags="paid") as consumer:
        assert numbers(consumer.poll(10)) == [0, 2, 4, 6, 8]
        consumer.commit()
    assert consumer_offsets(store) == {("orders", 0): 10}
    with store.consumer("audit", "orders", filter="TAGS = 'nothing'") as consumer:
        assert consumer.poll(10) == []
        consumer.commit()
    assert consumer_offsets(store, "audit") == {("orders", 0): 10}


def test_a_group_passes_messages_that_do_not_match_though_none_is_acknowledged(store: MessageStore) -> None:
    put(store, 10, queues=2)
    with store.consumer("billing", "orders", tags="paid") as consumer:
        (first, *_) = consumer.poll(10)
        assert consumer.poll() == []
        assert consumer_offsets(store) == {("orders", 1): 5}, "queue 1 has none that matches; 0 is not done"
        put(store, 2, start=11, queues=2)
        assert numbers(consumer.poll()) == [12]
        assert consumer_offsets(store) == {("orders", 1): 6}
        consumer.ack(first)
        assert consumer_offsets(store) == {("orders", 0): 1, ("orders", 1): 6}
        consumer.rewind()
        assert numbers(consumer.poll(10)) == [2, 4, 6, 8, 12]


def consumer_offsets(store: MessageStore, group: str = "billing") -> dict[tuple[str, int], int]:
    offsets = parts_of(store).groups.offsets
    return {(topic, queue): at for topic in offsets.topics(group) for queue, at in offsets.get(group, topic).items()}


def test_positions_are_written_when_the_store_is_closed_as_brokers_write_them(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        put(store, 10, queues=2)
        consumer = store.consumer("billing", "orders")
        consumer.poll(10)
        consumer.commit()
        path = tmp_path / "store" / "config" / "consumerOffset.json"
        assert not path.exists()
    assert path.read_text() == '{\n\t"offsetTable":{\n\t\t"orders@billing":{\n\t\t\t0:5,\n\t\t\t1:5\n\t\t}\n\t}\n}'


def test_a_commit_may_be_written_at_once(store: MessageStore) -> None:
    put(store, 10, queues=1)
    with store.consumer("billing", "orders") as consumer:
        consumer.poll(4)
        consumer.commit(sync=True)
        assert ConsumerOffsets(store.path).get("billing", "orders") == {0: 4}


def test_positions_are_written_at_an_interval(store: MessageStore) -> None:
    put(store, 10, queues=1)
    with store.consumer("billing", "orders") as consumer:
        consumer.poll(4)
        consumer.commit()
        assert parts_of(store).groups.run_once() == 5.0
        assert ConsumerOffsets(store.path).get("billing", "orders") == {0: 4}


def test_a_failed_write_of_positions_does_not_stop_the_store(store: MessageStore) -> None:
    put(store, 10, queues=1)
    with store.consumer("billing", "orders") as consumer:
        consumer.poll(4)
        consumer.commit()
        blocked = Path(store.path, "config", "consumerOffset.json")
        blocked.symlink_to("/dev/null")
        parts_of(store).groups.run_once()
        assert store.writable
        blocked.unlink()
        parts_of(store).groups.run_once()
    assert ConsumerOffsets(store.path).get("billing", "orders") == {0: 4}


def test_a_damaged_list_of_positions_is_named_by_the_consumer_and_not_by_opening(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG):
        pass
    (tmp_path / "store" / "config").mkdir(exist_ok=True)
    (tmp_path / "store" / "config" / "consumerOffset.json").write_text('{"offsetTable":5}')
    with MessageStore.open(tmp_path / "store", CONFIG) as store, pytest.raises(Exception, match="consumer offsets"):
        store.consumer("billing", "orders")


@pytest.mark.parametrize("begin", ["latest", "time"])
def test_a_new_group_may_begin_late_and_misses_nothing_from_then_on(store: MessageStore, begin: str) -> None:
    put(store, 10, queues=2)
    last = store.get_message("orders", 1, 4).messages[0].store_timestamp
    store.consumer("billing", "orders", consume_from="latest" if begin == "latest" else last + 1).close()
    assert ConsumerOffsets(store.path).get("billing", "orders") == {0: 5, 1: 5}, "it survives a crash"
    put(store, 4, start=10, queues=4)
    with store.consumer("billing", "orders", consume_from="latest") as consumer:
        assert sorted(numbers(consumer.poll(10))) == [10, 11, 12, 13], "two of the queues are new"


def test_a_queue_that_appears_later_is_read_from_its_first_message_on(store: MessageStore) -> None:
    put(store, 4, queues=2)
    store.consumer("billing", ["orders", "refunds"], consume_from="latest").close()
    put(store, 1, topic="refunds", start=100)
    with store.consumer("billing", ["orders", "refunds"], consume_from="latest") as consumer:
        assert numbers(consumer.poll()) == [100]
        put(store, 4, queues=4, start=4)
        put(store, 2, topic="refunds", start=8)
        assert sorted(numbers(consumer.poll(10))) == [4, 5, 6, 7, 8, 9]


def test_consumers_of_a_group_share_the_queues_and_take_over(store: MessageStore) -> None:
    put(store, 100)
    first, second = store.consumer("billing", "orders"), store.consumer("billing", "orders")
    assert [sorted(one.positions()) for one in (first, second)] == [
        [("orders", 0), ("orders", 1)],
        [("orders", 2), ("orders", 3)],
    ]
    assert {one % 4 for one in numbers(first.poll(100))} == {0, 1}
    assert {one % 4 for one in numbers(second.poll(100))} == {2, 3}
    first.commit()
    first.close()
    put(store, 8, start=100)
    assert sorted(numbers(second.poll(100))) == list(range(100, 108)), "also those of queues 0 and 1"
    second.close()


def test_a_consumer_cannot_commit_queues_that_moved_to_another(store: MessageStore) -> None:
    put(store, 40, queues=2)
    first = store.consumer("billing", "orders")
    first.poll(40)
    second = store.consumer("billing", "orders")
    first.commit()
    assert consumer_offsets(store) == {("orders", 0): 20}
    assert numbers(second.poll(40)) == list(range(1, 40, 2))
    first.close()
    second.close()


def test_queues_are_shared_as_rocketmq_shares_them() -> None:
    assert [list(average_share(range(8), 3, index)) for index in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [list(average_share(range(2), 3, index)) for index in range(3)] == [[0], [1], []]
    assert list(average_share(range(0), 1, 0)) == []


def test_seeking_moves_the_group_with_the_next_commit(store: MessageStore) -> None:
    put(store, 10, queues=1)
    with store.consumer("billing", "orders") as consumer:
        consumer.poll(5)
        consumer.seek("orders", 0, 8)
        assert numbers(consumer.poll(10)) == [8, 9]
        consumer.seek("orders", 0, 2)
        consumer.commit()
        assert consumer_offsets(store) == {("orders", 0): 2}
        with pytest.raises(InvalidValue, match="does not read queue 3"):
            consumer.seek("orders", 3, 0)


def test_rewinding_gives_again_what_is_not_committed(store: MessageStore) -> None:
    put(store, 10, queues=1)
    with store.consumer("billing", "orders") as consumer:
        consumer.poll(4)
        consumer.commit()
        consumer.poll(4)
        consumer.rewind()
        assert numbers(consumer.poll(2)) == [4, 5]


def test_positions_outside_the_queue_are_corrected(store: MessageStore, caplog: pytest.LogCaptureFixture) -> None:
    put(store, 10, queues=1)
    with store.consumer("billing", "orders") as consumer:
        consumer.seek("orders", 0, 1000)
        assert consumer.poll() == []
        assert consumer.positions() == {("orders", 0): 10}
        assert consumer_offsets(store) == {("orders", 0): 10}, "RocketMQ's clients write the corrected position too"
    assert "OFFSET_OVERFLOW_BADLY" in caplog.text


def test_record_batches_are_polled_and_committed(store: MessageStore) -> None:
    put(store, 100)
    found: list[int] = []
    with store.consumer("billing", "orders", tags="paid") as consumer:
        while (batch := consumer.poll_batch(20, columns=["body"])) is not None:
            assert batch.schema.names == ["body"]
            found += map(int, batch.column("body").to_pylist())
            consumer.commit()
    assert sorted(found) == list(range(0, 100, 2))
    assert consumer_offsets(store) == {("orders", queue_id): 25 for queue_id in range(4)}


def test_batches_and_messages_may_be_polled_in_turn(store: MessageStore) -> None:
    put(store, 10, queues=1)
    with store.consumer("billing", "orders") as consumer:
        assert numbers(consumer.poll(2)) == [0, 1]
        batch = consumer.poll_batch(3)
        assert batch is not None
        assert batch.column("body").to_pylist() == [b"2", b"3", b"4"]
        consumer.ack(store.get_message("orders", 0, 0, 1).messages[0])
        assert consumer_offsets(store) == {("orders", 0): 1}
        assert numbers(consumer.poll(2)) == [5, 6]


def test_a_poll_waits_for_the_next_message(store: MessageStore) -> None:
    with store.consumer("billing", "orders") as consumer:

        def put_later() -> None:
            wait_for(lambda: waiting_calls(store))
            put(store, 1)

        later = threading.Thread(target=put_later)
        later.start()
        assert numbers(consumer.poll(10, WAIT_LIMIT_S)) == [0]
        later.join()
        assert consumer.poll(10, 0.01) == []


def test_iteration_ends_when_the_consumer_is_closed(store: MessageStore) -> None:
    put(store, 5, queues=1)
    consumer = store.consumer("billing", "orders")
    found = []
    for message in consumer:
        found.append(int(message.body))
        consumer.ack(message)
        if len(found) == 5:
            consumer.close()
    assert found == [0, 1, 2, 3, 4]
    with pytest.raises(ConsumerClosed):
        consumer.poll()


def test_asyncio_gets_the_same_messages(store: MessageStore) -> None:
    put(store, 5, queues=1)

    async def consume() -> list[int]:
        found = []
        with store.consumer("billing", "orders") as consumer:
            assert numbers(await consumer.apoll(2)) == [0, 1]
            async for message in consumer:
                found.append(int(message.body))
                consumer.ack(message)
                if len(found) == 3:
                    break
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(consumer.apoll(1, 5), 0.01)
        return found

    assert asyncio.run(consume()) == [2, 3, 4]


def test_a_closed_store_refuses_polls_and_commits(store: MessageStore) -> None:
    put(store, 5, queues=1)
    consumer = store.consumer("billing", "orders")
    (message, *_) = consumer.poll()
    store.close()
    for call in (consumer.poll, consumer.commit, lambda: consumer.ack(message)):
        with pytest.raises(StoreClosed):
            call()
    consumer.close()


def test_wrong_arguments_are_refused(store: MessageStore) -> None:
    wrong: list[tuple[dict[str, object], str]] = [
        ({"group": "no spaces", "topics": "orders"}, "consumer group"),
        ({"group": "billing", "topics": []}, "at least one topic"),
        ({"group": "billing", "topics": "a/b"}, "A topic is made of"),
        ({"group": "billing", "topics": "%LMQ%a"}, "light queue"),
        ({"group": "billing", "topics": "orders", "consume_from": "middle"}, "consume_from is"),
        ({"group": "billing", "topics": "orders", "consume_from": 1_700_000_000}, "milliseconds"),
    ]
    for arguments, said in wrong:
        with pytest.raises(InvalidValue, match=said):
            store.consumer(**arguments)  # type: ignore[arg-type]


def test_batches_of_a_transaction_are_consumed_together(store: MessageStore) -> None:
    with store.transaction("loader", version=1) as batch:
        batch.put_messages(pa.table({"topic": ["orders"] * 3, "queueId": [0] * 3, "body": [b"0", b"1", b"2"]}))
    store.dispatch()
    with store.consumer("billing", "orders") as consumer:
        assert numbers(consumer.poll()) == [0, 1, 2]


def test_a_message_that_is_given_back_goes_to_the_retry_topic_with_a_delay(store: MessageStore) -> None:
    put(store, 1, queues=1)
    with store.consumer("billing", "orders") as consumer:
        (message,) = consumer.poll()
        consumer.retry(message)
    assert consumer_offsets(store) == {("orders", 0): 1}
    store.dispatch()
    (copy,) = store.get_message("SCHEDULE_TOPIC_XXXX", 2, 0).messages
    assert (copy.body, copy.reconsume_times, copy.born_timestamp) == (b"0", 1, message.born_timestamp)
    assert copy.properties["REAL_TOPIC"] == "%RETRY%billing"
    assert copy.properties["ORIGIN_MESSAGE_ID"] == message.message_id
    assert (copy.properties["DELAY"], copy.properties["TAGS"]) == ("3", "paid")
    assert copy.original_topic == "orders"
    topics = json.loads(Path(store.path, "config", "topics.json").read_text())
    assert topics["topicConfigTable"]["%RETRY%billing"]["writeQueueNums"] == 1


def test_the_consumer_reads_its_retry_topic_and_gives_up_at_last(store: MessageStore) -> None:
    put(store, 1, queues=1)
    with store.consumer("billing", "orders") as consumer:
        (message,) = consumer.poll()
        for times in range(1, 18):
            consumer.retry(message)
            store.dispatch()
            if times == 17:
                break
            copy = store.get_message("SCHEDULE_TOPIC_XXXX", min(1 + times, 17), 0).messages[-1]
            deliver(store, copy)
            (message,) = consumer.poll(10)
            assert (message.topic, message.original_topic, message.reconsume_times) == (
                "%RETRY%billing",
                "orders",
                times,
            )
        assert consumer.poll() == []
    (dead,) = store.get_message("%DLQ%billing", 0, 0).messages
    assert (dead.body, dead.reconsume_times, dead.original_topic) == (b"0", 17, "orders")
    assert "DELAY" not in dead.properties


def test_a_message_comes_again_to_consumers_with_another_filter(store: MessageStore) -> None:
    store.put("orders", b"1", tags="paid", queue_id=0)
    store.put("refunds", b"2", tags="large", queue_id=0)
    store.dispatch()
    orders = store.consumer("billing", "orders", tags="paid")
    refunds = store.consumer("billing", "refunds", filter="TAGS = 'large'")
    refunds.retry(refunds.poll()[0])
    store.dispatch()
    deliver(store, store.get_message("SCHEDULE_TOPIC_XXXX", 2, 0).messages[0])
    assert numbers(orders.poll()) == [1, 2], "the only queue of the retry topic is the first consumer's"
    orders.rewind()
    batches = [orders.poll_batch(columns=["body"]) for _ in range(2)]
    assert sorted(batch.column("body").to_pylist() for batch in batches if batch) == [[b"1"], [b"2"]]
    orders.close()
    refunds.close()


def deliver(store: MessageStore, delayed: MessageExt) -> None:
    """Put what the delivery of a delayed message puts."""
    properties = {name: value for name, value in delayed.properties.items() if name not in ("DELAY", "TAGS", "KEYS")}
    store.put_message(
        MessageExtBrokerInner(
            topic=properties.pop("REAL_TOPIC"),
            queue_id=int(properties.pop("REAL_QID")),
            body=delayed.body,
            tags=delayed.properties.get("TAGS"),
            properties=properties,
            reconsume_times=delayed.reconsume_times,
        )
    ).raise_for_status()
    store.dispatch()


@pytest.mark.parametrize("done", ["ack", "commit", "retry"])
def test_a_message_that_is_done_is_not_given_back(store: MessageStore, done: str) -> None:
    put(store, 4, queues=1)
    with store.consumer("billing", "orders") as consumer:
        messages = consumer.poll(4)
        for message in messages[1:3]:
            consumer.commit() if done == "commit" else getattr(consumer, done)(message)
        for message in messages[1:3]:
            with pytest.raises(InvalidValue, match=r"offset \d of topic 'orders', queue 0, was acknowledged"):
                consumer.retry(message)
        if done != "commit":
            consumer.retry(messages[0])
            consumer.retry(messages[3])
    copies = 4 if done == "retry" else 2 if done == "ack" else 0
    store.dispatch()
    assert len(store.get_message("SCHEDULE_TOPIC_XXXX", 2, 0).messages) == copies


@pytest.mark.parametrize("method", ["retry", "ack"])
def test_a_list_of_messages_is_answered_with_what_to_do(store: MessageStore, method: str) -> None:
    put(store, 2)
    with store.consumer("billing", "orders") as consumer:
        messages = consumer.poll(2)
        with pytest.raises(InvalidValue, match="takes one message of poll, not a value of type list") as error:
            getattr(consumer, method)(messages)
        assert f"for message in messages: consumer.{method}(message)" in str(error.value)
        consumer.rewind()
        assert len(consumer.poll(2)) == 2, "none of them is done"


def test_what_comes_again_may_be_given_back(store: MessageStore) -> None:
    put(store, 4, queues=1)
    with store.consumer("billing", "orders") as consumer:
        first = consumer.poll(2)
        consumer.rewind()
        consumer.retry(consumer.poll(1)[0])
        consumer.seek("orders", 0, 0)
        for message in consumer.poll(4):
            consumer.retry(message)
        consumer.seek("orders", 0, 4)
        consumer.retry(first[1])


def test_a_message_of_a_batch_that_is_not_committed_may_be_given_back(store: MessageStore) -> None:
    put(store, 4, queues=1)
    with store.consumer("billing", "orders") as consumer:
        assert consumer.poll_batch() is not None
        message = store.get_message("orders", 0, 2).messages[0]
        consumer.retry(message)
        consumer.commit()
        with pytest.raises(InvalidValue, match="was acknowledged"):
            consumer.retry(message)


def test_a_negative_delay_level_makes_a_dead_letter_at_once(store: MessageStore) -> None:
    put(store, 1, queues=1)
    with store.consumer("billing", "orders") as consumer:
        (message,) = consumer.poll()
        consumer.retry(message, delay_level=-1)
    store.dispatch()
    assert [one.body for one in store.get_message("%DLQ%billing", 0, 0).messages] == [b"0"]


def test_a_group_that_may_not_consume_gets_no_consumer(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        settings = SubscriptionGroupConfig(group_name="billing", consume_enable=False)
        SubscriptionGroups(store.path).put(settings)
        with pytest.raises(InvalidValue, match="consumeEnable is false"):
            store.consumer("billing", "orders")


@pytest.mark.parametrize("perm", [0, 2, 4, 6])
def test_a_topic_without_the_bit_for_reading_gets_no_consumer(store: MessageStore, perm: int) -> None:
    put(store, 1)
    parts_of(store).engine.topics.create_topic("orders", 4, perm=perm)
    if perm & 4:
        store.consumer("billing", "orders").close()
    else:
        with pytest.raises(InvalidValue, match=f"'orders' is closed for consumers: its perm is {perm} in "):
            store.consumer("billing", ["refunds", "orders"])


def test_a_failed_write_of_positions_at_closing_is_raised_and_is_no_clean_end(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "store", CONFIG)
    put(store, 4, queues=1)
    consumer = store.consumer("billing", "orders")
    consumer.poll()
    consumer.commit()
    (tmp_path / "store" / "config").mkdir(exist_ok=True)
    (tmp_path / "store" / "config" / "consumerOffset.json").symlink_to("/dev/null")
    with pytest.raises(NotAStore, match="symbolic link"):
        store.close()
    assert (tmp_path / "store" / "abort").exists()
    (tmp_path / "store" / "config" / "consumerOffset.json").unlink()
    with MessageStore.open(tmp_path / "store", CONFIG) as again:
        assert again.recovered is not None
        with again.consumer("billing", "orders") as consumer:
            assert numbers(consumer.poll()) == [0, 1, 2, 3]


@pytest.mark.parametrize("step", ["create_file", "sync"])
def test_a_disk_that_fails_for_the_positions_at_closing_leaves_the_mark_of_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    store = MessageStore.open(tmp_path / "store", CONFIG)
    put(store, 4, queues=1)
    consumer = store.consumer("billing", "orders")
    consumer.poll()
    consumer.commit()
    write = replace_file

    def failing(path: str, data: bytes) -> None:
        if path.endswith("consumerOffset.json"):
            monkeypatch.setattr(disk, step, _no_space)
        write(path, data)

    monkeypatch.setattr("commitlog_store.config_files.json_file.replace_file", failing)
    with pytest.raises(DiskFull, match=r"consumerOffset\.json"):
        store.close()
    monkeypatch.undo()
    assert (tmp_path / "store" / "abort").exists()
    with MessageStore.open(tmp_path / "store", CONFIG) as again, again.consumer("billing", "orders") as consumer:
        assert numbers(consumer.poll()) == [0, 1, 2, 3]


def _no_space(*_: object) -> object:
    raise OSError(errno.ENOSPC, "injected")


def test_a_consumer_that_is_dropped_leaves_its_queues_to_the_others(store: MessageStore) -> None:
    put(store, 4)
    first, second = store.consumer("billing", "orders"), store.consumer("billing", "orders")
    assert len(first.positions()) == 2
    del second
    gc.collect()
    assert len(first.positions()) == 4
    first.close()


def test_the_settings_of_the_group_say_how_often_a_message_comes_again(tmp_path: Path) -> None:
    config = tmp_path / "store" / "config"
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        put(store, 1, queues=1)
    config.mkdir(exist_ok=True)
    settings = {"subscriptionGroupTable": {"billing": {"groupName": "billing", "retryMaxTimes": 0}}}
    (config / "subscriptionGroup.json").write_text(json.dumps(settings))
    with MessageStore.open(tmp_path / "store", CONFIG) as store, store.consumer("billing", "orders") as consumer:
        consumer.retry(consumer.poll()[0])
        store.dispatch()
        assert len(store.get_message("%DLQ%billing", 0, 0).messages) == 1
    listed = json.loads((config / "topics.json").read_text())["topicConfigTable"]
    entry = listed["%DLQ%billing"]
    assert (entry["perm"], entry["readQueueNums"], entry["writeQueueNums"]) == (6, 1, 1), "as brokers list it"
