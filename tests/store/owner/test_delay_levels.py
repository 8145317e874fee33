"""Delayed messages wait in SCHEDULE_TOPIC_XXXX, with their real topic and queue among the properties."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import Message, MessageStore, PutMessageStatus, StoreReader
from tests.store.owner.owned_store import open_store, put_ok, rows
from tests.support.stored_bodies import bodies

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def _units(store: MessageStore, queue_id: int) -> list[tuple[int, int]]:
    """Physical offset and tags code of every unit of a level's queue."""
    store.dispatch()
    with StoreReader.open(store.path) as reader:
        end = reader.queue_info(SCHEDULE, queue_id).max_offset
        blocks = reader.units(SCHEDULE, queue_id, 0, end)
        return [(int(unit["physical_offset"]), int(unit["tags_code"])) for block in blocks for unit in block]


@pytest.mark.parametrize(("level", "seconds"), [(1, 1), (3, 10), (18, 7200)])
def test_the_tags_code_of_a_delayed_message_is_its_delivery_time(tmp_path: Path, level: int, seconds: int) -> None:
    with open_store(tmp_path) as store:
        result = put_ok(store, queue_id=5, tags="paid", properties={"DELAY": str(level)})
        assert _units(store, level - 1) == [(result.physical_offset, result.store_timestamp + seconds * 1000)]
        (row,) = rows(store, SCHEDULE, level - 1)
    waiting = {"DELAY": str(level), "REAL_TOPIC": "orders", "REAL_QID": "5"}
    assert row["properties"] == {"TAGS": "paid"} | waiting
    assert (row["topic"], row["queueId"], row["queueOffset"]) == (SCHEDULE, level - 1, 0)


def test_levels_beyond_the_last_are_the_last(tmp_path: Path) -> None:
    with open_store(tmp_path, message_delay_level="1s 5m") as store:
        result = put_ok(store, properties={"DELAY": "99"})
        assert _units(store, 1) == [(result.physical_offset, result.store_timestamp + 300_000)]
        assert rows(store, SCHEDULE, 1)[0]["properties"]["DELAY"] == "2"


def test_level_zero_is_not_a_delay(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store, properties={"DELAY": "0", "a": "b"})
        assert rows(store)[0]["properties"] == {"a": "b"}


def test_a_delayed_message_takes_no_offset_of_its_real_queue(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store, body=b"a")
        put_ok(store, body=b"later", properties={"DELAY": "1"})
        assert put_ok(store, body=b"b").queue_offset == 1
        assert (bodies(store), bodies(store, SCHEDULE, 0)) == ([b"a", b"b"], [b"later"])


def test_tables_of_delayed_messages_are_stored_as_single_ones_are(tmp_path: Path) -> None:
    table = pa.table({"body": [b"x", b"y", b"z"], "delayLevel": [0, 2, 1], "queueId": [1, 1, 1], "tags": ["t"] * 3})
    with open_store(tmp_path / "table") as bulk, open_store(tmp_path / "single") as single:
        result = bulk.put_messages(table, topic="orders").raise_for_status()
        for row in table.to_pylist():
            delay = {"DELAY": str(row["delayLevel"])}
            put_ok(single, body=row["body"], queue_id=1, tags="t", properties=delay)
        assert result.rows["queueId"].to_pylist() == [1, 1, 0]
        assert result.rows["queueOffset"].to_pylist() == [0, 0, 0]
        for topic, queue_id in (("orders", 1), (SCHEDULE, 0), (SCHEDULE, 1)):
            (one,), (other,) = rows(bulk, topic, queue_id), rows(single, topic, queue_id)
            late = ("bornTimestamp", "storeTimestamp")
            assert {k: v for k, v in one.items() if k not in late} == {k: v for k, v in other.items() if k not in late}
        times = result.rows["storeTimestamp"].to_pylist()
        assert _units(bulk, 1)[0][1] == times[1] + 5_000


@pytest.mark.parametrize(
    ("delays", "levels"),
    [
        (["10s", None, "", "1m", "18"], [3, None, None, 5, 18]),
        ([timedelta(seconds=10), None, timedelta(minutes=1)], [3, None, 5]),
        (pa.array([10, 60], pa.duration("s")), [3, 5]),
        (pa.array([10 * 10**9], pa.duration("ns")), [3]),
        (["10s", 0, timedelta(hours=2), 2], [3, None, 18, 2]),
        (pa.array(["10s", "10s"]).dictionary_encode(), [3, 3]),
    ],
)
def test_tables_take_the_times_of_levels(tmp_path: Path, delays: Any, levels: list[int | None]) -> None:
    table = [{"body": b"x", "delayLevel": delay} for delay in delays] if isinstance(delays, list) else None
    with open_store(tmp_path) as store:
        given = table or pa.table({"body": [b"x"] * len(delays), "delayLevel": delays})
        result = store.put_messages(given, topic="orders").raise_for_status()
        places = [level_at(store, offset) for offset in result.rows["physicalOffset"].to_pylist()]
    assert places == levels


@pytest.mark.parametrize(
    "delay", [90, 19, "90", "90s", "soon", timedelta(seconds=90), timedelta(seconds=10, milliseconds=1), timedelta.max]
)
def test_a_row_with_a_delay_of_no_level_is_refused_with_the_list(tmp_path: Path, delay: Any) -> None:
    with open_store(tmp_path) as store:
        result = store.put_messages([{"body": b"x"}, {"body": b"y", "delayLevel": delay}], topic="orders")
    assert result.rows["status"].to_pylist() == ["PUT_OK", "MESSAGE_ILLEGAL"]
    assert "it must be one of the levels 1 (1s), 2 (5s)" in result.reason


def test_the_property_keeps_rocketmqs_rule_in_tables_too(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        result = store.put_messages([{"body": b"x", "properties": {"DELAY": "90"}}], topic="orders")
        assert result.rows["queueId"].to_pylist() == [17]


def level_at(store: MessageStore, offset: int) -> int | None:
    with store.reader() as reader:
        return reader.message_at(offset).delay_level


def test_a_delay_does_not_let_an_impossible_topic_through(tmp_path: Path) -> None:
    """The record's own topic would be the schedule's, and the real one waits among the properties for its day."""
    with open_store(tmp_path) as store:
        for topic in ("../x", "t" * 128, "", "a b"):
            result = store.put_message(Message(queue_id=0, topic=topic, body=b"x", properties={"DELAY": "1"}))
            assert result.status is PutMessageStatus.MESSAGE_ILLEGAL
