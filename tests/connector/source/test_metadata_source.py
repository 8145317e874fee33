"""``metadata=...``: tables about a store as DataFrames, the same as ``store_metadata`` gives."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from commitlog_store import METADATA_SCHEMAS, store_metadata
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options.metadata import parse_metadata_options
from pyspark_commitlog.options.read import parse_stream_options
from pyspark_commitlog.source.metadata_source import metadata_schema
from tests.connector.sink.test_batch import error_of
from tests.connector.source.spark_helpers import read, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("table", METADATA_SCHEMAS)
def test_a_table_is_a_data_frame(spark: SparkSession, golden_533: Path, table: str) -> None:
    frame = read(spark, golden_533, metadata=table)
    assert frame.schema == metadata_schema(table)
    # PySpark gives naive times in the local zone, which conftest sets to UTC.
    expected = [
        {name: value.replace(tzinfo=None) if isinstance(value, datetime) else value for name, value in row.items()}
        for row in store_metadata(golden_533, table).to_pylist()
    ]
    assert [row.asDict() for row in frame.collect()] == expected


def test_columns_are_chosen_by_a_schema(spark: SparkSession, golden_533: Path) -> None:
    frame = read(spark, golden_533, "MESSAGES bigint, topic string", metadata="topics")
    expected = store_metadata(golden_533, "topics").to_pylist()
    assert [tuple(row) for row in frame.collect()] == [(one["messages"], one["topic"]) for one in expected]
    said = error_of(read(spark, golden_533, "message bigint", metadata="topics").collect)
    assert "Did you mean messages?" in said
    said = error_of(read(spark, golden_533, "messages int", metadata="topics").collect)
    assert "Column messages of topics is BIGINT" in said


def test_sql_reads_them_too(spark: SparkSession, golden_533: Path) -> None:
    given = f"path '{golden_533}', metadata 'queues'"
    spark.sql(f"create or replace temporary view store_queues using commitlog options ({given})")
    (row,) = spark.sql("select sum(messages) n from store_queues where topic = 'orders'").collect()
    assert row.n == read(spark, golden_533, "queueOffset bigint", subscribe="orders").count()


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"metadata": "queue"}, "Option metadata is 'queue'; expected one of topics, queues"),
        ({"metadata": "queues", "subscribe": "orders"}, "Option subscribe is given with metadata=queues, which"),
        (
            {"metadata": "queues", "typo": "1"},
            "takes no other option than path, storePathCommitLog, onMissingStore, archive, and those of a served",
        ),
    ],
)
def test_other_options_are_refused(options: dict[str, str], part: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_metadata_options({"path": "/store"} | options)
    assert part in str(caught.value)
    with pytest.raises(OptionError, match="path is missing"):
        parse_metadata_options({"metadata": "queues"})


def test_a_table_of_a_catalog_is_answered_with_what_works(spark: SparkSession, golden_533: Path) -> None:
    given = f"path '{golden_533}', metadata 'topics'"
    said = error_of(lambda: spark.sql(f"create table store_topics using commitlog options ({given})"))
    assert "A table of a catalog needs its columns" in said
    spark.sql("create table store_topics (topic string, messages bigint) using commitlog")
    try:
        assert (
            spark.sql(f"select * from store_topics with ({given})").count()
            == store_metadata(golden_533, "topics").num_rows
        )
    finally:
        spark.sql("drop table store_topics")


def test_a_stream_of_them_is_refused(spark: SparkSession, golden_533: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="metadata is for batch reads"):
        parse_stream_options({"path": "/store", "metadata": "queues"})
    writer = stream(spark, golden_533, metadata="queues").writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    assert "metadata is for batch reads" in error_of(lambda: query.start().awaitTermination())
