"""Timer messages in /metrics: RocketMQ's names, by topic and by the time until delivery, with bounded labels."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commitlog_store import Message, MessageStore, StoreReader
from commitlog_store.columnar.timer_times import TimerTimes
from commitlog_store.delayed.timer_counts import DELAY_BUCKETS_S, TimerCounts
from commitlog_store.format.java_hash import string_hash_code
from commitlog_store.reader import levels_and_timers
from commitlog_store.serve.http.samples import LOCAL_DISK, REST, Samples
from commitlog_store.serve.http.timer_samples import TimerSamples, enqueue_latency
from tests.store.owner.owned_store import open_store, put_ok
from tests.store.serve.http.fronts import browsing
from tests.store.serve.http.scrapes import scrape, value, values
from tests.support.delayed import is_taken_in, timer_of
from tests.support.waiting import wait_for

HOUR_MS = 3_600_000
DELAY = "rocketmq_delay_message_latency_seconds"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def put_timer(store: MessageStore, topic: str, due_ms: int) -> None:
    store.put_message(Message(topic=topic, body=b"later", deliver_at=due_ms)).raise_for_status()


def test_what_waits_and_what_was_delivered_is_counted_by_topic(tmp_path: Path) -> None:
    with open_store(tmp_path, schedule_enable=False) as store:
        for topic, ahead_ms in (("orders", 1_000), ("orders", HOUR_MS), ("orders", 9 * HOUR_MS), ("bills", 600_000)):
            put_timer(store, topic, now_ms() + ahead_ms)
    with open_store(tmp_path) as store, browsing(owned=store) as client:
        wait_for(lambda: is_taken_in(store) and store.stats().delayed_delivered == 1)
        found = scrape(client)
    assert values(found, "rocketmq_timing_messages", "topic") == {("orders",): 2, ("bills",): 1}
    assert values(found, "rocketmq_timer_enqueue_total", "topic") == {("orders",): 3, ("bills",): 1}
    assert values(found, "rocketmq_timer_dequeue_total", "topic") == {("orders",): 1, ("bills",): 0}
    within = values(found, "rocketmq_timer_message_snapshot", "timer_bound_s")
    assert {bound: count for (bound,), count in within.items() if count} == {"900": 1, "3600": 1, "86400": 1}
    assert value(found, f"{DELAY}_count", topic="orders") == 3
    assert value(found, f"{DELAY}_bucket", topic="orders", le="60.0") == 1
    assert value(found, f"{DELAY}_sum", topic="orders") == pytest.approx(10 * 3_600, abs=60)
    assert value(found, "rocketmq_timer_enqueue_lag") == 0
    assert value(found, "rocketmq_timer_enqueue_latency_milliseconds") == 0


def test_counts_begin_with_the_opening_and_what_waits_does_not(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, browsing(owned=store) as client:
        found = scrape(client)
        assert not values(found, "rocketmq_timing_messages", "topic"), "no timer message was ever put"
        assert value(found, "rocketmq_timer_enqueue_latency_milliseconds") == 0
        put_timer(store, "orders", now_ms() + HOUR_MS)
        wait_for(lambda: is_taken_in(store))
    with open_store(tmp_path) as store, browsing(owned=store) as client:
        put_timer(store, "orders", now_ms() + HOUR_MS)
        wait_for(lambda: is_taken_in(store))
        found = scrape(client)
    assert values(found, "rocketmq_timing_messages", "topic") == {("orders",): 2}
    assert values(found, "rocketmq_timer_enqueue_total", "topic") == {("orders",): 1}


def test_a_store_that_is_only_read_shows_what_waits_by_topic(tmp_path: Path) -> None:
    """Also what the timer log has not taken in, by the properties of the records."""
    with open_store(tmp_path, schedule_enable=False) as store:
        for topic in ("orders", "bills", "bills"):
            put_timer(store, topic, now_ms() + HOUR_MS)
    with browsing(tmp_path) as client:
        found = scrape(client)
    assert values(found, "rocketmq_timing_messages", "topic") == {("orders",): 1, ("bills",): 2}
    assert value(found, "rocketmq_timer_message_snapshot", timer_bound_s="3600") == 3
    assert not values(found, "rocketmq_timer_enqueue_total", "topic"), "only the owner counts"


def test_overdue_messages_are_in_the_first_bound_and_distant_ones_in_none(tmp_path: Path) -> None:
    with open_store(tmp_path, schedule_enable=False) as store:
        begun = now_ms()
        for ahead_ms in (61_000, 69_000, 31 * HOUR_MS):
            put_timer(store, "orders", begun + ahead_ms)
        store.dispatch()
        with StoreReader.open(tmp_path) as reader:
            assert snapshot(reader, begun + 64_000) == {"5": 2}
            assert snapshot(reader, begun + 63_000) == {"5": 1, "60": 1}


def snapshot(reader: StoreReader, now: int) -> dict[str, float]:
    found = waiting(TimerSamples(10), reader, now)
    return {labels[0]: count for name, labels, count in found.values if name.endswith("_snapshot") and count}


def waiting(timers: TimerSamples, reader: StoreReader, now: int) -> Samples:
    samples = Samples([], [])
    timers.waiting(samples, reader, levels_and_timers(reader)[1], now)
    return samples


def by_topic(samples: Samples, name: str) -> dict[str, float]:
    found = [(labels[0], count) for one, labels, count in samples.values if one == name]
    assert len(dict(found)) == len(found), "a series twice is a scrape that Prometheus rejects"
    return dict(found)


def test_topics_beyond_the_limit_are_summed_up_and_a_series_stays(tmp_path: Path) -> None:
    with open_store(tmp_path, schedule_enable=False) as store, StoreReader.open(tmp_path) as reader:
        due = now_ms() + HOUR_MS
        for number in range(6):
            for _ in range(number + 1):
                put_timer(store, f"t{number}", due)
        deliverer = timer_of(store)
        deliverer.step()
        timers = TimerSamples(2)
        samples = waiting(timers, reader, due)
        assert by_topic(samples, "rocketmq_timing_messages") == {"t5": 6, "t4": 5, REST: 1 + 2 + 3 + 4}
        timers.counted(samples, deliverer.service.counts)
        assert by_topic(samples, "rocketmq_timer_enqueue_total") == {"t5": 6, "t4": 5, REST: 10}
        assert by_topic(samples, "rocketmq_timer_dequeue_total") == {"t5": 0, "t4": 0, REST: 0}
        assert {labels[0]: sum(one.counts) for _, labels, one in samples.histograms} == {"t5": 6, "t4": 5, REST: 10}
        deliverer.everything()
        samples = waiting(timers, reader, due)
        timers.counted(samples, deliverer.service.counts)
        assert by_topic(samples, "rocketmq_timing_messages") == {"t5": 0, "t4": 0}
        assert by_topic(samples, "rocketmq_timer_dequeue_total") == {"t5": 6, "t4": 5, REST: 10}


def test_the_name_of_a_topic_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path, schedule_enable=False) as store, StoreReader.open(tmp_path) as reader:
        for _ in range(50):
            put_timer(store, "orders", now_ms() + HOUR_MS)
        timer_of(store).step()
        reads: list[int] = []
        message_at = reader.message_at

        def counted(place: int, **how: Any) -> object:
            reads.append(place)
            return message_at(place, **how)

        monkeypatch.setattr(reader, "message_at", counted)
        timers = TimerSamples(10)
        for _ in range(3):
            assert by_topic(waiting(timers, reader, now_ms()), "rocketmq_timing_messages") == {"orders": 50}
    assert len(reads) == 1


def test_topics_whose_names_have_one_hash_code_are_one_series(tmp_path: Path) -> None:
    assert string_hash_code("Aa") == string_hash_code("BB")
    with open_store(tmp_path, schedule_enable=False) as store, StoreReader.open(tmp_path) as reader:
        for topic in ("BB", "Aa", "Aa"):
            put_timer(store, topic, now_ms() + HOUR_MS)
        deliverer = timer_of(store)
        deliverer.step()
        timers = TimerSamples(10)
        samples = waiting(timers, reader, now_ms())
        timers.counted(samples, deliverer.service.counts)
        assert by_topic(samples, "rocketmq_timing_messages") == {"BB": 3}
        assert by_topic(samples, "rocketmq_timer_enqueue_total") == {"BB": 3}


def test_messages_that_come_too_late_for_the_timer_log_are_counted_once(tmp_path: Path) -> None:
    with open_store(tmp_path, schedule_enable=False) as store:
        deliverer, due = timer_of(store), now_ms() + HOUR_MS
        put_timer(store, "orders", due)
        deliverer.now = due / 1000
        while deliverer.step() == 0:
            pass
        put_timer(store, "orders", due - 1_000)
        while deliverer.step() == 0:
            pass
        assert deliverer.service.counts.by_topic()["orders"][:2] == (2, 2)


def test_the_latency_is_that_of_the_first_message_that_is_not_taken_in(tmp_path: Path) -> None:
    with open_store(tmp_path, schedule_enable=False) as store, StoreReader.open(tmp_path) as reader:
        deliverer = timer_of(store)

        def latency(now: int) -> list[float]:
            samples = Samples([], [])
            enqueue_latency(samples, reader, deliverer.service, now)
            return [count for name, labels, count in samples.values if labels == LOCAL_DISK]

        assert latency(now_ms()) == [0]
        put_timer(store, "orders", now_ms() + HOUR_MS)
        store.dispatch()
        assert latency(now_ms()) == [], "the service has not begun: nothing is known"
        deliverer.step()
        for _ in range(2):
            put_timer(store, "orders", now_ms() + HOUR_MS)
            put_ok(store)
        store.dispatch()
        stored = reader.store_timestamp("rmq_sys_wheel_timer", 0, 1)
        assert latency(stored + 7_000) == [7_000]
        deliverer.step()
        assert latency(stored + 7_000) == [0]


def test_delays_are_counted_in_rocketmqs_buckets() -> None:
    counts = TimerCounts()
    counts.topics[1] = "orders"
    delays_s = [0.5, 60, 61, 259_200, 259_201]
    dues, zeros, codes = [1_000 * one for one in delays_s], [0] * 5, [1] * 5
    times = TimerTimes(*(np.array(one, np.int64) for one in (dues, zeros, zeros, codes, zeros)))
    counts.taken_in(times)
    counts.taken_in(times.rows(slice(0)))
    (found,) = counts.by_topic().values()
    assert (found.taken_in, found.delivered) == (5, 0)
    assert found.delays.upper_ends == DELAY_BUCKETS_S
    assert found.delays.counts == (2, 1, 0, 0, 0, 1, 1)
    assert found.delays.total == sum(delays_s)
