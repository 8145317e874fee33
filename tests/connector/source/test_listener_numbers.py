"""The numbers of ``CommitLogLagListener`` for real offsets: of the planner, and of a query that Spark runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_commitlog.listener import BatchNumbers, CommitLogLagListener, batch_numbers
from tests.connector.source.planned_query import Query, filled
from tests.connector.source.sized_store import NewStore, SizedStore
from tests.connector.source.spark_helpers import Batches, stream
from tests.support.spark_versions import with_read_limits
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = with_read_limits


def planned_numbers(query: Query) -> BatchNumbers | None:
    """The numbers of the batch that is planned next."""
    start = json.dumps(query.start())
    assert query.plan()
    return batch_numbers(start, json.dumps(query.log[-1]))


@pytest.fixture
def expiring(new_store: NewStore) -> Query:
    """A query whose lag was large when retention took the next three messages of a queue."""
    query = Query(
        filled(new_store),
        subscribe="orders",
        startingOffsets="earliest",
        failOnDataLoss="false",
        maxOffsetsPerTrigger="4",
    )
    query.plan()
    query.commit()
    query.store.expire("orders", 0, 5)
    query.restart()
    return query


def test_offsets_that_expired_are_counted_as_skipped(expiring: Query) -> None:
    numbers = planned_numbers(expiring)
    at = expiring.log[0]["offsets"]["orders"]["0"]
    assert at < 5
    assert numbers == BatchNumbers({"orders": 4}, {("orders", 0): (at, 5)})
    expiring.commit()
    numbers = planned_numbers(expiring)
    assert numbers is not None
    assert numbers.skipped == {}, "they are skipped once"


@contextmanager
def listening(spark: SparkSession, listener: CommitLogLagListener) -> Iterator[None]:
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)


class Recorder(CommitLogLagListener):
    """What a subclass that sends the numbers elsewhere is given."""

    def __init__(self) -> None:
        super().__init__()
        self.lags: list[dict[Any, int]] = []
        self.batches: list[BatchNumbers] = []

    def on_lag(self, query: str, batch_id: int, lag: Any) -> None:
        self.lags.append(dict(lag))

    def on_batch(self, query: str, batch_id: int, numbers: BatchNumbers) -> None:
        self.batches.append(numbers)


def orders(spark: SparkSession, store: SizedStore) -> Any:
    return stream(
        spark,
        store.path,
        subscribe="orders",
        startingOffsets="earliest",
        failOnDataLoss="false",
        maxOffsetsPerTrigger="8",
        includeMetadata="true",
    )


def test_spark_reports_the_numbers_of_a_query_and_its_skipped_offsets(
    spark: SparkSession, new_store: NewStore, tmp_path: Path
) -> None:
    store = filled(new_store)
    batches, recorder = Batches(tmp_path / "checkpoint"), Recorder()
    with listening(spark, recorder):
        batches.run(orders(spark, store))
        store.append("orders", 0, [200] * 10)
        store.expire("orders", 0, 15)
        batches.run(orders(spark, store))
        wait_for(lambda: sum(one.read.get("orders", 0) for one in recorder.batches) == 25)
    assert [one.skipped for one in recorder.batches if one.skipped] == [{("orders", 0): (10, 15)}]
    assert recorder.lags[-1] == {("orders", 0): 0, ("orders", 1): 0}
    assert len(batches.rows) == 25


def test_prometheus_gets_the_numbers(spark: SparkSession, new_store: NewStore, tmp_path: Path) -> None:
    prometheus = pytest.importorskip("prometheus_client")
    store = filled(new_store)
    registry = prometheus.CollectorRegistry()
    batches = Batches(tmp_path / "checkpoint")

    def value(name: str, **labels: str) -> float | None:
        found = registry.get_sample_value(
            name, {"query": "shop", "source": str(store.path), "topic": "orders"} | labels
        )
        return None if found is None else float(found)

    with listening(spark, CommitLogLagListener(registry=registry)):
        for expired in (False, True):
            if expired:
                store.append("orders", 0, [200] * 10)
                store.expire("orders", 0, 15)
            frame = orders(spark, store)
            writer = frame.writeStream.queryName("shop").foreachBatch(batches._take)
            query = writer.option("checkpointLocation", str(batches.checkpoint)).start()
            read = 25 if expired else 20
            try:
                wait_for(lambda read=read: value("commitlog_read_messages_total") == read)  # type: ignore[misc]
                wait_for(lambda: value("commitlog_lag_messages", queue="0") == 0)
            finally:
                query.stop()  # its name is another test's, too
            wait_for(lambda: value("commitlog_lag_messages", queue="0") is None)
    assert value("commitlog_skipped_offsets_total", queue="0") == 5
    line = f'commitlog_read_messages_total{{query="shop",source="{store.path}",topic="orders"}} 25.0'
    assert line.encode() in prometheus.generate_latest(registry)


def test_prometheus_has_no_lag_of_a_queue_that_was_deleted(
    spark: SparkSession, new_store: NewStore, tmp_path: Path
) -> None:
    """Else an alarm that it caused would never end. A queue of the query's other source stays."""
    prometheus = pytest.importorskip("prometheus_client")
    store = filled(new_store)
    registry = prometheus.CollectorRegistry()
    batches = Batches(tmp_path / "checkpoint")

    def lag(topic: str, queue: str) -> float | None:
        source = str(store.path) if topic == "orders" else f"{store.path} #2"
        labels = {"query": "shop", "source": source, "topic": topic, "queue": queue}
        found = registry.get_sample_value("commitlog_lag_messages", labels)
        return None if found is None else float(found)

    audit = stream(spark, store.path, subscribe="audit", startingOffsets="earliest", includeMetadata="true")
    with listening(spark, CommitLogLagListener(registry=registry)):
        writer = orders(spark, store).union(audit).writeStream.queryName("shop").foreachBatch(batches._take)
        query = writer.option("checkpointLocation", str(batches.checkpoint)).start()
        wait_for(lambda: (lag("orders", "1"), lag("audit", "0")) == (0, 0))
        shutil.rmtree(store.path / "consumequeue" / "orders" / "1")
        store.append("orders", 0, [200])
        wait_for(lambda: lag("orders", "1") is None)
        assert (lag("orders", "0"), lag("audit", "0")) == (0, 0)
        query.stop()
