"""Named topics and queues that do not exist: a query that ends fails, a stream that waits warns once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from commitlog_store.errors import TopicNotFound
from pyspark_commitlog.options.read import parse_batch_options, parse_stream_options
from pyspark_commitlog.source.batch_source import CommitLogBatchReader
from pyspark_commitlog.source.schema import check_schema
from pyspark_commitlog.source.stream_planner import StreamPlanner
from tests.connector.source.spark_helpers import Batches, read, stream, struct
from tests.support.store_builder import StoreBuilder
from tests.support.waiting import WAIT_LIMIT_S, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MISSPELT = {"subscribe": "ordres", "startingOffsets": "earliest"}
WAY_OUT = "To read the others without it, set the option failOnMissingTopic to false."


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    builder = StoreBuilder(tmp_path / "store")
    for topic in ("orders", "orders_eu", "audit"):
        builder.append(topic, [0, 1], [b"x"] * 2)
    return builder


def warnings_of(store: StoreBuilder, caplog: pytest.LogCaptureFixture, **options: str) -> list[str]:
    """What a stream logs when it starts and plans two triggers."""
    caplog.clear()
    planner = StreamPlanner.open(parse_stream_options({"path": str(store.path)} | options))
    start = planner.initial_offset()
    for _ in range(2):
        start = planner.latest_offset(start, limited=True)
    planner.close()
    return [record.getMessage() for record in caplog.records]


def test_a_stream_warns_once_with_the_nearest_names(store: StoreBuilder, caplog: pytest.LogCaptureFixture) -> None:
    (said,) = warnings_of(store, caplog, subscribe="ordres,audit,zzz")
    assert f"Topic 'ordres' is not in the store {store.path} yet. Did you mean 'orders' or 'orders_eu'?" in said
    assert f"Topic 'zzz' is not in the store {store.path} yet. The query reads what comes there" in said
    assert "Topic 'audit'" not in said


def test_a_stream_warns_of_assigned_queues(store: StoreBuilder, caplog: pytest.LogCaptureFixture) -> None:
    (said,) = warnings_of(store, caplog, assign='{"orders":[0,7]}')
    assert f"Topic 'orders' has no queue 7 in the store {store.path} yet." in said


def test_a_stream_warns_of_a_pattern_without_a_topic(store: StoreBuilder, caplog: pytest.LogCaptureFixture) -> None:
    (said,) = warnings_of(store, caplog, subscribePattern="ordres.*")
    assert "matches subscribePattern" in said


@pytest.mark.parametrize("options", [{"subscribe": "orders,audit"}, {"assign": '{"orders":[0]}'}])
def test_no_warning_when_all_are_there(
    store: StoreBuilder, caplog: pytest.LogCaptureFixture, options: dict[str, str]
) -> None:
    assert warnings_of(store, caplog, **options) == []


def said_by_spark(action: Callable[[], object]) -> str:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def said_of(store: StoreBuilder) -> str:
    nearest = "Did you mean 'orders' or 'orders_eu'?"
    return f"TopicNotFound: Topic 'ordres' is not in the store {store.path}. {nearest} {WAY_OUT}"


def test_a_batch_read_of_a_misspelt_topic_fails(spark: SparkSession, store: StoreBuilder) -> None:
    assert said_of(store) in said_by_spark(lambda: read(spark, store.path, subscribe="ordres").count())


def test_available_now_of_a_misspelt_topic_fails(spark: SparkSession, store: StoreBuilder, tmp_path: Path) -> None:
    batches = Batches(tmp_path / "checkpoint")
    assert said_of(store) in said_by_spark(lambda: batches.run(stream(spark, store.path, **MISSPELT)))
    rows = batches.run(stream(spark, store.path, **MISSPELT | {"subscribe": "orders"}))
    assert len(rows) == 2, "the checkpoint is as good as new"


@pytest.mark.parametrize("option", ["failOnMissingTopic", "FAILONMISSINGTOPIC"])
def test_a_query_that_may_lack_a_topic_reads_the_others(
    spark: SparkSession, store: StoreBuilder, tmp_path: Path, option: str
) -> None:
    given = {"subscribe": "ordres,audit", "startingOffsets": "earliest", option: "false"}
    assert {row.topic for row in read(spark, store.path, **given).collect()} == {"audit"}
    assert {row.topic for row in Batches(tmp_path / "checkpoint").run(stream(spark, store.path, **given))} == {"audit"}


def test_a_continuing_stream_waits_for_a_topic_that_comes_later(
    spark: SparkSession, store: StoreBuilder, tmp_path: Path
) -> None:
    batches = Batches(tmp_path / "checkpoint")
    query = batches.start(stream(spark, store.path, **MISSPELT), processingTime="0 seconds")
    try:
        wait_for(lambda: 0 in batches.by_id)
        store.append("ordres", 0, [b"late"])
        wait_for(lambda: bool(batches.rows))
    finally:
        query.stop()


def test_a_continuing_stream_fails_on_request(spark: SparkSession, store: StoreBuilder, tmp_path: Path) -> None:
    given = MISSPELT | {"failOnMissingTopic": "true"}
    query = Batches(tmp_path / "checkpoint").start(stream(spark, store.path, **given), processingTime="0 seconds")
    assert said_of(store) in said_by_spark(lambda: query.awaitTermination(WAIT_LIMIT_S))


def test_a_batch_without_a_named_queue_fails_or_warns(store: StoreBuilder, caplog: pytest.LogCaptureFixture) -> None:
    given = {"path": str(store.path), "assign": '{"orders":[0,7]}'}
    projection = check_schema(struct(["topic"]))
    with pytest.raises(Exception, match=r"has no queue 7 in the store .*; it has 0, 1\. To read the others without it"):
        CommitLogBatchReader(parse_batch_options(given), projection).partitions()
    options = parse_batch_options(given | {"failOnMissingTopic": "false"})
    assert len(CommitLogBatchReader(options, projection).partitions()) == 1
    assert caplog.messages == [f"Topic 'orders' has no queue 7 in the store {store.path} yet. It is not read."]


def test_a_store_that_is_away_may_have_the_topic(
    store: StoreBuilder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"path": f"a={store.path},b={tmp_path / 'away'}", "subscribe": "ordres", "onMissingStore": "skip"}
    StreamPlanner.open(parse_stream_options(given), ends=True).close()
    assert "Topic 'ordres' is not in the store" in caplog.text
    StoreBuilder(tmp_path / "away").append("audit", 0, [b"x"])
    with pytest.raises(TopicNotFound, match=rf"None of the stores a, b has it\. {WAY_OUT}"):
        StreamPlanner.open(parse_stream_options(given), ends=True)
