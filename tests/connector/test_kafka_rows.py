"""``rowFormat=kafka`` through a real Spark: Kafka's schema, and rows that come back as they were written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructField, StructType

from commitlog_store import Message, MessageStore, StoreReader
from commitlog_store.format.message_rules import STORE_PROPERTIES
from pyspark_commitlog.errors import OptionError, SchemaError
from pyspark_commitlog.options.read import parse_options
from pyspark_commitlog.options.write import parse_batch_write_options
from pyspark_commitlog.source.kafka_rows import KAFKA_COLUMNS, NO_HEADERS
from pyspark_commitlog.source.schema import check_schema
from tests.connector.sink.sink_helpers import SMALL, append, stream_to
from tests.connector.sink.test_batch import error_of
from tests.connector.source.spark_helpers import read, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


GOOD = {"path": "/store", "subscribe": "orders"}
KAFKA = {"rowFormat": "kafka"}
# As Spark's KafkaRecordToRowConverter declares it.
KAFKAS_SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
)
HEADERS = "array(named_struct('key', 'a', 'value', X'31'), named_struct('key', concat('b', id), 'value', X'C3BC'))"


def rows_to_write(spark: SparkSession) -> DataFrame:
    return spark.range(40).selectExpr(
        "cast(concat('k', id % 5) as binary) key",
        "cast(id as string) value",
        f"if(id % 4 = 0, null, {HEADERS}) headers",
    )


def test_the_schema_is_kafkas(spark: SparkSession, golden_533: Path) -> None:
    frame = read(spark, golden_533, subscribe="orders", **KAFKA)
    assert frame.schema.simpleString() == f"{KAFKAS_SCHEMA}>"
    frame = read(spark, golden_533, subscribe="orders", includeHeaders="true", **KAFKA)
    assert frame.schema.simpleString() == f"{KAFKAS_SCHEMA},headers:array<struct<key:string,value:binary>>>"


def test_rows_are_those_of_the_other_format_under_kafkas_names(spark: SparkSession, golden_533: Path) -> None:
    kafkas = read(spark, golden_533, subscribePattern=".*", includeHeaders="true", **KAFKA)
    shown = kafkas.selectExpr(
        *("topic", "partition", "offset", "value", "cast(key as string) key", "timestamp", "timestampType"),
        "array_sort(transform(headers, h -> concat(h.key, '=', cast(h.value as string)))) headers",
    )
    hidden = ", ".join(f"'{name}'" for name in NO_HEADERS)
    plain = read(spark, golden_533, subscribePattern=".*", includeProperties="true").selectExpr(
        *("topic", "queueId", "queueOffset", "body", "keys", "storeTimestamp", "1"),
        f"map_entries(map_filter(properties, (k, v) -> k not in ({hidden}))) entries",
    )
    texts = "if(size(entries) = 0, null, array_sort(transform(entries, h -> concat(h.key, '=', h.value))))"
    plain = plain.selectExpr(*plain.columns[:-1], texts)
    expected, found = sorted(map(tuple, plain.collect())), sorted(map(tuple, shown.collect()))
    assert found == expected
    assert any(row[-1] for row in found)
    assert any(row[-1] is None for row in found)


def test_what_was_written_comes_back(spark: SparkSession, tmp_path: Path) -> None:
    frame = rows_to_write(spark)
    append(frame, tmp_path / "store", **KAFKA)
    found = read(spark, tmp_path / "store", subscribe="orders", includeHeaders="true", **KAFKA)
    columns = ("cast(key as string)", "cast(value as string)", "headers")
    written = {(str(row[0]), str(row[1]), repr(row[2])) for row in frame.selectExpr(*columns).collect()}
    assert {(row[0], row[1], repr(row[2])) for row in found.selectExpr(*columns).collect()} == written
    places = {(bytes(row.key), row.partition) for row in found.collect()}
    assert len(places) == 5, "a key has one partition"


def test_a_stream_copies_all_columns_of_kafka(spark: SparkSession, tmp_path: Path) -> None:
    """As a job does that writes what it read: the columns that only the source gives are ignored."""
    append(rows_to_write(spark), tmp_path / "store", queues="3", **KAFKA)
    frame = stream(
        spark, tmp_path / "store", subscribe="orders", startingOffsets="earliest", includeHeaders="true", **KAFKA
    )
    stream_to(frame, tmp_path / "copy", tmp_path / "checkpoint", **KAFKA)
    columns = ("key", "value", "partition", "offset", "headers")
    found = [
        read(spark, tmp_path / name, subscribe="orders", includeHeaders="true", **KAFKA).select(*columns).collect()
        for name in ("store", "copy")
    ]
    assert len(found[0]) == 40
    assert sorted(map(repr, found[0])) == sorted(map(repr, found[1]))


def test_columns_are_chosen_by_a_schema(spark: SparkSession, golden_533: Path) -> None:
    frame = read(spark, golden_533, "timestampType int", subscribe="orders", **KAFKA)
    assert {row.timestampType for row in frame.collect()} == {1}
    frame = read(spark, golden_533, "Offset bigint, key binary, partition int", subscribe="orders", **KAFKA)
    assert frame.columns == ["Offset", "key", "partition"]
    assert frame.count() == read(spark, golden_533, subscribe="orders").count()


def test_a_key_that_is_not_text_is_refused_with_its_row(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(3, numPartitions=1).selectExpr("if(id = 2, X'61FF', X'61') key", "'x' value")
    said = error_of(lambda: append(frame, tmp_path, **KAFKA))
    assert "row 2 of partition 0" in said
    assert "its column key" in said
    assert "UTF-8" in said


def test_a_header_that_is_given_twice_is_refused_with_its_row(spark: SparkSession, tmp_path: Path) -> None:
    one = "named_struct('key', 'a', 'value', X'31')"
    headers = f"if(id = 2, array({one}, {one}), array({one})) headers"
    frame = spark.range(3, numPartitions=1).selectExpr("'x' value", headers)
    said = error_of(lambda: append(frame, tmp_path, **KAFKA))
    assert "Message in row 2 of partition 0: its header 'a' is given twice" in said
    with StoreReader.open(tmp_path) as reader:
        assert reader.physical_bounds() == (0, 0)


def test_what_only_a_store_sets_is_no_header() -> None:
    assert set(NO_HEADERS) >= STORE_PROPERTIES


def test_a_message_of_python_is_read_too(spark: SparkSession, tmp_path: Path) -> None:
    options = parse_batch_write_options(SMALL | {"path": str(tmp_path / "store")})
    with MessageStore.open(options.path, options.store_config) as store:
        assert store.put_message(
            Message(queue_id=0, topic="orders", body=b"", keys=["a", "b"], tags="paid", properties={"shop": "berlin"})
        ).ok
    (row,) = read(spark, tmp_path / "store", subscribe="orders", includeHeaders="true", **KAFKA).collect()
    assert (bytes(row.key), bytes(row.value)) == (b"a b", b"")
    assert sorted((one.key, bytes(one.value)) for one in row.headers) == [("TAGS", b"paid"), ("shop", b"berlin")]


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"rowFormat": "avro"}, "rocketmq or kafka"),
        ({"includeHeaders": "true"}, "includeProperties, or add rowFormat=kafka"),
        ({"rowFormat": "kafka", "includeProperties": "true"}, "they have includeHeaders"),
        ({"rowFormat": "kafka", "includeMetadata": "true"}, "leave it out"),
    ],
)
def test_options_of_the_other_format_are_refused(options: dict[str, str], part: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_options(GOOD | options)
    assert part in str(caught.value)


def test_schemas_name_columns_of_their_format() -> None:
    offset = StructType([StructField("offset", KAFKA_COLUMNS["offset"].spark_type)])
    assert check_schema(offset, kafka_rows=True).columns == ("queueOffset",)
    with pytest.raises(SchemaError, match="It is a column of rowFormat=kafka"):
        check_schema(offset)
    with pytest.raises(SchemaError, match="Did you mean offset"):
        check_schema(StructType([StructField("offsets", KAFKA_COLUMNS["offset"].spark_type)]), kafka_rows=True)
    key = StructType([StructField("key", KAFKA_COLUMNS["key"].spark_type, nullable=False)])
    with pytest.raises(SchemaError, match="declare it without NOT NULL"):
        check_schema(key, kafka_rows=True)
