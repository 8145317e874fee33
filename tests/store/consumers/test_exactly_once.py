"""Positions that are committed with a transaction: with its messages, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import (
    Consumer,
    FlushDiskType,
    Message,
    MessageExt,
    MessageStore,
    MessageStoreConfig,
    StoreReader,
    commit_group_offsets,
    connect,
)
from commitlog_store.errors import InvalidValue, TransactionEnded
from commitlog_store.format.positions_message import decode_positions, encode_positions
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.paths import POSITIONS_GROUP, POSITIONS_TOPIC
from commitlog_store.testing import kill, parts_of
from tests.store.serve.servers import served
from tests.support.interrupter import interrupt_main_thread
from tests.support.waiting import WAIT_LIMIT_S, wait_for

CONFIG = MessageStoreConfig(mapped_file_size_commit_log=1 << 20)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        bodies = [b"%d" % number for number in range(10)]
        store.put_messages(pa.table({"topic": ["orders"] * 10, "queueId": [0] * 10, "body": bodies}))
        store.dispatch()
        yield store


def step(store: MessageStore, consumer: Consumer, version: int, count: int) -> None:
    with store.transaction("invoices", version) as batch:
        orders = consumer.poll_batch(count, columns=["body"])
        assert orders is not None
        batch.put_messages(orders, topic="invoices")
        consumer.commit(in_transaction=batch)


def invoices(store: MessageStore) -> list[int]:
    store.dispatch()
    with store.reader() as reader:
        return sorted(
            int(body)
            for queue in reader.queues("invoices")
            for batch in reader.read("invoices", queue.queue_id, 0)
            for body in batch.column("body").to_pylist()
        )


def positions(store: MessageStore) -> dict[int, int]:
    return parts_of(store).groups.offsets.get("billing", "orders")


def test_positions_and_output_are_there_together(store: MessageStore) -> None:
    with store.consumer("billing", "orders") as consumer:
        step(store, consumer, 1, 4)
        assert (positions(store), invoices(store)) == ({0: 4}, [0, 1, 2, 3])
        step(store, consumer, 2, 10)
    assert (positions(store), invoices(store)) == ({0: 10}, list(range(10)))


def test_after_a_kill_the_file_of_positions_follows_the_log(store: MessageStore) -> None:
    with store.consumer("billing", "orders") as consumer:
        step(store, consumer, 1, 4)
        step(store, consumer, 2, 3)
    kill(store)
    assert ConsumerOffsets(store.path).get("billing", "orders") == {}
    with MessageStore.open(store.path, CONFIG) as again:
        assert ConsumerOffsets(store.path).get("billing", "orders") == {0: 7}
        with again.consumer("billing", "orders") as consumer:
            step(again, consumer, 3, 10)
        assert invoices(again) == list(range(10))


def test_positions_that_were_written_are_not_applied_again(store: MessageStore) -> None:
    with store.consumer("billing", "orders") as consumer:
        step(store, consumer, 1, 4)
        consumer.seek("orders", 0, 1)
        consumer.commit(sync=True)
    kill(store)
    with MessageStore.open(store.path, CONFIG) as again:
        assert positions(again) == {0: 1}


def test_a_transaction_that_fails_moves_the_consumer_back(store: MessageStore) -> None:
    def fail(consumer: Consumer) -> None:
        with store.transaction("invoices", 1) as batch:
            assert len(consumer.poll(4)) == 4
            consumer.commit(in_transaction=batch)
            raise ZeroDivisionError

    with store.consumer("billing", "orders") as consumer:
        with pytest.raises(ZeroDivisionError):
            fail(consumer)
        assert consumer.positions() == {("orders", 0): 0}
        step(store, consumer, 1, 10)
    assert invoices(store) == list(range(10))


def test_a_consumer_continues_right_after_a_commit_that_was_interrupted_before_its_turn(store: MessageStore) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def keep_the_job_thread() -> None:
        begun.set()
        assert may_end.wait(WAIT_LIMIT_S)

    busy = threading.Thread(target=lambda: parts_of(store).engine.run(keep_the_job_thread))

    def interrupted_step() -> None:
        with store.transaction("invoices", 1) as batch:
            batch.put_messages(consumer.poll_batch(4, columns=["body"]), topic="invoices")
            consumer.commit(in_transaction=batch)
            busy.start()
            begun.wait()

    with store.consumer("billing", "orders") as consumer:

        def waits() -> None:
            assert begun.wait(WAIT_LIMIT_S)  # jobs of the steps before it may wait for a moment, too
            wait_for(parts_of(store).engine._jobs._jobs.qsize)

        with pytest.raises(KeyboardInterrupt), interrupt_main_thread(waits):
            interrupted_step()
        before = consumer.positions()
        may_end.set()
        busy.join()
        store.flush()  # after the commit, if that still comes
        assert consumer.positions() == before
        step(store, consumer, 2, 10)
    assert invoices(store) == list(range(10)), "each of them once"


def test_a_queue_that_passes_to_another_consumer_ends_the_transaction(store: MessageStore) -> None:
    first = store.consumer("billing", "orders")

    def lose_the_queue() -> Consumer:
        with store.transaction("invoices", 1) as batch:
            batch.put_messages(first.poll_batch(4, columns=["body"]), topic="invoices")
            first.commit(in_transaction=batch)
            first.close()
            others.append(store.consumer("billing", "orders"))
        raise AssertionError("it was committed")

    others: list[Consumer] = []
    with pytest.raises(TransactionEnded, match="are not the consumer's any more"):
        lose_the_queue()
    step(store, others[0], 1, 10)
    assert invoices(store) == list(range(10))
    others[0].close()


def copy(store: MessageStore, consumer: Consumer, version: int, polled: list[MessageExt]) -> None:
    with store.transaction("invoices", version) as batch:
        consumer.commit(in_transaction=batch)
        batch.put_messages([{"body": message.body} for message in polled], topic="invoices")


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_queue_that_passes_between_poll_and_commit_ends_the_transaction(
    store: MessageStore, comes_back: bool
) -> None:
    store.put("orders", b"10", queue_id=1)
    store.dispatch()
    with store.consumer("billing", "orders") as first:
        polled = first.poll(11)
        assert len(polled) == 11, "of both queues"
        second = store.consumer("billing", "orders")
        if comes_back:
            second.close()
        with pytest.raises(TransactionEnded, match="poll again"):
            copy(store, first, 1, polled)
        for version, consumer in enumerate([first] if comes_back else [first, second], 1):
            copy(store, consumer, version, consumer.poll(20))
        assert invoices(store) == list(range(11)), "each of them once"
        second.close()


def test_a_topic_that_is_deleted_between_poll_and_commit_ends_the_transaction(store: MessageStore) -> None:
    store.put("bills", b"0")
    store.dispatch()
    with store.consumer("billing", ["bills", "orders"]) as consumer:
        polled = consumer.poll(11)
        assert len(polled) == 11, "of both topics"
        store.delete_topic("bills", with_messages=True)
        consumer.positions()  # looks at the topics
        with pytest.raises(TransactionEnded, match="or their topic was deleted"):
            copy(store, consumer, 1, polled)
        copy(store, consumer, 1, consumer.poll(11))
    assert invoices(store) == list(range(10))


@pytest.mark.parametrize("done", [Consumer.commit, Consumer.rewind])
def test_messages_of_a_lost_queue_that_are_done_or_given_back_end_no_transaction(
    store: MessageStore, done: Callable[[Consumer], None]
) -> None:
    store.put("orders", b"10", queue_id=1)
    store.dispatch()
    with store.consumer("billing", "orders") as first:
        assert len(first.poll(11)) == 11
        with store.consumer("billing", "orders"):
            first.positions()
            done(first)
            store.put("orders", b"11", queue_id=0)
            store.dispatch()
            copy(store, first, 1, first.poll(20))
    assert 11 in invoices(store)


def test_a_queue_that_comes_back_is_read_from_where_the_other_consumer_left_it(store: MessageStore) -> None:
    queue_ids = [0, *[1] * 10, 2]
    store.put_messages(pa.table({"queueId": queue_ids, "body": [b"x"] * len(queue_ids)}), topic="bills")
    store.dispatch()
    first, second = store.consumer("billing", "bills"), store.consumer("billing", "bills")
    assert [message.queue_id for message in first.poll(4)] == [0, 1, 1, 1]
    assert [message.queue_id for message in second.poll()] == [2]
    with store.consumer("billing", "bills"):  # a queue for each: the second consumer gets the middle one
        assert [(message.queue_id, message.queue_offset) for message in second.poll(5)] == [(1, at) for at in range(5)]
        second.commit()
    assert [(message.queue_id, message.queue_offset) for message in first.poll()] == [(1, at) for at in range(5, 10)]
    first.close()
    second.close()


def test_positions_alone_are_a_batch_too(store: MessageStore) -> None:
    with store.consumer("billing", "orders") as consumer:
        consumer.poll()
        with store.transaction("invoices", 1) as batch:
            consumer.commit(in_transaction=batch)
    kill(store)
    with MessageStore.open(store.path, CONFIG) as again:
        assert positions(again) == {0: 10}


def test_a_version_that_was_committed_before_takes_no_positions(store: MessageStore) -> None:
    with store.consumer("billing", "orders") as consumer:
        step(store, consumer, 1, 4)
        with pytest.raises(InvalidValue, match="Begin the next version"):
            step(store, consumer, 1, 4)
        assert consumer.positions() == {("orders", 0): 4}, "what was polled in vain comes again"
        with store.transaction("invoices", 2) as batch:
            pass
        consumer.poll()
        with pytest.raises(TransactionEnded):
            consumer.commit(in_transaction=batch)


def test_a_transaction_of_another_store_takes_no_positions(store: MessageStore, tmp_path: Path) -> None:
    with (
        MessageStore.open(tmp_path / "other", CONFIG) as other,
        served(owned=other) as url,
        connect(url) as remote,
        store.consumer("billing", "orders") as consumer,
    ):
        transactions: list[Any] = [other.transaction("invoices", 1), remote.transaction("invoices", 1), "invoices"]
        for has_polled in (False, True):
            for transaction in transactions:
                with pytest.raises(InvalidValue, match="in_transaction is a transaction of the same store, not "):
                    consumer.commit(in_transaction=transaction)
            if not has_polled:
                consumer.poll(4)
        consumer.rewind()
        step(store, consumer, 1, 10)
    assert invoices(store) == list(range(10))


def test_producers_cannot_write_positions(store: MessageStore) -> None:
    message = Message(topic=POSITIONS_TOPIC, body=encode_positions("billing", {("orders", 0): 9}))
    assert not store.put_message(message).ok


def test_positions_are_json_and_anything_else_is_passed_over() -> None:
    body = encode_positions("billing", {("orders", 0): 12, ("orders", 1): 9, ("refunds", 3): 0})
    assert body == b'{"group":"billing","offsets":{"orders":{"0":12,"1":9},"refunds":{"3":0}}}'
    assert decode_positions(body) == ("billing", {("orders", 0): 12, ("orders", 1): 9, ("refunds", 3): 0})
    wrong = b'{"group":"billing","offsets":{"orders":{"0":-1}}}'
    nested = b'{"more":' + b"[" * 10_000 + b"]" * 10_000 + b"}"
    for other in (b"", b"{}", wrong, b'{"group":1,"offsets":{}}', b'{"group":"\xff","offsets":{}}', nested):
        assert decode_positions(other) is None


def test_a_reset_after_a_kill_is_not_undone_by_the_log(store: MessageStore) -> None:
    with store.consumer("billing", "orders") as consumer:
        step(store, consumer, 1, 4)
    with store.consumer("audit", "orders") as consumer, store.transaction("audit", 1) as batch:
        consumer.poll_batch(6)
        consumer.commit(in_transaction=batch)
    kill(store)
    commit_group_offsets(store.path, "billing", {("orders", 0): 1})
    with StoreReader.open(store.path) as reader:
        assert reader.group_offsets("billing") == {("orders", 0): 1}
    with MessageStore.open(store.path, CONFIG) as again:
        assert positions(again) == {0: 1}
        assert parts_of(again).groups.offsets.get("audit", "orders") == {0: 6}
        with again.consumer("billing", "orders") as consumer:
            step(again, consumer, 2, 5)
        kill(again)
    with MessageStore.open(store.path, CONFIG) as third:
        assert positions(third) == {0: 6}, "the reset counts once, not for positions after it"


def test_readers_see_positions_that_only_the_log_has_and_write_nothing(store: MessageStore) -> None:
    with store.consumer("billing", "orders") as consumer:
        step(store, consumer, 1, 4)
    store.dispatch()
    kill(store)
    with StoreReader.open(store.path) as reader:
        assert reader.group_offsets("billing") == {("orders", 0): 4}
        assert [row.lag for row in reader.groups("billing")] == [6]
    assert ConsumerOffsets(store.path).groups() == []


def test_positions_whose_bytes_have_changed_are_not_taken(store: MessageStore) -> None:
    with store.consumer("billing", "orders") as consumer:
        step(store, consumer, 1, 4)
    store.dispatch()
    kill(store)
    (log,) = Path(store.path, "commitlog").iterdir()
    data = log.read_bytes()
    body = encode_positions("billing", {("orders", 0): 4})
    assert data.count(body) == 1
    log.write_bytes(data.replace(body, encode_positions("billing", {("orders", 0): 9})))
    with StoreReader.open(store.path) as reader:
        assert reader.group_offsets("billing") == {}, "those of the file, as for a record that is none"


def test_positions_of_several_groups_are_noted_as_applied_when_all_of_them_are(tmp_path: Path) -> None:
    def groups() -> Iterator[tuple[str, dict[tuple[str, int], int]]]:
        yield "billing", {("orders", 0): 1}
        kept.flush()
        yield "audit", {("orders", 0): 1}

    with MessageStore.open(tmp_path, CONFIG) as store:
        kept = parts_of(store).groups
        kept.apply(groups(), 2)
        written = ConsumerOffsets(str(tmp_path))
    assert written.groups() == ["billing"]
    assert written.get(POSITIONS_GROUP, POSITIONS_TOPIC) == {}, "after a kill, the log has audit's position"


def test_positions_are_not_on_the_device_before_what_they_stand_for(tmp_path: Path) -> None:
    config = MessageStoreConfig(
        mapped_file_size_commit_log=1 << 20,
        flush_disk_type=FlushDiskType.ASYNC_FLUSH,
        flush_interval_commit_log=3_600_000,
        flush_interval_consume_queue=3_600_000,
    )
    with MessageStore.open(tmp_path / "store", config) as store, store.consumer("billing", "orders") as consumer:
        store.put_message(Message(topic="orders", queue_id=0, body=b"x"))
        store.dispatch()
        (message,) = consumer.poll()
        consumer.retry(message)
        consumer.commit(sync=True)
        files = parts_of(store).engine.log.files
        assert files.flushed_where == files.max_wrote


def test_acknowledging_in_an_open_transaction_moves_no_position_before_it_ends(store: MessageStore) -> None:
    def fail(consumer: Consumer) -> None:
        with store.transaction("invoices", 1) as batch:
            consumer.poll(4)
            consumer.commit(in_transaction=batch)
            (message,) = consumer.poll(1)
            consumer.ack(message)
            consumer.commit(sync=True)
            assert positions(store) == {}
            for elsewhere in (consumer.rewind, lambda: consumer.seek("orders", 0, 9)):
                with pytest.raises(InvalidValue, match="go elsewhere when that has ended"):
                    elsewhere()
            raise ZeroDivisionError

    with store.consumer("billing", "orders") as consumer:
        with pytest.raises(ZeroDivisionError):
            fail(consumer)
        assert consumer.positions() == {("orders", 0): 0}, "the messages of the failed transaction come again"
        step(store, consumer, 1, 4)
        (message,) = consumer.poll(1)
        consumer.ack(message)
        assert positions(store) == {0: 5}


def test_positions_are_part_of_one_transaction_at_a_time(store: MessageStore) -> None:
    with store.consumer("billing", "orders") as consumer:
        with store.transaction("invoices", 1) as batch, store.transaction("audit", 1) as other:
            consumer.poll(4)
            consumer.commit(in_transaction=batch)
            consumer.poll(2)
            with pytest.raises(InvalidValue, match="end that transaction before the next"):
                consumer.commit(in_transaction=other)
            consumer.commit(in_transaction=batch)
        assert positions(store) == {0: 6}
        with store.transaction("audit", 2) as other:
            consumer.poll(1)
            consumer.commit(in_transaction=other)
        assert positions(store) == {0: 7}
