"""``lookup``: a DataFrame, batch or stream, with the newest message of each row's key."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from commitlog_store import ALL_COLUMNS, DEFAULT_COLUMNS, StoreReader
from commitlog_store.errors import StoreNotFound, TopicNotFound
from pyspark_commitlog import lookup
from pyspark_commitlog.errors import OptionError, SchemaError
from pyspark_commitlog.source.lookup import LookupTask
from tests.connector.source.spark_helpers import Batches, stream
from tests.support.spark_versions import with_arrow_udf
from tests.support.store_builder import StoreBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = with_arrow_udf


def store(path: Path, keys: Sequence[str]) -> StoreBuilder:
    """A message for each key, with its number as the body; message numbers are queue offsets too."""
    builder = StoreBuilder(path, log_file_size=64 << 10)
    add(builder, keys, "20261121000000000")
    return builder


def add(builder: StoreBuilder, keys: Sequence[str], name: str) -> None:
    first = builder.next_offsets.get(("orders", 0), 0)
    bodies = [b"%d" % number for number in range(first, first + len(keys))]
    places = builder.append("orders", 0, bodies, keys=keys).tolist()
    entries = [(f"orders#{key}", place, builder.now_ms) for key, place in zip(keys, places, strict=True)]
    builder.write_index(name, entries, slots=len(keys))


@pytest.fixture
def orders(tmp_path: Path) -> StoreBuilder:
    return store(tmp_path / "orders", [f"k{number}" for number in range(100)] + ["k7"])


def test_each_row_gets_the_newest_message_of_its_key(spark: SparkSession, orders: StoreBuilder) -> None:
    rows: list[tuple[str | None, int]] = [("k7", 1), ("absent", 2), (None, 3), ("k99", 4), ("k7", 5), ("", 6)]
    frame = lookup(spark.createDataFrame(rows, "key string, n int"), orders.path, "orders", "key")
    assert frame.columns == ["key", "n", "message"]
    assert frame.schema["message"].dataType.fieldNames() == list(DEFAULT_COLUMNS)  # type: ignore[attr-defined]
    found = {row.n: (row.key, row.message and row.message.body) for row in frame.collect()}
    assert found == {
        1: ("k7", b"100"), 2: ("absent", None), 3: (None, None), 4: ("k99", b"99"), 5: ("k7", b"100"), 6: ("", None)
    }  # fmt: skip
    assert [row.n for row in frame.where("message is null").orderBy("n").collect()] == [2, 3, 6]


def test_a_prepared_message_is_found_as_rocketmq_finds_it(golden_533: Path) -> None:
    """It is in no queue: until 4.3, brokers stored half messages in their own topic."""
    task = LookupTask(path=str(golden_533), topic="clicks", columns=("physicalOffset", "sysFlag"), on_damage="raise")
    (found,) = task.run(iter([pa.array(["k2", "k84"])]))  # k84 was rolled back
    prepared, rolled_back = found.to_pylist()
    assert (prepared["physicalOffset"], prepared["sysFlag"] & 12) == (403, 4)
    assert rolled_back is None


def test_every_column_is_what_the_source_gives(
    spark: SparkSession, golden_533: Path, expected_533: dict[str, list[dict[str, Any]]]
) -> None:
    from pyspark.sql.functions import col

    source = spark.read.format("commitlog").option("subscribe", "orders").option("includeProperties", "true")
    messages = source.option("includeMetadata", "true").load(str(golden_533))
    frame = lookup(messages.select("*"), golden_533, "orders", "uniqKey", columns=ALL_COLUMNS, how="inner")
    rows = frame.collect()
    answers = [one for one in expected_533["message"] if one["topic"] == "orders" and "UNIQ_KEY" in one["properties"]]
    assert len(rows) == len(answers) > 100
    assert all(row.message.asDict() == {name: row[name] for name in ALL_COLUMNS} for row in rows)
    upper = lookup(messages, golden_533, "orders", col("uniqKey"), columns=["BODY", "queueoffset"])
    assert upper.schema["message"].dataType.fieldNames() == ["body", "queueOffset"]  # type: ignore[attr-defined]


def test_inner_leaves_out_rows_without_a_message(spark: SparkSession, orders: StoreBuilder) -> None:
    frame = spark.range(1000).selectExpr("concat('k', id) as key", "id", "map('a', array(id)) as more")
    frame = lookup(
        frame.repartition(3), orders.path, "orders", "key", columns=["tags"], message_column="m", how="inner"
    )
    assert sorted((row.id, row.more["a"], row.m.tags) for row in frame.collect()) == [
        (number, [number], "paid") for number in range(100)
    ]


def test_a_filter_on_the_message_looks_up_no_second_time(spark: SparkSession, orders: StoreBuilder) -> None:
    frame = spark.range(5).selectExpr("concat('k', id) as key")
    found = lookup(frame, orders.path, "orders", "key", message_column="the.message", how="inner")
    filtered = found.where("`the.message`.queueOffset > 2").select("`the.message`.body")
    plan = filtered._jdf.queryExecution().executedPlan().toString()
    assert plan.count("ArrowEvalPython") == 1
    assert sorted(row.body for row in filtered.collect()) == [b"3", b"4"]


@pytest.mark.parametrize(
    "settings",
    [
        {"spark.sql.execution.arrow.maxRecordsPerBatch": "7"},
        {"spark.sql.execution.arrow.useLargeVarTypes": "true"},
        {"spark.sql.session.timeZone": "Asia/Tokyo"},
    ],
)
def test_sparks_settings_of_arrow_make_no_difference(
    spark: SparkSession, orders: StoreBuilder, settings: dict[str, str]
) -> None:
    frame = spark.range(150).selectExpr("concat('k', id) as key", "timestamp_millis(id) as t")
    expected = {(row.key, row.t, row.message) for row in lookup(frame, orders.path, "orders", "key").collect()}
    before = {name: str(spark.conf.get(name)) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        assert {(row.key, row.t, row.message) for row in lookup(frame, orders.path, "orders", "key").collect()} == (
            expected
        )
    finally:
        for name, kept in before.items():
            spark.conf.set(name, kept)


def test_a_stream_finds_what_the_store_has_when_its_batch_runs(spark: SparkSession, tmp_path: Path) -> None:
    events = StoreBuilder(tmp_path / "events")
    events.append("events", 0, [b"k1", b"k2"])
    orders = store(tmp_path / "orders", ["k1"])
    batches = Batches(tmp_path / "checkpoint")
    source = stream(spark, events.path, subscribe="events", startingOffsets="earliest")
    keyed = source.selectExpr("cast(body as string) as key", "queueOffset")
    frame = lookup(keyed, orders.path, "orders", "key", columns=["body"])
    batches.run(frame)
    add(orders, ["k2", "k1"], "20261121000001000")
    events.append("events", 0, [b"k2", b"k1"])
    batches.run(frame)
    found = [(row.queueOffset, row.key, row.message and row.message.body) for row in batches.rows]
    assert sorted(found) == [(0, "k1", b"0"), (1, "k2", None), (2, "k2", b"1"), (3, "k1", b"2")]


def test_what_can_never_be_right_is_refused_before_a_job(spark: SparkSession, orders: StoreBuilder) -> None:
    frame = spark.range(3).selectExpr("id", "string(id) as key")
    refused: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (TopicNotFound, "Did you mean 'orders'", {"topic": "order"}),
        (StoreNotFound, "no-store", {"path": orders.path / "no-store"}),
        (OptionError, "expected the path of a RocketMQ store", {"path": "webhdfs://host/store"}),
        (SchemaError, "The key is BIGINT; .* Cast it", {"key_column": "id"}),
        (SchemaError, "Did you mean body", {"columns": ["bodies"]}),
        (SchemaError, "more than once", {"columns": ["body", "Body"]}),
        (SchemaError, "list of one or more names", {"columns": "body"}),
        (SchemaError, "has a column Key already", {"message_column": "Key"}),
        (OptionError, "expected left or inner", {"how": "outer"}),
        (OptionError, "expected raise or skip", {"on_damage": "ignore"}),
    ]
    for kind, text, given in refused:
        arguments: dict[str, Any] = {"path": orders.path, "topic": "orders", "key_column": "key", **given}
        with pytest.raises(kind, match=text):
            lookup(frame, **arguments)


def test_a_store_without_index_files_is_refused(spark: SparkSession, orders: StoreBuilder) -> None:
    shutil.rmtree(orders.path / "index")
    frame = spark.range(3).selectExpr("string(id) as key")
    with pytest.raises(OptionError, match="no index files"):
        lookup(frame, orders.path, "orders", "key")


def test_a_damaged_message_fails_the_job_or_gives_way(spark: SparkSession, orders: StoreBuilder) -> None:
    from pyspark.errors import PythonException

    with StoreReader.open(orders.path) as reader:
        place = reader.query("orders", "k7", limit=1)[0].physical_offset
    log = next((orders.path / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    data[place + 88] ^= 1
    log.write_bytes(data)
    frame = spark.createDataFrame([("k7",), ("k8",)], "key string")
    with pytest.raises(PythonException, match=r"CorruptRecord: BODYCRC"):
        lookup(frame, orders.path, "orders", "key").collect()
    skipped = lookup(frame, orders.path, "orders", "key", columns=["body"], on_damage="skip").collect()
    assert {(row.key, row.message.body) for row in skipped} == {("k7", b"7"), ("k8", b"8")}
    as_they_are = lookup(frame, orders.path, "orders", "key", columns=["body"], verify_crc=False).collect()
    with StoreReader.open(orders.path) as reader:
        (damaged,) = reader.query("orders", "k7", limit=1, verify_crc=False)
    assert damaged.physical_offset == place
    assert {(row.key, row.message.body) for row in as_they_are} == {("k7", damaged.body), ("k8", b"8")}
