"""Statistics: how many messages were put, how large, how fast."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import Message, StoreReader
from commitlog_store.engine.stats import PUT_TIME_BUCKETS_MS, StoreStatsService
from commitlog_store.files import disk
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.queue.get_message import PullLimits
from commitlog_store.store import pulls_from
from tests.store.owner.owned_store import SYNC, Gate, commit_log_path, open_store, put_ok


def test_every_message_is_counted_under_its_topic_however_it_was_put(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store)
        store.put_message_batch([Message(queue_id=0, topic="orders", body=b"x")] * 3)
        store.put_messages(pa.table({"body": [b"x"] * 4, "topic": ["orders", "bills"] * 2}))
        put_ok(store, topic="bills", properties={"DELAY": "1"})
        found = store.stats()
        end = store.physical_bounds()[1]
    assert found.topic_put_times == {"orders": 6, "bills": 2, "SCHEDULE_TOPIC_XXXX": 1}
    assert found.put_message_times_total == 9 == sum(found.put_times)
    assert found.put_message_size_total == sum(found.topic_put_sizes.values()) == end
    assert found.put_message_failed_times == 0
    assert found.put_message_entire_time_max_ms > 0


def test_blank_fillers_are_not_messages(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put_messages(pa.table({"body": [bytes(7_000)] * 5, "queueId": [0] * 5}), topic="orders")
        assert store.stats().put_message_size_total == 5 * (91 + 6 + 7_000) < store.physical_bounds()[1]


def test_refused_puts_are_counted_once_each(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put_message(Message(queue_id=0, topic="", body=b""))
        store.put_message_batch([])
        store.put_messages(pa.table({"body": [None, None, b"x"]}), topic="orders")
        found = store.stats()
    assert (found.put_message_failed_times, found.put_message_times_total) == (3, 1)


def test_a_put_that_is_in_the_log_but_not_confirmed_counts_as_both(tmp_path: Path, sync_gate: Gate) -> None:
    with open_store(tmp_path, flush_disk_type=SYNC) as store:
        sync_gate.fail()
        store.put_message(Message(queue_id=0, topic="orders", body=b""))
        found = store.stats()
    assert (found.put_message_failed_times, found.put_message_times_total) == (1, 1)


def test_the_dispatch_lag_is_reported_in_bytes(tmp_path: Path, sync_gate: Gate) -> None:
    with open_store(tmp_path, flush_disk_type=SYNC) as store:
        put_ok(store)
        store.dispatch()
        assert store.stats().dispatch_behind_bytes == 0


def test_what_the_stores_own_readers_give_is_counted_by_topic(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for _ in range(3):
            put_ok(store)
        put_ok(store, topic="bills")
        store.dispatch()
        with store.reader() as reader:
            list(reader.read("orders", 0, 0, columns=["body"]))
            reader.read_together([("bills", 0, 0, 1)])
            reader.scan("orders", columns=["body"]).read_all()
        with StoreReader.open(tmp_path) as other:
            list(other.read("orders", 0, 0))
        found = store.stats()
    assert found.topic_get_times == {"orders": 6, "bills": 1}
    assert found.get_message_transferred_msg_count == 7
    assert found.get_message_size_total == sum(found.topic_get_sizes.values()) > 7 * len(b"body")
    assert found.get_tps[10] > 0


def test_what_is_pulled_and_consumed_is_counted(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for _ in range(4):
            put_ok(store)
        store.dispatch()
        size = store.get_message("orders", 0, 0, 1).messages[0].store_size
        found = store.stats()
        assert (found.topic_get_times, found.topic_get_sizes) == ({"orders": 1}, {"orders": size})
        with store.consumer("billing", "orders") as consumer:
            assert len(consumer.poll(3)) == 3
            assert consumer.poll_batch() is not None
        found = store.stats()
    assert found.topic_get_times == {"orders": 1 + 4 + 1}, "a poll reads ahead"


def test_pulls_are_found_or_missed_however_they_are_asked_for(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store)
        store.dispatch()
        assert store.get_message("orders", 0, 0, 1).messages
        assert not store.get_message("orders", 0, 1, 1).messages
        stored = pulls_from(store).stored_messages
        for tags in ("*", "paid"):  # the second one is answered by the units alone
            stored("orders", 0, 0, PullLimits(messages=32), MessageFilter.parse_quietly(tags))
        found = store.stats()
        assert (found.get_message_times_total_found, found.get_message_times_total_miss) == (2, 2)
        assert sum(found.get_seconds.counts) == 4
        assert found.get_seconds.total > 0
        with store.consumer("billing", "orders") as consumer:
            assert consumer.poll_batch() is not None
        assert store.stats().get_message_times_total_found == 3


def test_messages_count_as_stored_however_they_came_into_the_log(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store)
        store.put_messages(pa.table({"body": [b"x"] * 4, "topic": ["orders", "bills"] * 2}))
        with store.transaction("loader", 1) as batch:
            batch.put_messages([{"body": b"x"}] * 6, topic="bills")
        store.dispatch()
        found = store.stats()
        end = store.physical_bounds()[1]
    assert {topic: found.topic_stored_times[topic] for topic in ("orders", "bills")} == {"orders": 3, "bills": 8}
    assert sum(found.topic_stored_sizes.values()) == end, "the batch's own record is in a topic of the store"
    assert found.topic_put_times["bills"] == 2, "a batch is no put"


def test_the_time_of_puts_of_asyncio_tasks_includes_the_sync(tmp_path: Path, sync_gate: Gate) -> None:
    with open_store(tmp_path, flush_disk_type=SYNC) as store:
        sync_gate.fail()
        store.put_together([Message(topic="orders", body=b"", queue_id=0)] * 2)
        found = store.stats()
    assert (found.put_message_failed_times, found.put_message_times_total) == (2, 2)
    assert found.put_seconds.total / 2 * 1000 == pytest.approx(found.put_message_entire_time_max_ms)


def _slow(write: Callable[..., None]) -> Callable[..., None]:
    """The call of a disk that takes half a second for each write to the log."""

    def slow(*given: Any, **named: Any) -> None:
        if commit_log_path(named.get("descriptor", given[0])) is not None:
            time.sleep(0.51)
        write(*given, **named)

    return slow


def test_slow_puts_and_slow_appends_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(tmp_path) as store:
        for _ in range(5):
            put_ok(store)
        assert len(caplog.records) < 5, "quick ones are not"
        caplog.clear()
        for name in ("write_at", "write_mapped"):
            monkeypatch.setattr(disk, name, _slow(getattr(disk, name)))
        put_ok(store)
        store.put_message_batch([Message(topic="orders", body=b"x")] * 3)
        store.put_messages([{"body": b"x"}] * 5, topic="orders")
        with store.transaction("loader", 1) as batch:
            batch.put_messages([{"body": b"x"}] * 6, topic="orders")
    texts = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [text.partition(",")[0].partition(" to ")[0] for text in texts] == [
        "An append of 1 records", "A put of 1 messages",
        "An append of 3 records", "A put of 3 messages",
        "An append of 5 records",
        "An append of 6 records", "A commit of a batch",
    ]  # fmt: skip
    assert "into topic 'orders' took" in texts[1]
    assert all("held the put lock for" in text for text in texts if text.startswith("An append"))


def test_rates_are_over_windows_of_time() -> None:
    now = 0.0
    service = StoreStatsService(lambda: now)
    for second in range(100):
        now = float(second)
        service.run_once()
        service.put("orders", 10 if second >= 90 else 1, 100, 0.0)
    now = 100.0
    found = service.snapshot()
    assert found.put_tps[10] == 10.0
    assert found.put_tps[60] == (50 * 1 + 10 * 10) / 60
    assert found.put_tps[600] == (90 + 100) / 100


def test_times_are_counted_in_rocketmqs_buckets() -> None:
    service = StoreStatsService()
    for milliseconds in (0.2, 0.9, 1.5, 9, 10.5, 11, 499, 9_999, 10_000, 10_001, 60_000):
        service.put("orders", 1, 1, milliseconds / 1000)
    counts = dict(zip((*PUT_TIME_BUCKETS_MS, None), service.snapshot().put_times, strict=True))
    assert {upper: count for upper, count in counts.items() if count} == {
        0: 2,
        10: 3,
        50: 1,
        500: 1,
        10_000: 2,
        None: 2,
    }
