"""Streams in PySpark 4.0 and 4.1, which give a source no limits; skipped elsewhere, ``make versions`` has both."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from tests.connector.source.spark_helpers import Batches, read, stream
from tests.support.spark_versions import before_read_limits
from tests.support.store_builder import StoreBuilder
from tests.support.waiting import WAIT_LIMIT_S, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = before_read_limits

PLACE = "topic string, queueId int, queueOffset bigint"
LIMITED = {"subscribe": "orders", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    return Batches(tmp_path / "checkpoint")


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    """Two queues with twenty messages each."""
    builder = StoreBuilder(tmp_path / "store")
    builder.append("orders", [0, 1], [b"x" * 200] * 40)
    return builder


def places(batches: Batches) -> list[tuple[int, int]]:
    return sorted((row.queueId, row.queueOffset) for row in batches.rows)


def sizes(batches: Batches) -> list[int]:
    return [len(rows) for _, rows in sorted(batches.by_id.items())]


def test_limits_hold_from_the_second_batch_of_a_run_on(
    spark: SparkSession, store: StoreBuilder, batches: Batches
) -> None:
    batches.after = lambda batch_id: store.append("orders", [0, 1], [b"y"] * 24) if batch_id == 0 else None
    query = batches.start(stream(spark, store.path, PLACE, **LIMITED), processingTime="50 milliseconds")
    try:
        wait_for(lambda: len(places(batches)) == 64)
    finally:
        query.stop()
    assert sizes(batches) == [40, 10, 10, 4]
    assert places(batches) == [(queue_id, offset) for queue_id in (0, 1) for offset in range(32)]


@pytest.mark.parametrize("trigger", ["once", "availableNow"])
def test_a_run_of_one_batch_reads_everything_whatever_the_limits(
    spark: SparkSession, store: StoreBuilder, batches: Batches, trigger: str
) -> None:
    frame = stream(spark, store.path, PLACE, **LIMITED)
    batches.run(frame, **{trigger: True})
    store.append("orders", [0, 1], [b"y"] * 24)
    batches.run(frame, **{trigger: True})
    batches.run(frame, **{trigger: True})
    assert sizes(batches) == [40, 24]
    assert places(batches) == [(queue_id, offset) for queue_id in (0, 1) for offset in range(32)]


def test_a_failed_batch_is_repeated_as_it_was_and_the_limits_hold_after_it(
    spark: SparkSession, store: StoreBuilder, batches: Batches
) -> None:
    frame = stream(spark, store.path, PLACE, **LIMITED)
    batches.fail_on = 0
    with pytest.raises(Exception, match="the sink fails"):
        batches.run(frame)
    batches.fail_on = None
    store.append("orders", [0, 1], [b"y"] * 24)
    query = batches.start(frame, processingTime="50 milliseconds")
    try:
        wait_for(lambda: len(places(batches)) == 64)
    finally:
        query.stop()
    assert sizes(batches) == [40, 10, 10, 4]
    assert places(batches) == [(queue_id, offset) for queue_id in (0, 1) for offset in range(32)]


def test_the_wrapper_of_available_now_is_refused_for_a_query_that_continues(
    spark: SparkSession, store: StoreBuilder, batches: Batches
) -> None:
    frame = stream(spark, store.path, PLACE, **LIMITED)
    batches.run(frame)
    store.append("orders", [0, 1], [b"y"] * 24)
    spark.conf.set(WRAPPER, "true")
    try:
        with pytest.raises(Exception, match=r"triggerAvailableNowWrapper\.enabled=true"):
            batches.run(frame)
    finally:
        spark.conf.unset(WRAPPER)
    batches.run(frame)
    assert sizes(batches) == [40, 24]


def test_the_listener_warns_that_it_knows_no_lag_and_reports_what_batches_read(
    spark: SparkSession, store: StoreBuilder, batches: Batches, caplog: pytest.LogCaptureFixture
) -> None:
    from pyspark_commitlog.listener import CommitLogLagListener

    with caplog.at_level(logging.INFO):
        listener = CommitLogLagListener()
        spark.streams.addListener(listener)
        try:
            query = batches.start(stream(spark, store.path, PLACE, **LIMITED))
            assert query.awaitTermination(WAIT_LIMIT_S)
            wait_for(lambda: "40 messages read; orders: 40" in caplog.text)
        finally:
            spark.streams.removeListener(listener)
    assert f"Spark {pyspark.__version__} does not report the lag of a Python source" in caplog.text
    assert "messages behind" not in caplog.text


@pytest.mark.skipif(not pyspark.__version__.startswith("4.0."), reason="PySpark 4.0 has no Arrow UDFs")
def test_lookup_is_refused_by_name(spark: SparkSession, store: StoreBuilder) -> None:
    from pyspark_commitlog import lookup
    from pyspark_commitlog.errors import SparkVersionError

    frame = read(spark, store.path, PLACE, subscribe="orders").selectExpr("topic AS id")
    with pytest.raises(SparkVersionError, match=r"lookup needs PySpark 4\.1 or newer; this is 4\.0\."):
        lookup(frame, store.path, "orders", "id")
