"""StoreStatsService: counts, sizes, buckets and rates, with the time passed in."""

from __future__ import annotations

from commitlog_store.engine.stats import PUT_TIME_BUCKETS_MS, StoreStatsService


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
