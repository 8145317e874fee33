"""Half messages in one store by turns: prepared by either side, ended by the other, and read alike by both."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog_store import HalfMessageHandle, Message, MessageExt, MessageStore, StoreReader
from commitlog_store.format.half_messages import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_TOPIC
from commitlog_store.format.sys_flag import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from commitlog_store.half_message import Answer
from tests.interop.agreement import agree_on_closed
from tests.interop.command_process import Json
from tests.interop.message_store_program import open_store
from tests.interop.rocketmq import RocketMq, message_store_settings
from tests.interop.store_process import StoreProcess
from tests.interop.test_message_store_writes import SMALL
from tests.interop.transactions import (
    FOR_EVER_HOURS,
    ILLEGAL_OPERATION,
    SUCCESS,
    BrokerTransactions,
    broker_message,
    half_properties,
)
from tests.support.stored_bodies import topic_bodies


def ours(path: Path) -> MessageStore:
    return open_store(str(path), message_store_settings(SMALL))


def put(process: StoreProcess, topic: str, body: bytes, **fields: object) -> Json:
    """Put with RocketMQ's store what a broker puts there."""
    reply = process.ask("put", kind="message", messages=[broker_message(topic, body, **fields)])
    assert reply["status"] == "PUT_OK", reply
    place: Json = reply["messages"][0]
    return place


def pending(path: Path) -> list[bytes]:
    with StoreReader.open(path) as reader:
        return [one.message.body for one in reader.pending_half_messages()]


def test_keys_lead_to_what_rocketmq_finds_by_them(rocketmq: RocketMq, tmp_path: Path) -> None:
    """To prepared messages, which are in no queue, and to half messages in their own topic only."""
    path = tmp_path / "store"
    with rocketmq.open(path, SMALL) as process:
        for number, kind in enumerate((0, TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE)):
            put(process, "orders", b"%d" % number, sysFlag=kind, keys=[f"k{number}", "k"])
        half = put(process, HALF_TOPIC, b"half", keys=["k"], properties=half_properties("u1"))
        process.close()
    found = agree_on_closed(path, rocketmq, SMALL).found
    assert [bool(found["orders", f"k{number}"]) for number in range(3)] == [True, True, False]
    assert found["orders", "k"] == found["orders", "k0"] + found["orders", "k1"]
    assert found[HALF_TOPIC, "k"] == [half["physicalOffset"]]
    with ours(path) as store:
        assert [message.body for message in store.reader().query("orders", "k")] == [b"0", b"1"]


def test_half_messages_are_finished_by_the_other_side(rocketmq: RocketMq, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with ours(path) as store:
        half = store.half_messages
        handles = [half.prepare(Message(topic="orders", body=b"ours-%d" % n), "payments") for n in range(5)]
        half.commit(handles[0])
        half.rollback(handles[1])
    answers = agree_on_closed(path, rocketmq, SMALL)
    assert [one["topic"] for one in answers.messages].count(HALF_TOPIC) == 5
    # What a broker does for the end of two transactions, and for two that begin.
    with rocketmq.open(path, SMALL) as process:
        committed = handles[2]
        put(
            process,
            "orders",
            b"ours-2",
            sysFlag=TRANSACTION_COMMIT_TYPE,
            properties=half_properties(committed.unique_key),
            preparedTransactionOffset=committed.physical_offset,
        )
        body = b"%d,%d," % (committed.queue_offset, handles[3].queue_offset)
        put(process, OP_TOPIC, body if rocketmq.is_five else b"%d" % committed.queue_offset, tags="d")
        if not rocketmq.is_five:
            put(process, OP_TOPIC, b"%d" % handles[3].queue_offset, tags="d")
        theirs = [put(process, HALF_TOPIC, b"theirs-%d" % n, properties=half_properties(f"key-{n}")) for n in range(2)]
        process.close()
    assert pending(path) == [b"ours-4", b"theirs-0", b"theirs-1"]
    with ours(path) as store:
        for number, place in enumerate(theirs):
            handle = HalfMessageHandle(place["physicalOffset"], place["queueOffset"], "payments", f"key-{number}")
            (store.half_messages.rollback if number else store.half_messages.commit)(handle)
    assert pending(path) == [b"ours-4"]
    agree_on_closed(path, rocketmq, SMALL)
    assert sorted(topic_bodies(path, "orders")) == [b"ours-0", b"ours-2", b"theirs-0"]


LASTING = SMALL | {"file_reserved_time": FOR_EVER_HOURS}


def lasting(path: Path) -> MessageStore:
    settings = message_store_settings(LASTING)
    return open_store(str(path), settings | {"transaction_time_out": 0})


@pytest.fixture
def five(rocketmq: RocketMq) -> RocketMq:
    """The version whose broker runs in the tests: 4.9.8's jar is not on Maven Central."""
    if not rocketmq.is_five:
        pytest.skip("The broker of RocketMQ 4.9.8 cannot be installed.")
    return rocketmq


def test_the_service_of_a_broker_finishes_what_was_prepared_here(five: RocketMq, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with lasting(path) as store:
        half = store.half_messages
        handles = [half.prepare(Message(topic="orders", body=b"ours-%d" % n), "payments") for n in range(7)]
        half.commit(handles[0])
        half.rollback(handles[1])
        half.check(lambda _: "unknown")
        copies = [one.handle for one in half.pending()]
    with five.open(path, LASTING) as process:
        broker = BrokerTransactions(process)
        assert broker.end("commit", copies[0]) == SUCCESS
        assert broker.end("rollback", copies[1]) == SUCCESS
        broker.write_ops()
        asked = broker.check().asked
        assert list(asked) == [b"ours-4", b"ours-5", b"ours-6"]
        assert broker.end("commit", asked[b"ours-4"], is_check=True) == SUCCESS
        assert broker.end("rollback", asked[b"ours-5"], is_check=True) == SUCCESS
        broker.write_ops()
        broker.stop()
    assert pending(path) == [b"ours-6"]
    with lasting(path) as store:
        (left,) = store.half_messages.pending()
        assert left.check_times == 2, "once here, once by the broker"
        store.half_messages.commit(handles[6])  # the first handle, after two copies
    assert pending(path) == []
    assert sorted(topic_bodies(path, "orders")) == [b"ours-0", b"ours-2", b"ours-4", b"ours-6"]
    with five.open(path, LASTING) as process:
        broker = BrokerTransactions(process)
        assert broker.check().asked == {}
        broker.stop()
    agree_on_closed(path, five, SMALL)


def test_what_the_service_of_a_broker_prepared_is_finished_here(five: RocketMq, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with five.open(path, LASTING) as process:
        broker = BrokerTransactions(process)
        handles = [broker.prepare(b"theirs-%d" % n) for n in range(6)]
        immune = broker.prepare(b"immune", CHECK_IMMUNITY_TIME_IN_SECONDS="1000000000")
        assert broker.end("commit", handles[0]) == SUCCESS
        assert broker.end("rollback", handles[1]) == SUCCESS
        broker.write_ops()
        assert list(broker.check().asked) == [b"theirs-%d" % n for n in range(2, 6)]
        broker.stop()
    assert pending(path) == [b"theirs-2", b"theirs-3", b"theirs-4", b"theirs-5", b"immune"]
    with lasting(path) as store:
        half = store.half_messages
        half.rollback(handles[2])
        half.commit(immune)
        answers = {b"theirs-3": "commit", b"theirs-4": "rollback", b"theirs-5": "unknown"}
        checked = half.check(lambda message: answers[message.body])  # type: ignore[arg-type, return-value]
        assert (checked.committed, checked.rolled_back, checked.put_back) == (1, 1, 1)
    with five.open(path, LASTING) as process:
        broker = BrokerTransactions(process)
        asked = broker.check().asked
        assert list(asked) == [b"theirs-5"]
        assert broker.end("commit", asked[b"theirs-5"], is_check=True) == SUCCESS
        broker.write_ops()
        assert broker.check().asked == {}
        broker.stop()
    assert pending(path) == []
    assert sorted(topic_bodies(path, "orders")) == [b"immune", b"theirs-0", b"theirs-3", b"theirs-5"]
    agree_on_closed(path, five, SMALL)


def test_commits_whose_op_messages_a_broker_never_wrote_are_not_repeated(five: RocketMq, tmp_path: Path) -> None:
    """RocketMQ 5 gathers op messages for three seconds, and drops them when it stops."""
    path = tmp_path / "store"
    with five.open(path, LASTING) as process:
        broker = BrokerTransactions(process)
        handles = [broker.prepare(b"theirs-%d" % n) for n in range(3)]
        assert broker.end("commit", handles[0]) == SUCCESS
        asked = broker.check().asked
        assert broker.end("commit", asked[b"theirs-1"], is_check=True) == SUCCESS
        broker.stop()
    assert pending(path) == [b"theirs-0", b"theirs-1", b"theirs-2"], "the first one was put back after its commit"
    asked_here = []

    def commit(message: MessageExt) -> Answer:
        asked_here.append(message.body)
        return "commit"

    with lasting(path) as store:
        store.half_messages.check(commit)
    assert asked_here == [b"theirs-2"]
    assert topic_bodies(path, "orders") == [b"theirs-0", b"theirs-1", b"theirs-2"]


def test_committed_messages_are_those_of_a_broker_byte_by_byte(five: RocketMq, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with five.open(path, LASTING) as process:
        broker = BrokerTransactions(process)
        theirs, mine = broker.prepare(b"x", UNIQ_KEY="u"), broker.prepare(b"x", UNIQ_KEY="u")
        assert broker.end("commit", theirs) == SUCCESS
        broker.write_ops()
        broker.stop()
    with lasting(path) as store:
        store.half_messages.commit(mine)
    with StoreReader.open(path) as reader:
        first, second = (reader.message_at(row["physicalOffset"]) for row in order_rows(reader))
    places = {"queue_offset", "physical_offset", "store_timestamp", "message_id", "prepared_transaction_offset"}
    assert {name: value for name, value in vars(first).items() if name not in places} == {
        name: value for name, value in vars(second).items() if name not in places
    }
    assert [first.prepared_transaction_offset, second.prepared_transaction_offset] == [
        theirs.physical_offset,
        mine.physical_offset,
    ]


def order_rows(reader: StoreReader) -> list[Json]:
    return [row for batch in reader.read("orders", 0, 0, columns=["physicalOffset"]) for row in batch.to_pylist()]


def test_a_broker_refuses_a_commit_after_the_immunity_of_the_message_and_this_package_does_not(
    five: RocketMq, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    with five.open(path, LASTING) as process:
        broker = BrokerTransactions(process)
        handle = broker.prepare(b"late", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
        assert broker.end("commit", handle) == ILLEGAL_OPERATION
        broker.stop()
    with lasting(path) as store:
        store.half_messages.commit(handle)
    assert topic_bodies(path, "orders") == [b"late"]


def test_what_is_given_up_here_or_there_is_resumed_here(five: RocketMq, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with five.open(path, LASTING) as process:
        broker = BrokerTransactions(process)
        broker.prepare(b"theirs", TRANSACTION_CHECK_TIMES="15")
        assert broker.check().given_up == [b"theirs"]
        broker.stop()
    assert pending(path) == []
    with lasting(path) as store, StoreReader.open(path) as reader:
        given_up = [row for batch in reader.read(CHECK_MAX_TIME_TOPIC, 0, 0) for row in batch.to_pylist()]
        assert [row["body"] for row in given_up] == [b"theirs"]
        place = next(reader.read(CHECK_MAX_TIME_TOPIC, 0, 0, columns=["physicalOffset"])).to_pylist()[0]
        message = reader.message_at(place["physicalOffset"])
        handle = store.half_messages.resume(message.message_id)
    with five.open(path, LASTING) as process:
        broker = BrokerTransactions(process)
        asked = broker.check().asked
        assert list(asked) == [b"theirs"]
        assert asked[b"theirs"].unique_key == handle.unique_key
