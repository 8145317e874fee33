"""Every option of Spark's Kafka connector exists here, or is answered with what to do without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_commitlog import DefaultSource
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options.read import (
    OPTION_NAMES,
    parse_batch_options,
    parse_options,
    parse_options_of_any_read,
    parse_stream_options,
)
from pyspark_commitlog.options.write import WRITE_OPTIONS, parse_batch_write_options
from tests.connector.sink.sink_helpers import append, messages
from tests.connector.sink.test_batch import error_of
from tests.connector.source.spark_helpers import read, stream
from tests.support.store_builder import StoreBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


READ = {"path": "/store", "subscribe": "orders"}
WRITE = {"path": "/store", "topic": "orders"}
# The tables of options in Spark's integration guide, 4.0; and those that it says cannot be set.
OF_THE_SOURCE = (
    *("assign", "subscribe", "subscribePattern", "kafka.bootstrap.servers", "startingTimestamp"),
    *("startingOffsetsByTimestamp", "startingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"),
    *("failOnDataLoss", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition"),
    *("groupIdPrefix", "kafka.group.id", "includeHeaders", "startingOffsetsByTimestampStrategy"),
    *("kafka.auto.offset.reset", "kafka.key.deserializer", "kafka.value.deserializer", "kafka.enable.auto.commit"),
    *("kafka.interceptor.classes", "kafka.sasl.jaas.config", "kafka.ssl.truststore.location"),
)
OF_THE_SINK = (
    *("kafka.bootstrap.servers", "topic", "includeHeaders", "kafka.partitioner.class", "kafka.key.serializer"),
    *("kafka.value.serializer", "kafka.acks", "kafka.linger.ms"),
)


def answer(parse: Callable[[dict[str, str]], Any], options: dict[str, str]) -> str:
    with pytest.raises(OptionError) as caught:
        parse(options)
    return str(caught.value)


@pytest.mark.parametrize("option", OF_THE_SOURCE)
def test_each_option_of_kafkas_source_exists_or_has_an_answer(option: str) -> None:
    if option not in OPTION_NAMES:
        said = answer(parse_options, READ | {option: "x"})
        assert f"Unknown option {option!r}. It" in said
        assert "Did you mean" not in said


@pytest.mark.parametrize("option", OF_THE_SINK)
def test_each_option_of_kafkas_sink_exists_or_has_an_answer(option: str) -> None:
    if option not in {one.name for one in WRITE_OPTIONS}:
        said = answer(parse_batch_write_options, WRITE | {option: "x"})
        assert f"Unknown option {option!r}. It" in said
        assert "Did you mean" not in said


@pytest.mark.parametrize(
    ("parse", "options", "said"),
    [
        (parse_options, READ | {"kafka.bootstrap.servers": "x"}, "Its equivalent is path"),
        (parse_options, READ | {"groupIdPrefix": "x"}, "positions are in its checkpoint"),
        (parse_options, READ | {"topic": "x"}, "use subscribe, subscribePattern or assign"),
        (parse_options, READ | {"kafka.anything": "x"}, "without a broker"),
        (parse_batch_write_options, WRITE | {"startingOffsets": "x"}, "It is an option of a read."),
        (parse_batch_write_options, WRITE | {"kafka.acks": "all"}, "Its equivalent is flush."),
    ],
)
def test_an_answer_names_the_equivalent_or_the_reason(
    parse: Callable[[dict[str, str]], Any], options: dict[str, str], said: str
) -> None:
    assert said in answer(parse, options)


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "latest", "endingOffsets": "latest"},
        {"startingOffsets": "latest", "fromLog": "true"},
        {"endingOffsets": "earliest"},
    ],
)
def test_what_is_wrong_in_a_batch_and_in_a_stream_is_refused(options: dict[str, str]) -> None:
    for parse in (parse_batch_options, parse_stream_options):
        answer(parse, READ | options)
    said = answer(parse_options_of_any_read, READ | options)
    assert "In a stream: Option" in said
    assert "In a batch: Option" in said


def test_what_is_wrong_in_both_is_refused_at_load_and_what_is_right_for_one_is_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    wrong = {"subscribe": "orders", "startingOffsets": "latest", "fromLog": "true"}
    for load in (read, stream):
        said = error_of(lambda load=load: load(spark, tmp_path, **wrong))  # type: ignore[misc]
        assert "In a stream: Option" in said
        assert "In a batch: Option" in said
    assert "body" in read(spark, tmp_path, subscribe="orders", startingOffsets="latest").columns


@pytest.mark.parametrize("options", [{"startingOffsets": "latest"}, {"endingOffsets": "latest"}, {"fromLog": "true"}])
def test_what_is_right_for_one_of_them_is_not_refused_for_its_columns(options: dict[str, str]) -> None:
    assert "body" in DefaultSource({"path": "/s", "subscribe": "orders", **options}).schema().fieldNames()


def test_hints_about_times_help_under_timestamp_ntz(spark: SparkSession, tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store")
    store.append("orders", 0, [b"x"])
    before = spark.conf.get("spark.sql.timestampType")
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        frame = spark.sql("select 'x' body, timestamp '2026-01-31 12:00:00' bornTimestamp")
        said = error_of(lambda: append(frame, tmp_path / "copy"))
        assert "Column bornTimestamp is TIMESTAMP_NTZ; expected TIMESTAMP" in said
        cast = "cast(bornTimestamp as timestamp_ltz)"
        assert f"as {cast} makes of it" in said
        append(frame.selectExpr("body", f"{cast} bornTimestamp"), tmp_path / "copy")
        assert [one.born_timestamp for one in messages(tmp_path / "copy")] == [1_769_860_800_000]
        said = error_of(read(spark, store.path, "bornTimestamp timestamp", subscribe="orders").collect)
        assert "declares it as TIMESTAMP_NTZ. Write it as timestamp_ltz." in said
        assert read(spark, store.path, "bornTimestamp timestamp_ltz", subscribe="orders").count() == 1
    finally:
        spark.conf.set("spark.sql.timestampType", before or "TIMESTAMP_LTZ")
