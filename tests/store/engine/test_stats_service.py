"""StoreStatsService: counts, sizes, buckets and rates, with the time passed in."""

from __future__ import annotations

from itertools import pairwise

from commitlog_store.engine.stats import LATENCY_BUCKETS_S, PUT_TIME_BUCKETS_MS, SIZE_BUCKETS, StoreStatsService


def test_puts_are_counted_by_topic_and_by_how_long_they_took() -> None:
    stats = StoreStatsService(lambda: 0.0)
    stats.put("orders", 1, 100, 0.0004)
    stats.put("orders", 1, 50, 0.007)
    stats.put("payments", 10, 1_000, 12.0)
    stats.failed()
    found = stats.snapshot()
    assert found.put_message_times_total == 12
    assert found.put_message_size_total == 1_150
    assert found.put_message_failed_times == 1
    assert found.put_message_entire_time_max_ms == 12_000
    assert found.topic_put_times == {"orders": 2, "payments": 10}
    assert found.topic_put_sizes == {"orders": 150, "payments": 1_000}
    assert len(found.put_times) == len(PUT_TIME_BUCKETS_MS) + 1
    assert (found.put_times[0], found.put_times[1], found.put_times[-1]) == (1, 1, 10)


def test_rates_are_taken_over_ten_seconds_a_minute_and_ten_minutes() -> None:
    now = 0.0
    stats = StoreStatsService(lambda: now)
    for second in range(1, 121):
        now = float(second)
        if second > 110:
            stats.put("orders", 50, 50, 0.0)
        stats.run_once()
    rates = stats.snapshot().put_tps
    assert rates[10] == 50
    assert rates[60] == 500 / 60
    assert rates[600] == 500 / 120


def test_put_times_are_counted_in_buckets_below_a_millisecond_and_batches_by_rows() -> None:
    stats = StoreStatsService(lambda: 0.0)
    stats.put("orders", 1, 100, 0.000_02)
    stats.put("orders", 1, 100, 0.000_1)  # the upper end belongs to its bucket
    stats.put("orders", 50, 5_000, 0.000_3)
    stats.put("orders", 1, 100, 60.0)
    found = stats.snapshot().put_seconds
    by_end = dict(zip((*LATENCY_BUCKETS_S, None), found.counts, strict=True))
    assert {end: count for end, count in by_end.items() if count} == {0.000_025: 1, 0.000_1: 1, 0.000_5: 50, None: 1}
    assert round(found.total, 6) == round(0.000_02 + 0.000_1 + 50 * 0.000_3 + 60, 6)


def test_sizes_are_counted_in_rocketmqs_buckets_by_their_mean() -> None:
    stats = StoreStatsService(lambda: 0.0)
    for count, size in ((1, 1_024), (1, 1_025), (10, 20_000), (1, 5 << 20)):
        stats.put("orders", count, size, 0.0)
    found = stats.snapshot().put_sizes
    by_end = dict(zip((*SIZE_BUCKETS, None), found.counts, strict=True))
    assert {end: count for end, count in by_end.items() if count} == {1_024: 1, 4_096: 11, None: 1}
    assert found.total == 1_024 + 1_025 + 20_000 + (5 << 20)


def test_pulls_are_counted_as_found_or_missed_with_their_time() -> None:
    stats = StoreStatsService(lambda: 0.0)
    stats.pull("orders", 3, 300, 0.000_2)
    stats.pull("orders", 0, 0, 0.000_04)
    stats.pull("payments", 0, 0, 0.02)
    stats.get("payments", 1_000, 90_000)
    found = stats.snapshot()
    assert (found.get_message_times_total_found, found.get_message_times_total_miss) == (1, 2)
    assert found.get_message_entire_time_max_ms == 20
    assert (found.topic_get_times, found.topic_get_sizes) == (
        {"orders": 3, "payments": 1_000},
        {"orders": 300, "payments": 90_000},
    )
    assert sum(found.get_seconds.counts) == 3, "a bulk read is not a pull"


def test_the_buckets_ascend() -> None:
    for ends in (LATENCY_BUCKETS_S, SIZE_BUCKETS):
        assert all(low < high for low, high in pairwise(ends))
