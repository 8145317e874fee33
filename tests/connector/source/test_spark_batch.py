"""Batch reads through a real Spark: RocketMQ's own answers, and the error texts that users see."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa import assert_df_equality

from commitlog_store import ALL_COLUMNS, DEFAULT_COLUMNS
from tests.connector.source.spark_helpers import ORDER, expected_frame, expected_rows, read, struct
from tests.support.store_builder import StoreBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Expected = dict[str, list[dict[str, Any]]]


def topics_of(expected: Expected) -> str:
    return ",".join(sorted({message["topic"] for message in expected["message"]}))


def error_of(action: Callable[[], object]) -> str:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


@pytest.mark.parametrize("version", ["533", "498"])
def test_every_field_of_every_message_equals_rocketmqs(
    spark: SparkSession, request: pytest.FixtureRequest, version: str
) -> None:
    store: Path = request.getfixturevalue(f"golden_{version}")
    expected: Expected = request.getfixturevalue(f"expected_{version}")
    frame = read(spark, store, struct(ALL_COLUMNS), subscribe=topics_of(expected), verifyCrc="true")
    assert_df_equality(frame.sort(*ORDER), expected_frame(spark, expected["message"], ALL_COLUMNS))


def test_a_read_without_schema_gives_the_default_columns(
    spark: SparkSession, golden_533: Path, expected_533: Expected
) -> None:
    frame = read(spark, golden_533, subscribe="orders")
    messages = [message for message in expected_533["message"] if message["topic"] == "orders"]
    assert frame.columns == list(DEFAULT_COLUMNS)
    assert_df_equality(frame.sort(*ORDER), expected_frame(spark, messages, DEFAULT_COLUMNS))


def test_a_timestamp_that_spark_cannot_hold_is_null(spark: SparkSession, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    for born in (2**63 - 1, -(2**63), 1_700_000_000_000):
        builder.append("orders", 0, [b"x"], born_timestamp=born)
    rows = read(spark, builder.path, subscribe="orders").sort("queueOffset").collect()
    assert [row.bornTimestamp is None for row in rows] == [True, True, False]
    assert [row.storeTimestamp is None for row in rows] == [False] * 3


def test_the_two_include_options_give_all_columns(spark: SparkSession, golden_533: Path) -> None:
    frame = read(spark, golden_533, subscribe="orders", includeProperties="true", includeMetadata="true")
    assert frame.columns == list(ALL_COLUMNS)
    assert frame.count() > 0


@pytest.mark.parametrize(
    "columns",
    [
        ["body"],
        ["queueOffset", "queueId", "topic"],
        ["reconsumeTimes", "keys", "storeTimestamp", "properties"],
        ["uniqKey", "storeHost", "msgId", "bornHost", "bodyCrc"],
        list(reversed(ALL_COLUMNS)),
    ],
)
def test_any_columns_are_read_in_any_order(
    spark: SparkSession, golden_533: Path, expected_533: Expected, columns: list[str]
) -> None:
    rows = read(spark, golden_533, struct(columns), subscribe=topics_of(expected_533), minPartitions="1").collect()
    expected = [tuple(row[name] for name in columns) for row in expected_rows(expected_533["message"])]
    assert [tuple(row) for row in rows] == expected


def test_a_schema_in_another_case_and_with_not_null_is_accepted(spark: SparkSession, golden_533: Path) -> None:
    frame = read(spark, golden_533, "QUEUEID int NOT NULL, Body binary NOT NULL, tags string", subscribe="orders")
    assert frame.columns == ["QUEUEID", "Body", "tags"]
    assert not frame.schema["Body"].nullable
    assert frame.where("queueId = 0").count() == 60


def test_a_range_of_offsets_is_read(spark: SparkSession, golden_533: Path) -> None:
    frame = read(
        spark,
        golden_533,
        "queueId int, queueOffset bigint",
        assign='{"orders":[0,1]}',
        startingOffsets='{"orders":{"0":57,"1":-2}}',
        endingOffsets='{"orders":{"0":-1,"1":2}}',
    )
    assert sorted(map(tuple, frame.collect())) == [(0, 57), (0, 58), (0, 59), (1, 0), (1, 1)]


def test_a_range_of_times_is_read(spark: SparkSession, tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store", now_ms=1_000_000)
    store.append("orders", [0, 1], [b"x"] * 100, step_ms=10)
    frame = read(
        spark,
        store.path,
        "storeTimestamp timestamp",
        subscribe="orders",
        startingTimestamp="1000200",
        endingTimestamp="1000300",
    )
    times = sorted(int(row[0].timestamp() * 1000) for row in frame.collect())
    assert times == list(range(1_000_200, 1_000_300, 10))


def test_a_pattern_leaves_system_topics_out(spark: SparkSession, golden_533: Path) -> None:
    frame = read(spark, golden_533, "topic string", subscribePattern="(orders|SCHEDULE.*|pack.*)")
    assert {row.topic for row in frame.distinct().collect()} == {"orders", "packed"}


def test_a_pattern_that_matches_nothing_is_an_empty_result(spark: SparkSession, golden_533: Path) -> None:
    assert read(spark, golden_533, subscribePattern="nothing.*").count() == 0


def test_one_hot_queue_uses_every_core(spark: SparkSession, tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store")
    store.append("hot", 0, [b"x" * 100] * 5000)
    frame = read(spark, store.path, "queueOffset bigint", subscribe="hot", maxBytesPerPartition="100k")
    assert frame.rdd.getNumPartitions() == 10
    assert [row[0] for row in frame.collect()] == list(range(5000))
    assert read(spark, store.path, "body binary", subscribe="hot", minPartitions="4").rdd.getNumPartitions() == 4


def test_many_small_queues_are_not_many_tasks(spark: SparkSession, tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store", queue_file_units=50)
    store.append("wide", range(200), [b"x"] * 400)
    frame = read(spark, store.path, "queueId int", subscribe="wide")
    assert frame.rdd.getNumPartitions() <= 34
    assert frame.count() == 400


def test_a_topic_of_a_store_without_messages_is_not_found(spark: SparkSession, tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store")
    assert "Topic 'orders' is not in the store" in error_of(read(spark, store.path, subscribe="orders").collect)


@pytest.mark.parametrize(
    ("schema", "options", "parts"),
    [
        (None, {}, ["Exactly one of the options subscribe"]),
        (None, {"subscribe": "orders", "failOnDatLoss": "x"}, ["OptionError", "Did you mean failOnDataLoss?"]),
        (None, {"subscribe": "orders", "minPartitions": "x"}, ["Option minPartitions is 'x'"]),
        (None, {"subscribe": "orders", "startingOffsets": "latest"}, ["startingOffsets is 'latest'"]),
        (None, {"subscribe": "nothing"}, ["TopicNotFound", "Topic 'nothing' is not in the store"]),
        (None, {"assign": '{"orders":[9]}'}, ["QueueNotFound", "no queue 9", "it has 0, 1, 2, 3"]),
        ("body string", {"subscribe": "orders"}, ["SchemaError", "Column body is BINARY"]),
        ("bodi binary", {"subscribe": "orders"}, ["SchemaError", "Did you mean body?"]),
        ("keys string NOT NULL", {"subscribe": "orders"}, ["SchemaError", "without NOT NULL"]),
    ],
)
def test_an_impossible_read_is_refused_in_one_sentence(
    spark: SparkSession, golden_533: Path, schema: str | None, options: dict[str, str], parts: list[str]
) -> None:
    message = error_of(lambda: read(spark, golden_533, schema, **options).collect())
    for part in parts:
        assert part in message


def test_a_path_without_a_store_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    assert "StoreNotFound" in error_of(read(spark, tmp_path / "none", subscribe="orders").collect)
    (tmp_path / "file").write_text("x")
    assert "NotAStore" in error_of(read(spark, tmp_path / "file", subscribe="orders").collect)


def test_offsets_that_retention_deleted_are_lost_data(spark: SparkSession, tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store", log_file_size=16 << 10)
    store.append("orders", 0, [b"x" * 1000] * 60)
    store.delete_log_files(2)
    wanted = {"subscribe": "orders", "startingOffsets": '{"orders":{"0":3}}'}
    message = error_of(read(spark, store.path, **wanted).collect)
    assert "DataLossError" in message
    assert "wanted offsets [3, 60), available are [28, 60)" in message
    rows = read(spark, store.path, "queueOffset bigint", **wanted, failOnDataLoss="false").collect()
    assert [row[0] for row in rows] == list(range(28, 60))


def test_damaged_records_are_skipped_when_asked_to(spark: SparkSession, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", log_file_size=16 << 10)
    places = builder.append("orders", [0, 1], [b"x" * 200] * 40)
    with open(builder.path / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(int(places[10]))
        file.write(b"junk")
    wanted = {"subscribe": "orders"}
    found = error_of(read(spark, builder.path, "queueOffset bigint", **wanted).count)
    assert "CorruptRecord" in found
    for more in ({}, {"fromLog": "true"}):
        frame = read(spark, builder.path, "queueId int, queueOffset bigint", **wanted, corruptRecordMode="skip", **more)
        rows = sorted((row[0], row[1]) for row in frame.collect())
        assert rows == [(queue, offset) for queue in (0, 1) for offset in range(20) if (queue, offset) != (0, 5)]


def test_a_damaged_body_fails_a_query_that_reads_bodies(
    spark: SparkSession, golden_533: Path, expected_533: Expected, tmp_path: Path
) -> None:
    store = Path(shutil.copytree(golden_533, tmp_path / "store"))
    message = next(one for one in expected_533["message"] if one["topic"] == "orders")
    log = sorted((store / "commitlog").iterdir())[message["physicalOffset"] // (256 << 10)]
    data = bytearray(log.read_bytes())
    data[message["physicalOffset"] % (256 << 10) + 88] ^= 1
    log.write_bytes(data)
    found = error_of(read(spark, store, "body binary", subscribe="orders").count)
    assert "CorruptRecord" in found
    assert str(log) in found
    assert "verifyCrc=false" in found
    # All rows, with the body as it is; or those that are whole; or, without the bodies, all.
    count = sum(one["topic"] == "orders" for one in expected_533["message"])
    assert read(spark, store, "body binary", subscribe="orders", verifyCrc="false").count() == count
    assert read(spark, store, "body binary", subscribe="orders", corruptRecordMode="skip").count() == count - 1
    assert read(spark, store, "keys string", subscribe="orders").count() == count
