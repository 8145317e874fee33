"""Progress of a stream: the queues' ends that it reports, and the lag computed from them."""

from __future__ import annotations

import json

import pytest

from pyspark_commitlog.listener import lag_by_queue
from pyspark_commitlog.options.read import parse_stream_options
from pyspark_commitlog.source import stream_offset
from pyspark_commitlog.source.progress_report import ProgressReport
from pyspark_commitlog.source.stream_planner import StreamPlanner
from tests.connector.source.sized_store import NewStore, SizedStore


def planner_of(store: SizedStore, **options: str) -> StreamPlanner:
    given = {"path": str(store.path), "subscribe": "orders", "startingOffsets": "earliest"}
    return StreamPlanner(parse_stream_options(given | options))


def expired(new_store: NewStore) -> SizedStore:
    """Two queues of ten messages; retention has taken the first five of queue 0."""
    store = new_store(log_file_size=1024)
    for queue_id in (0, 1):
        store.append("orders", queue_id, [200] * 10)
    store.expire("orders", 0, 5)
    return store


def test_before_the_first_look_nothing_is_reported(new_store: NewStore) -> None:
    """Spark asks after it has run the batch of a checkpoint again: "0 of 0 queues" would be wrong."""
    planner = planner_of(expired(new_store))
    assert planner.report_latest_offset() is None
    planner.latest_offset(planner.initial_offset(), limited=True)
    assert planner.report_latest_offset() is not None


def test_expired_messages_of_a_queue_that_was_not_read_yet_count_as_no_lag(new_store: NewStore) -> None:
    planner = planner_of(expired(new_store))
    planner.latest_offset(planner.initial_offset(), limited=True)
    report = json.dumps(planner.report_latest_offset())
    assert json.loads(report)["from"] == {"orders": {"0": 5}}
    assert lag_by_queue(None, report) == {("orders", 0): 5, ("orders", 1): 10}
    read = '{"version": 1, "offsets": {"orders": {"0": 7, "1": 4}}}'
    assert lag_by_queue(read, report) == {("orders", 0): 3, ("orders", 1): 6}


def test_the_lag_of_many_queues_is_computed_from_packed_offsets(
    new_store: NewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_offset, "PACKED_FROM", 64)
    store = new_store()
    for queue_id in range(70):
        store.append("orders", queue_id, [200] * (1 + queue_id))
    planner = planner_of(store, maxOffsetsPerTrigger="70")
    end = planner.latest_offset(planner.initial_offset(), limited=True)
    report = planner.report_latest_offset()
    assert report is not None
    assert end["version"] == report["version"] == 3
    text = json.dumps(ProgressReport.to_json(report, path="/store", run="1", oldest={("orders", 3): 5}))
    assert lag_by_queue(json.dumps(end), text) == {("orders", queue_id): queue_id for queue_id in range(70)}
    found = ProgressReport.from_text(text)
    assert found is not None
    assert found.oldest == {("orders", 3): 5}


def test_messages_that_expired_unread_count_as_no_lag(new_store: NewStore) -> None:
    planner = planner_of(expired(new_store))
    planner.latest_offset(planner.initial_offset(), limited=True)
    read = '{"version": 1, "offsets": {"orders": {"0": 2, "1": 4}}}'
    assert lag_by_queue(read, json.dumps(planner.report_latest_offset())) == {("orders", 0): 5, ("orders", 1): 6}


def test_the_oldest_message_that_waits_is_told_by_its_store_time(new_store: NewStore) -> None:
    store = expired(new_store)
    planner = planner_of(store)
    start = planner.initial_offset()
    planner.latest_offset(start, limited=True)
    end = {"version": 1, "offsets": {"orders": {"0": 2, "1": 10}}}
    assert planner.oldest_waiting(end) == {("orders", 0): store.reader.store_timestamp("orders", 0, 5)}
    assert planner.oldest_waiting({"version": 1, "offsets": {"orders": {"0": 7}}}) == {
        ("orders", 0): store.reader.store_timestamp("orders", 0, 7),
        ("orders", 1): store.reader.store_timestamp("orders", 1, 0),
    }


def test_the_oldest_message_is_looked_for_in_the_32_queues_with_most_of_them(new_store: NewStore) -> None:
    store = new_store()
    for queue_id in range(40):
        store.append("orders", queue_id, [200] * (1 + queue_id))
    planner = planner_of(store)
    planner.latest_offset(planner.initial_offset(), limited=True)
    found = planner.oldest_waiting({"version": 1, "offsets": {}})
    assert sorted(queue_id for _, queue_id in found) == list(range(8, 40))


def test_a_message_that_retention_takes_meanwhile_has_no_age(new_store: NewStore) -> None:
    store = expired(new_store)
    planner = planner_of(store)
    planner.latest_offset(planner.initial_offset(), limited=True)
    store.expire("orders", 1, 0)
    assert planner.oldest_waiting({"version": 1, "offsets": {}}) == {
        ("orders", 1): store.reader.store_timestamp("orders", 1, 0)
    }
