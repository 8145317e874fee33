"""Planning a stream against a store that loses its head or its tail: an error, or a warning."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from commitlog_store import MessageStore
from pyspark_commitlog.errors import ConnectorError, DataLossError, TailLostError
from pyspark_commitlog.options.read import parse_stream_options
from pyspark_commitlog.source import stream_planner
from pyspark_commitlog.source.stream_planner import StreamPlanner
from tests.connector.source.planned_query import FROM_START, Query, filled
from tests.connector.source.sized_store import NewStore


def test_retention_ahead_of_the_query_is_lost_data(new_store: NewStore) -> None:
    query = Query(filled(new_store))
    query.run()
    query.store.append("orders", 0, [200] * 10)
    query.store.expire("orders", 0, 15)
    with pytest.raises(DataLossError) as caught:
        query.plan()
    assert (caught.value.topic, caught.value.queue_id) == ("orders", 0)
    assert (caught.value.wanted, caught.value.available) == ((10, 20), (15, 20))
    assert "failOnDataLoss" in str(caught.value)


def test_a_stream_warns_and_continues_at_the_earliest_message_left(
    new_store: NewStore, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(filled(new_store), **FROM_START, failOnDataLoss="false")
    query.run()
    query.store.append("orders", 0, [200] * 10)
    query.store.expire("orders", 0, 15)
    query.rows.clear()
    query.run()
    assert query.rows == [("orders", 0, offset) for offset in range(15, 20)]
    assert "wanted offsets [10, 20), available are [15, 20)" in caplog.text


@pytest.mark.parametrize("fail", ["true", "false"])
def test_retention_between_planning_and_running_is_lost_data(new_store: NewStore, fail: str) -> None:
    query = Query(filled(new_store), **FROM_START, failOnDataLoss=fail)
    assert query.plan()
    query.store.expire("orders", 0, 5)
    if fail == "true":
        with pytest.raises(DataLossError, match=r"wanted offsets \[0, 10\), available are \[5, 10\)"):
            query.read()
    else:
        assert next(row for row in query.read() if row[:2] == ("orders", 0)) == ("orders", 0, 5)


def test_a_removed_queue_of_a_stream_is_lost_data(new_store: NewStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_planner, "_LEAST_REST_S", 0.0)  # the next look comes at once
    monkeypatch.setattr(stream_planner, "_REST", 0)
    query = Query(filled(new_store))
    query.run()
    query.store.delete_queue("audit", 1)
    with pytest.raises(DataLossError, match="available are none"):
        query.plan()
    query.restart(failOnDataLoss="false")
    query.run()
    assert query.committed == 2
    query.store.append("audit", 1, [200])
    query.run()
    assert query.rows[-1] == ("audit", 1, 0)


def test_a_lost_tail_is_noticed(new_store: NewStore) -> None:
    query = Query(filled(new_store))
    query.run()
    query.store.truncate("audit", 1, 7)
    with pytest.raises(TailLostError, match=r"planned up to offset 10, but the queue now ends at 7"):
        query.plan()


def test_a_stream_warns_and_continues_at_the_new_end(new_store: NewStore, caplog: pytest.LogCaptureFixture) -> None:
    query = Query(filled(new_store), **FROM_START, failOnDataLoss="false")
    query.run()
    query.store.truncate("audit", 1, 7)
    query.rows.clear()
    query.run()
    assert "now ends at 7" in caplog.text
    query.store.append("audit", 1, [200] * 5)
    query.run()
    assert query.rows == [("audit", 1, offset) for offset in range(7, 12)]


def test_a_tail_that_was_replaced_is_noticed_though_the_queue_is_longer_than_before(new_store: NewStore) -> None:
    query = Query(filled(new_store))
    query.run()
    query.store.truncate("audit", 1, 7)
    query.store.append("audit", 1, [200] * 5)
    with pytest.raises(TailLostError, match="message at offset 9 is not the one"):
        query.plan()
    query.restart()
    with pytest.raises(TailLostError, match="message at offset 9 is not the one"):
        query.plan()


def test_a_replaced_tail_is_warned_about_once(new_store: NewStore, caplog: pytest.LogCaptureFixture) -> None:
    query = Query(filled(new_store), **FROM_START, failOnDataLoss="false")
    query.run()
    query.store.truncate("audit", 1, 7)
    query.store.append("audit", 1, [200] * 5)
    query.rows.clear()
    query.run()
    assert query.rows == [("audit", 1, 10), ("audit", 1, 11)]
    caplog.clear()
    query.restart()
    query.store.append("audit", 1, [200])
    query.run()
    assert caplog.records == []


def test_a_replaced_tail_of_the_same_length_is_noticed_at_the_restart(new_store: NewStore) -> None:
    query = Query(filled(new_store))
    query.run()
    query.store.truncate("audit", 1, 7)
    query.store.append("audit", 1, [200] * 3)
    query.restart()
    with pytest.raises(TailLostError):
        query.plan()


def test_a_replaced_tail_of_the_same_length_is_not_read_over(new_store: NewStore) -> None:
    """A running query does not look into idle queues on every trigger, but does before it reads newer messages."""
    query = Query(filled(new_store))
    query.run()
    query.store.truncate("audit", 1, 7)
    query.store.append("audit", 1, [200] * 3)
    query.plan()
    query.store.append("audit", 1, [200])
    with pytest.raises(TailLostError):
        query.plan()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_batch_planned_before_a_crash_is_not_run_on_another_tail(new_store: NewStore, fail: str) -> None:
    query = Query(filled(new_store), **FROM_START, failOnDataLoss=fail)
    assert query.plan()
    query.store.truncate("audit", 1, 5)
    query.store.append("audit", 1, [200] * 9)
    query.restart()
    if fail == "true":
        with pytest.raises(TailLostError, match="message at offset 9"):
            query.read()
    else:
        assert len(query.read()) == 40


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_batch_planned_before_a_crash_whose_end_is_missing_is_lost_data(new_store: NewStore, fail: str) -> None:
    query = Query(filled(new_store), **FROM_START, failOnDataLoss=fail)
    assert query.plan()
    query.store.truncate("audit", 1, 5)
    query.restart()
    if fail == "true":
        with pytest.raises(TailLostError, match="ends at 5"):
            query.read()
    else:
        assert len(query.read()) == 35


def test_retention_that_has_taken_the_fence_is_not_a_loss(new_store: NewStore) -> None:
    query = Query(filled(new_store))
    query.run()
    query.store.append("orders", 0, [200])
    query.store.expire("orders", 0, 10)
    query.restart()
    query.run()
    assert query.rows[-1] == ("orders", 0, 10)


def test_warnings_reach_the_packages_logger(new_store: NewStore, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="pyspark_commitlog"):
        test_a_stream_warns_and_continues_at_the_earliest_message_left(new_store, caplog)
    assert all(record.name.startswith("pyspark_commitlog.") for record in caplog.records)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_an_end_that_is_lost_between_two_triggers_is_noticed_before_the_query_gets_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fail: str
) -> None:
    """The position stands before the new end, so that only the store itself says that messages are missing."""
    path = tmp_path / "store"
    with MessageStore.open(path) as store:
        for _ in range(20):
            store.put("orders", b"x", queue_id=0)
    start = {"path": str(path), "subscribe": "orders", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "5"}
    planner = StreamPlanner(parse_stream_options(start | {"failOnDataLoss": fail}))
    offset = planner.latest_offset(planner.initial_offset(), limited=True)
    assert not caplog.records
    units = next((path / "consumequeue" / "orders" / "0").iterdir())
    with units.open("r+b") as file:
        file.seek(15 * 20)
        file.write(bytes(5 * 20))
    if fail == "true":
        with pytest.raises(ConnectorError, match="lacks messages at its end"):
            planner.latest_offset(offset, limited=True)
    else:
        planner.latest_offset(offset, limited=True)
        assert "lacks messages at its end" in caplog.text
    planner.close()
