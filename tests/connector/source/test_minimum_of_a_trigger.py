"""``minOffsetsPerTrigger`` and ``maxTriggerDelay``: when a small batch waits, and how long; nothing is lost by it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from commitlog_store.errors import FileChanged
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options.read import parse_batch_options, parse_stream_options
from tests.connector.source.planned_query import Query, all_rows, filled
from tests.connector.source.sized_store import NewStore
from tests.connector.source.spark_helpers import Batches, stream
from tests.support.store_builder import StoreBuilder
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


GOOD = {"path": "/store", "subscribe": "orders"}
AT_LEAST_5 = {"subscribe": "orders", "startingOffsets": "earliest", "minOffsetsPerTrigger": "5"}


@pytest.fixture
def query(new_store: NewStore) -> Query:
    """A query that has read what was there, and wants at least five messages for its next batch."""
    query = Query(filled(new_store), **AT_LEAST_5, maxTriggerDelay="10s")
    query.run()
    assert query.rows == all_rows(query.store)[-20:]
    return query


def test_a_batch_waits_until_enough_messages_are_there(query: Query) -> None:
    query.store.append("orders", 0, [200] * 2)
    query.store.append("orders", 1, [200] * 2)
    assert not query.plan()
    query.store.append("orders", 1, [200])
    assert query.plan()
    assert len(query.read()) == 5


def test_a_batch_waits_no_longer_than_the_delay(query: Query) -> None:
    query.store.append("orders", 0, [200])
    query.now_s = 9.9
    assert not query.plan()
    query.now_s = 10.0
    assert query.plan()
    query.commit()
    query.store.append("orders", 0, [200])
    query.now_s = 19.9
    assert not query.plan()
    query.now_s = 20.0
    assert query.plan()


def test_the_first_message_after_a_quiet_time_does_not_wait(query: Query) -> None:
    query.now_s = 100.0
    assert not query.plan()
    query.store.append("orders", 0, [200])
    assert query.plan()


def test_the_first_batch_of_a_run_does_not_wait(query: Query) -> None:
    query.store.append("orders", 0, [200])
    assert not query.plan()
    query.restart()
    assert query.plan()
    assert query.read() == [("orders", 0, 10)]


def test_planning_that_is_repeated_does_not_wait_for_itself(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the owner replaces a file of a queue while the first batch of a run is planned."""
    query.store.append("orders", 0, [200])
    query.restart()
    fences, changed = query.store.reader.fences, [FileChanged("replaced", path="queue")]

    def fences_of_a_changing_store(positions: Any) -> Any:
        if changed and ("orders", 0, 10) in positions:
            raise changed.pop()
        return fences(positions)

    monkeypatch.setattr(query.store.reader, "fences", fences_of_a_changing_store)
    assert query.plan()
    assert query.read() == [("orders", 0, 10)]
    assert not changed


def test_once_and_available_now_leave_nothing_behind(query: Query) -> None:
    query.store.append("orders", 0, [200])
    assert query.plan(limited=False)
    query.planner.prepare_for_available_now()
    assert query.plan()


def test_lost_messages_are_reported_at_once(query: Query, caplog: pytest.LogCaptureFixture) -> None:
    query.restart(failOnDataLoss="false", subscribe="orders")
    query.store.append("orders", 0, [200] * 5)
    query.run()
    query.store.append("orders", 1, [200])
    query.store.truncate("orders", 0, 12)
    query.store.reader.close()
    query.planner._planners[""].reader = query.planner._open._readers[""] = query.store.reopen()
    assert query.plan()
    assert "the queue now ends at 12" in caplog.text


def test_both_limits_hold_together(new_store: NewStore) -> None:
    query = Query(filled(new_store), **AT_LEAST_5, maxOffsetsPerTrigger="8")
    sizes = []
    while query.plan():
        sizes.append(len(query.read()))
        query.commit()
    assert sizes == [8, 8]
    query.store.append("orders", 0, [200])
    query.run()
    assert query.rows[16:]
    assert sorted(query.rows) == [row for row in all_rows(query.store) if row[0] == "orders"]


def test_the_limits_must_agree() -> None:
    with pytest.raises(OptionError, match="minOffsetsPerTrigger is '9'; expected at most maxOffsetsPerTrigger, 8"):
        parse_stream_options(GOOD | {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10s", 10), ("2m", 120), ("2 min", 120), ("1h", 3600), ("1D", 86_400), ("500ms", 0.5), ("250", 0.25), ("0s", 0)],
)
def test_delays_are_written_as_in_spark(text: str, seconds: float) -> None:
    options = parse_stream_options(GOOD | {"minOffsetsPerTrigger": "9", "maxTriggerDelay": text})
    assert options.max_trigger_delay_s == seconds


@pytest.mark.parametrize("text", ["soon", "-1s", "1.5s", "3y", ""])
def test_another_delay_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="expected a time such as 500ms, 10s"):
        parse_stream_options(GOOD | {"minOffsetsPerTrigger": "9", "maxTriggerDelay": text})


def test_the_delay_is_kafkas_unless_given() -> None:
    assert parse_stream_options(GOOD | {"minOffsetsPerTrigger": "9"}).max_trigger_delay_s == 15 * 60


def test_options_without_effect_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    parse_stream_options(GOOD | {"maxTriggerDelay": "9s"})
    assert "maxTriggerDelay has no effect without minOffsetsPerTrigger" in caplog.text
    parse_batch_options(GOOD | {"minOffsetsPerTrigger": "9"})
    assert "minOffsetsPerTrigger has no effect on a batch read" in caplog.text


@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"once": True}])
def test_spark_reads_all_of_a_small_store(spark: SparkSession, tmp_path: Path, trigger: dict[str, Any]) -> None:
    store = StoreBuilder(tmp_path / "store")
    store.append("orders", [0, 1], [b"x"] * 3)
    batches = Batches(tmp_path / "checkpoint")
    frame = stream(spark, store.path, **AT_LEAST_5)
    assert len(batches.run(frame, **trigger)) == 3
    store.append("orders", [0, 1], [b"x"])
    assert len(batches.run(frame, **trigger)) == 1


def test_a_running_query_waits_for_enough_messages(spark: SparkSession, tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store")
    store.append("orders", 0, [b"x"] * 3)
    batches = Batches(tmp_path / "checkpoint")
    frame = stream(spark, store.path, **(AT_LEAST_5 | {"minOffsetsPerTrigger": "20"}))
    query = batches.start(frame, processingTime="0 seconds")
    try:
        wait_for(lambda: len(batches.rows) == 3)
        for _ in range(20):  # each alone would be a batch
            store.append("orders", 0, [b"x"])
            time.sleep(0.05)
        wait_for(lambda: len(batches.rows) == 23)
    finally:
        query.stop()
    assert [len(rows) for _, rows in sorted(batches.by_id.items())] == [3, 20]
