"""``put`` and the fields of ``Message`` that tables have as columns."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import Message, MessageExt, MessageStore, PutMessageStatus
from commitlog_store.delay_level import delay_level
from commitlog_store.engine.queue_turns import QueueTurns
from commitlog_store.errors import InvalidValue, PutNotConfirmed, PutRefused
from tests.store.owner.owned_store import SYNC, Gate, open_store

_LEVELS = "1s 5s 10s 1m"


def _message(store: MessageStore, physical_offset: int) -> MessageExt:
    with store.reader() as reader:
        return reader.message_at(physical_offset)


def test_a_put_returns_the_place_of_the_message(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        result = store.put("orders", b"x", queue_id=3)
        assert (result.queue_id, result.queue_offset, result.physical_offset) == (3, 0, 0)
        assert store.put("orders", b"y", queue_id=3).queue_offset == 1
        assert _message(store, result.physical_offset).message_id == result.message_id


def test_a_put_takes_all_fields_of_a_message(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        result = store.put(
            "orders", b"x", tags="paid", keys="k1", sharding_key="customer-1", properties={"a": "b"}, flag=7,
            born_timestamp=1_700_000_000_000,
        )  # fmt: skip
        found = _message(store, result.physical_offset)
    assert (found.tags, list(found.keys), found.sharding_key, found.flag) == ("paid", ["k1"], "customer-1", 7)
    assert (found.properties["a"], found.born_timestamp, found.delay_level) == ("b", 1_700_000_000_000, None)


def test_a_refused_put_raises_with_its_status(tmp_path: Path) -> None:
    with open_store(tmp_path, max_message_size=10) as store:
        with pytest.raises(PutRefused, match="11 bytes"):
            store.put("orders", bytes(11))
        with pytest.raises(InvalidValue, match="field body"):
            store.put("orders", "text")  # type: ignore[arg-type]


def test_a_put_that_is_not_confirmed_raises_that(tmp_path: Path, sync_gate: Gate) -> None:
    with open_store(tmp_path, flush_disk_type=SYNC) as store:
        sync_gate.fail()
        with pytest.raises(PutNotConfirmed):
            store.put("orders", b"x")


@pytest.mark.parametrize(("delay", "level"), [(2, 2), ("10s", 3), ("60s", 4), ("1m", 4), (timedelta(seconds=10), 3)])
def test_a_delay_is_the_number_of_a_level_or_its_time(tmp_path: Path, delay: int | str | timedelta, level: int) -> None:
    with open_store(tmp_path, message_delay_level=_LEVELS) as store:
        result = store.put("orders", b"x", delay=delay, queue_id=1)
        found = _message(store, result.physical_offset)
    assert (found.topic, found.queue_id, found.delay_level) == ("SCHEDULE_TOPIC_XXXX", level - 1, level)
    assert result.queue_id == level - 1
    assert found.properties["REAL_QID"] == "1"


@pytest.mark.parametrize(
    "delay",
    ["7s", "10", "", "ten", "9" * 5000, 90, 5, -1, timedelta(seconds=7), timedelta(seconds=10, microseconds=1)],
)
def test_a_delay_of_no_level_is_refused_with_the_list_of_them(delay: object) -> None:
    with pytest.raises(
        InvalidValue, match=re.escape("delay is one of the levels 1 (1s), 2 (5s), 3 (10s), 4 (1m), not")
    ):
        delay_level(delay, _LEVELS)


@pytest.mark.parametrize("delay", [1.5, True, b"10s"])
def test_a_delay_of_another_type_is_refused(delay: object) -> None:
    with pytest.raises(InvalidValue, match="the number of a level, or its time"):
        delay_level(delay, _LEVELS)


def test_a_delay_of_90_is_refused_and_not_taken_for_two_hours(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        with pytest.raises(InvalidValue, match=r"1 \(1s\), .*, 18 \(2h\), not 90"):
            store.put("orders", b"x", delay=90)
        result = store.put_message(Message(topic="orders", body=b"x", delay_level=90))
        assert (result.status, result.physical_offset) == (PutMessageStatus.MESSAGE_ILLEGAL, -1)
        assert "18 (2h), not 90 (topic 'orders'" in result.reason


def test_messages_without_a_queue_take_the_queues_in_turn(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert [store.put("orders", b"x").queue_id for _ in range(6)] == [0, 1, 2, 3, 0, 1]
        assert [store.put("bills", b"x").queue_id for _ in range(2)] == [0, 1], "each topic has its own turns"
        assert [store.put("orders", b"x", born_timestamp=5).queue_id for _ in range(2)] == [2, 3], "however encoded"


def test_the_turns_of_a_topic_go_over_the_queues_of_its_list(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.create_topic("orders", 2)
        assert [store.put("orders", b"x").queue_id for _ in range(4)] == [0, 1, 0, 1]


def test_a_sharding_key_goes_to_the_queue_that_tables_choose(tmp_path: Path) -> None:
    keys = [*(f"customer-{number}" for number in range(20)), "größe", "😀"]
    with open_store(tmp_path) as store:
        rows = pa.table({"body": [b"x"] * len(keys), "shardingKey": keys})
        of_table = store.put_messages(rows, topic="orders").rows["queueId"].to_pylist()
        assert [store.put("orders", b"x", sharding_key=key).queue_id for key in keys] == of_table
        properties = [{"__SHARDINGKEY": key} for key in keys]
        assert [store.put("orders", b"x", properties=given).queue_id for given in properties] == of_table


def test_a_batch_without_queues_goes_to_one(tmp_path: Path) -> None:
    messages = [Message(topic="orders", body=b"x")] * 3
    with open_store(tmp_path) as store:
        assert [store.put_message_batch(messages).queue_id for _ in range(2)] == [0, 1]
        named = [*messages, Message(topic="orders", body=b"x", queue_id=3)]
        assert store.put_message_batch(named).raise_for_status().queue_id == 3
        keyed = [Message(topic="orders", body=b"x", sharding_key=key) for key in ("a", "b")]
        assert "one queue" in store.put_message_batch(keyed).reason


def test_a_refused_message_takes_no_turn(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for _ in range(3):
            assert not store.put_message(Message(topic="orders", body=b"x", delay_level=-1, queue_id=0)).ok
        assert store.put("orders", b"x").queue_id == 0


@pytest.mark.parametrize(
    ("fields", "word"),
    [({"delay_level": -1}, "delay_level"), ({"born_timestamp": 2**62}, "born_timestamp"),
     ({"sharding_key": "a\x01b"}, "separate")],
)  # fmt: skip
def test_a_value_outside_its_range_is_answered_by_a_status(tmp_path: Path, fields: dict[str, Any], word: str) -> None:
    with open_store(tmp_path) as store:
        result = store.put_message(Message(topic="orders", body=b"x", **fields))
        assert not result.ok
        assert word in result.reason


def test_a_damaged_list_of_topics_refuses_messages_of_queues_that_may_not_be_listed(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put("known", b"x", queue_id=0)
        for name in ("topics.json", "topics.json.bak"):
            (tmp_path / "config" / name).write_text("{")
        for queue_id in (None, 0):
            with pytest.raises(PutRefused, match=r"topics\.json"):
                store.put("orders", b"x", queue_id=queue_id)
        assert store.put("known", b"x", queue_id=0).ok


def test_the_number_of_queues_is_asked_for_again_after_a_second() -> None:
    now, asked = 0.0, 0

    def count(_topic: str) -> int:
        nonlocal asked
        asked += 1
        return 2 + asked

    turns = QueueTurns(count, lambda: now)
    assert [turns.in_turn("t") for _ in range(4)] == [0, 1, 2, 0]
    now = 1.0
    assert turns.in_turn("t") == 0, "the fifth turn, of four queues"
    assert asked == 2
    assert turns.of_sharding_key("t", "a") == turns.of_sharding_key("t", "a") == ord("a") % 4
    assert asked == 2


def test_a_message_shows_its_fields() -> None:
    message = Message(topic="t", body=b"", sharding_key="s", delay_level=3, born_timestamp=4)
    assert (message.sharding_key, message.delay_level, message.born_timestamp, message.queue_id) == ("s", 3, 4, None)
    assert message == Message(topic="t", body=b"", sharding_key="s", delay_level=3, born_timestamp=4)
    assert message != Message(topic="t", body=b"")
    assert "sharding_key='s'" in repr(message)
