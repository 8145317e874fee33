"""Batches as RocketMQ's MessageExtBatch: one status, one piece of the log, and an offset for each message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commitlog_store import Message, MessageExtBrokerInner, PutMessageStatus
from tests.store.owner.owned_store import SYNC, open_store, put_ok, rows
from tests.support.stored_bodies import bodies


def _messages(count: int, **fields: Any) -> list[Message]:
    given: dict[str, Any] = {"topic": "orders", "queue_id": 0}
    return [Message(**given | {"body": b"b%d" % number} | fields) for number in range(count)]


def test_a_batch_has_one_status_and_an_id_and_an_offset_for_each_message(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store, body=b"before")
        result = store.put_message_batch(_messages(5))
        found = rows(store)
    assert (result.status, result.message_num, result.queue_offset) == (PutMessageStatus.PUT_OK, 5, 1)
    assert [row["body"] for row in found] == [b"before", b"b0", b"b1", b"b2", b"b3", b"b4"]
    assert result.message_id.split(",") == [row["msgId"] for row in found[1:]]
    assert result.physical_offset == found[1]["physicalOffset"]
    assert {round(row["storeTimestamp"].timestamp() * 1000) for row in found[1:]} == {result.store_timestamp}


def test_a_batch_lies_in_one_file(tmp_path: Path) -> None:
    """What does not fit into the rest of a file goes to the next one as a whole."""
    with open_store(tmp_path) as store:
        for _ in range(20):
            result = store.put_message_batch(_messages(7, body=bytes(500))).raise_for_status()
            store.dispatch()
            with store.reader() as reader:
                places = [reader.message_by_id(one).physical_offset for one in result.message_id.split(",")]
            assert len({place // (16 << 10) for place in places}) == 1
        assert len(bodies(store)) == 140


def test_a_batch_larger_than_a_file_is_refused_and_takes_no_offset(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        result = store.put_message_batch(_messages(40, body=bytes(500)))
        assert (result.status, result.queue_offset) == (PutMessageStatus.MESSAGE_ILLEGAL, -1)
        assert put_ok(store).queue_offset == 0


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (Message(queue_id=0, topic="others", body=b""), "one queue"),
        (Message(topic="orders", body=b"", queue_id=1), "one queue"),
        (MessageExtBrokerInner(topic="orders", body=b"", sys_flag=4), "one queue"),
        (Message(queue_id=0, topic="orders", body=b"", properties={"DELAY": "1"}), "delayed"),
        (Message(queue_id=0, topic="orders", body=bytes(200)), "200 bytes"),
        (Message(queue_id=0, topic="../orders", body=b""), "topic"),
    ],
)
def test_one_unsuitable_message_refuses_the_batch(tmp_path: Path, other: Message, reason: str) -> None:
    with open_store(tmp_path, max_message_size=100) as store:
        result = store.put_message_batch([*_messages(2), other, *_messages(1)])
        assert result.status is PutMessageStatus.MESSAGE_ILLEGAL
        assert reason in result.reason, result.reason
        assert store.physical_bounds() == (0, 0)
        assert put_ok(store).queue_offset == 0


def test_a_batch_for_a_retry_topic_is_refused_as_by_a_broker(tmp_path: Path) -> None:
    message = Message(topic="%RETRY%billing", body=b"x")
    with open_store(tmp_path) as store:
        result = store.put_message_batch([message])
        assert result.status is PutMessageStatus.MESSAGE_ILLEGAL
        assert "'%RETRY%billing': put one by one" in result.reason
        assert store.put_message(message).ok


def test_an_empty_batch_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert store.put_message_batch([]).status is PutMessageStatus.MESSAGE_ILLEGAL


def test_a_batch_of_half_messages_takes_no_offset(tmp_path: Path) -> None:
    halves = [MessageExtBrokerInner(topic="orders", body=b"h", sys_flag=4) for _ in range(3)]
    with open_store(tmp_path) as store:
        result = store.put_message_batch(halves).raise_for_status()
        assert put_ok(store).queue_offset == 0
        assert bodies(store) == [b"body"]
        with store.reader() as reader:
            for one in result.message_id.split(","):
                assert reader.message_by_id(one).queue_offset == 0


def test_a_batch_waits_for_the_device_when_any_of_its_messages_does(tmp_path: Path) -> None:
    batch = [*_messages(1, properties={"WAIT": "false"}), *_messages(1)]
    with open_store(tmp_path, flush_disk_type=SYNC) as store:
        result = store.put_message_batch(batch).raise_for_status()
        assert store.flushed_where() == store.physical_bounds()[1] > result.physical_offset
