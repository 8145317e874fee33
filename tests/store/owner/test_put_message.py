"""Single puts: every field of a message comes back as it was put, in the order of its queue."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from commitlog_store import Message, PutMessageStatus, StoreReader
from commitlog_store.errors import PutRefused
from tests.store.owner.owned_store import open_store, put_ok, rows
from tests.store.retention.small_stores import store_clock
from tests.support.stored_bodies import bodies
from tests.support.waiting import WAIT_LIMIT_S


def test_every_field_comes_back_as_it_was_put(tmp_path: Path) -> None:
    before = int(time.time() * 1000)
    with open_store(tmp_path, broker_ip="10.1.2.3", listen_port=10912) as store:
        result = store.put_message(
            Message(
                topic="orders",
                body=b"\x00\xffbody",
                tags="paid",
                keys=["k1", "k2"],
                queue_id=3,
                flag=-7,
                properties={"UNIQ_KEY": "u1", "region": "nord \N{SNOWMAN}"},
            )
        )
        (row,) = rows(store, queue_id=3)
        assert put_ok(store).physical_offset == row["storeSize"], "records lie one after the other"
    assert (result.status, result.reason, result.message_num) == (PutMessageStatus.PUT_OK, "", 1)
    assert before <= row["bornTimestamp"].timestamp() * 1000 <= row["storeTimestamp"].timestamp() * 1000 + 1
    assert round(row["storeTimestamp"].timestamp() * 1000) == result.store_timestamp
    expected = {
        "topic": "orders",
        "queueId": 3,
        "queueOffset": 0,
        "physicalOffset": 0,
        "body": b"\x00\xffbody",
        "tags": "paid",
        "keys": "k1 k2",
        "uniqKey": "u1",
        "flag": -7,
        "sysFlag": 0,
        "reconsumeTimes": 0,
        "preparedTransactionOffset": 0,
        "bornHost": "10.1.2.3:10912",
        "storeHost": "10.1.2.3:10912",
        "msgId": result.message_id,
        "properties": {"UNIQ_KEY": "u1", "region": "nord \N{SNOWMAN}", "KEYS": "k1 k2", "TAGS": "paid"},
    }
    assert {name: row[name] for name in expected} == expected


def test_the_result_leads_back_to_the_message(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, store.reader() as reader:
        for number in range(300):  # over the ends of several files
            result = put_ok(store, body=b"n%d" % number * 9, queue_id=number % 3, keys=[f"k{number}"])
            store.dispatch()
            message = reader.message_at(result.physical_offset)
            assert message == reader.message_by_id(result.message_id)
            assert (message.queue_id, message.queue_offset) == (number % 3, number // 3)
            assert (message.queue_offset, message.store_timestamp) == (result.queue_offset, result.store_timestamp)
            assert [hit.physical_offset for hit in reader.query("orders", f"k{number}")] == [result.physical_offset]


def test_ipv6_hosts_of_the_store_are_in_record_and_id(tmp_path: Path) -> None:
    with open_store(tmp_path, broker_ip="2001:db8::7") as store:
        result = put_ok(store)
        (row,) = rows(store)
    assert len(result.message_id) == 56
    assert row["storeHost"] == row["bornHost"] == "2001:db8:0:0:0:0:0:7:10911"
    assert row["sysFlag"] == 48


@pytest.mark.parametrize("body", [b"", b"x", bytes(16 << 10)[: (16 << 10) - 91 - 6 - 8]], ids=len)
def test_bodies_may_be_empty_or_fill_a_whole_file(tmp_path: Path, body: bytes) -> None:
    """A record may fill its file but for the eight bytes of a blank filler."""
    with open_store(tmp_path) as store:
        for _ in range(3):
            put_ok(store, body=body)
        assert bodies(store) == [body] * 3


def test_a_body_that_needs_one_byte_more_than_a_file_has_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        result = store.put_message(Message(queue_id=0, topic="orders", body=bytes((16 << 10) - 91 - 6 - 7)))
        assert result.status is PutMessageStatus.MESSAGE_ILLEGAL
        assert "16376" in result.reason, result.reason
        assert put_ok(store).queue_offset == 0


@pytest.mark.parametrize(
    ("fields", "status", "reason"),
    [
        ({"body": bytes(101)}, "MESSAGE_ILLEGAL", "101 bytes"),
        ({"queue_id": -1}, "MESSAGE_ILLEGAL", "queue id"),
        ({"queue_id": 2**31}, "MESSAGE_ILLEGAL", "queue id"),
        ({"flag": 2**31}, "MESSAGE_ILLEGAL", "field"),
        ({"keys": ["a b"]}, "MESSAGE_ILLEGAL", "space"),
        ({"tags": "a\x01b"}, "MESSAGE_ILLEGAL", "separates"),
        ({"properties": {"a": "\x02"}}, "MESSAGE_ILLEGAL", "separates"),
        ({"properties": {"": "a"}}, "MESSAGE_ILLEGAL", "without a name"),
        ({"properties": {"a": ""}}, "MESSAGE_ILLEGAL", "without a value"),
        ({"properties": {"REAL_TOPIC": "x"}}, "MESSAGE_ILLEGAL", "only the store"),
        ({"properties": {"DELAY": "soon"}}, "MESSAGE_ILLEGAL", "DELAY"),
        ({"properties": {"a": "\ud800"}}, "MESSAGE_ILLEGAL", "UTF-8"),
        ({"properties": {"a": "x" * 32_767}}, "PROPERTIES_SIZE_EXCEEDED", "32767"),
        ({"topic": ""}, "MESSAGE_ILLEGAL", "topic"),
        ({"topic": "t" * 128}, "MESSAGE_ILLEGAL", "127"),
        ({"topic": "%RETRY%" + "t" * 249}, "MESSAGE_ILLEGAL", "255"),
    ],
)
def test_a_refused_put_says_why_and_takes_no_queue_offset(
    tmp_path: Path, fields: dict[str, Any], status: str, reason: str
) -> None:
    with open_store(tmp_path, max_message_size=100) as store:
        put_ok(store)
        end = store.physical_bounds()[1]
        given: dict[str, Any] = {"topic": "orders", "body": b"x", "queue_id": 0}
        result = store.put_message(Message(**given | fields))
        assert (result.status.value, result.ok) == (status, False)
        assert reason in result.reason, result.reason
        assert (result.physical_offset, result.queue_offset, result.message_id) == (-1, -1, "")
        assert store.physical_bounds()[1] == end, "nothing was written"
        assert put_ok(store).queue_offset == 1
        with pytest.raises(PutRefused, match=status):
            result.raise_for_status()


def test_largest_properties_fit(tmp_path: Path) -> None:
    with open_store(tmp_path, mapped_file_size_commit_log=1 << 20) as store:
        put_ok(store, properties={"a": "x" * 32_764})
        (row,) = rows(store)
    assert row["properties"] == {"a": "x" * 32_764}


def test_retry_topics_may_be_longer_and_make_records_of_version_2(tmp_path: Path) -> None:
    topics = ["t" * 127, "%RETRY%" + "g" * 248, "%DLQ%" + "g" * 250, "%RETRY%" + "g" * 121]
    with open_store(tmp_path) as store:
        for topic in topics:
            put_ok(store, topic=topic, body=topic.encode())
        for topic in topics:
            assert bodies(store, topic) == [topic.encode()]
        log = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
    assert log.count(0xDAA320AB.to_bytes(4, "big")) == 3
    assert log.count(0xDAA320A7.to_bytes(4, "big")) == 1


def test_store_time_never_goes_back_when_the_clock_does(tmp_path: Path) -> None:
    """Neither while the store is open, nor from one owner to the next."""
    times = iter([1_000.0, 900.0, 1_001.0, 1_000.5])
    with store_clock(lambda: next(times)), open_store(tmp_path) as store:
        stamps = [put_ok(store).store_timestamp for _ in range(4)]
    assert stamps == [1_000_000, 1_000_000, 1_001_000, 1_001_000]
    with store_clock(lambda: 5.0), open_store(tmp_path) as store:
        assert put_ok(store).store_timestamp == 1_001_000


def test_a_reader_beside_the_owner_sees_what_is_dispatched(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, StoreReader.open(tmp_path) as reader:
        for number in range(200):
            put_ok(store, body=b"%d" % number)
            assert store.wait_for_messages("orders", 0, number, timeout_s=WAIT_LIMIT_S)
            assert reader.queue_info("orders", 0).max_offset == number + 1
            (batch,) = reader.read("orders", 0, number)
            assert batch["body"].to_pylist() == [b"%d" % number]


def test_without_an_index_only_queues_are_written(tmp_path: Path) -> None:
    with open_store(tmp_path, message_index_enable=False) as store:
        put_ok(store, keys=["k"])
        assert bodies(store) == [b"body"]
        with store.reader() as reader:
            assert reader.query("orders", "k") == []
    assert list((tmp_path / "index").iterdir()) == []


def test_a_batch_has_an_id_for_each_message_and_a_refused_put_has_none(tmp_path: Path) -> None:
    """Ids are made when they are asked for, from what the result holds."""
    messages = [Message(queue_id=0, topic="orders", body=b"x" * size) for size in (0, 7, 100)]
    with open_store(tmp_path) as store, store.reader() as reader:
        result = store.put_message_batch(messages).raise_for_status()
        store.dispatch()
        found = [reader.message_by_id(one) for one in result.message_id.split(",")]
        assert [message.body for message in found] == [message.body for message in messages]
        assert tuple(message.physical_offset for message in found) == result.record_offsets
        assert store.put_message_batch([]).message_id == ""
