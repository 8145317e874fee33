"""``rowFormat=kafka`` of the sink: which columns are accepted, what they become, and which rows are refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from commitlog_store.columnar.input import message_schema
from pyspark_commitlog.errors import SchemaError
from pyspark_commitlog.options.write import parse_batch_write_options
from pyspark_commitlog.sink.columns import SinkColumns
from pyspark_commitlog.sink.kafka_columns import sink_columns
from pyspark_commitlog.source.kafka_rows import HEADERS_TYPE, KAFKA_COLUMNS

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def columns_of(_topic: str | None = "orders", /, **types: Any) -> SinkColumns:
    schema = StructType([StructField(name, kind) for name, kind in types.items()])
    given = {"path": "/store", "rowFormat": "kafka"} | ({"topic": _topic} if _topic else {})
    return sink_columns(schema, parse_batch_write_options(given))


def test_all_columns_of_kafkas_source_are_accepted_again() -> None:
    columns = columns_of(None, **{name: one.spark_type for name, one in KAFKA_COLUMNS.items()})
    assert columns.names == ("keys", "shardingKey", "body", "topic", "queueId", "properties")


def test_the_option_topic_wins_over_the_column() -> None:
    assert columns_of("orders", value=StringType(), topic=StringType()).names == ("body",)


def test_names_are_compared_as_sql_does() -> None:
    assert columns_of(Value=BinaryType(), KEY=StringType()).names == ("body", "keys", "shardingKey")


@pytest.mark.parametrize(
    ("types", "part"),
    [
        ({"key": StringType()}, "column value is missing"),
        ({"value": IntegerType()}, "Column value is INT; expected BINARY or STRING"),
        ({"value": BinaryType(), "partition": LongType()}, "Column partition is BIGINT; expected INT"),
        ({"value": BinaryType(), "headers": MapType(StringType(), StringType())}, "expected ARRAY<STRUCT<key: STRING"),
        ({"value": BinaryType(), "headers": ArrayType(StringType())}, "expected ARRAY<STRUCT<key: STRING"),
        ({"value": BinaryType(), "keys": StringType()}, "Unknown column 'keys'. Did you mean key?"),
        ({"value": BinaryType(), "Value": BinaryType()}, "The column value is given twice"),
    ],
)
def test_other_columns_are_refused(types: dict[str, Any], part: str) -> None:
    with pytest.raises(SchemaError) as caught:
        columns_of(**types)
    assert part in str(caught.value)


def test_rows_without_a_topic_are_refused() -> None:
    with pytest.raises(SchemaError, match="The rows have no topic"):
        columns_of(None, value=BinaryType())


def test_without_the_option_columns_are_rocketmqs() -> None:
    given = parse_batch_write_options({"path": "/store", "topic": "orders"})
    schema = StructType([StructField("value", BinaryType()), StructField("timestamp", TimestampType())])
    with pytest.raises(SchemaError, match="Kafka's column of that name is bornTimestamp here"):
        sink_columns(schema, given)


def batch_of(headers: list[list[tuple[str | None, bytes | None]] | None]) -> pa.RecordBatch:
    rows = [None if one is None else [{"key": key, "value": value} for key, value in one] for one in headers]
    arrays = [pa.array([b"x"] * len(rows)), pa.array([b"k"] * len(rows)), pa.array(rows, HEADERS)]
    return pa.RecordBatch.from_arrays(arrays, names=["value", "key", "headers"])


@pytest.mark.parametrize("offset", [0, 1])
def test_headers_become_properties(offset: int) -> None:
    columns = columns_of(value=BinaryType(), key=BinaryType(), headers=HEADERS_TYPE)
    batch = batch_of([[("z", b"0")], [("a", b"1"), ("b", None)], None, [], [("a", b"2")]]).slice(offset)
    assert columns.fault(batch) is None
    renamed = columns.rename(batch)
    renamed.validate(full=True)
    assert renamed.schema.names == ["body", "keys", "shardingKey", "properties"]
    expected = [[("z", "0")], [("a", "1"), ("b", None)], [], [], [("a", "2")]]
    assert renamed.column("properties").to_pylist() == expected[offset:]
    assert renamed.column("keys").to_pylist() == ["k"] * (5 - offset)


def test_fields_of_headers_are_compared_as_sql_does() -> None:
    fields = [StructField("Key", StringType()), StructField("VALUE", BinaryType())]
    columns = columns_of(value=BinaryType(), headers=ArrayType(StructType(fields)))
    spelled = pa.list_(pa.struct([("Key", pa.string()), ("VALUE", pa.binary())]))
    headers = pa.array([[{"Key": "a", "VALUE": b"1"}]], spelled)
    batch = pa.RecordBatch.from_arrays([pa.array([b"x"]), headers], names=["value", "headers"])
    assert columns.fault(batch) is None
    assert columns.rename(batch).column("properties").to_pylist() == [[("a", "1")]]


@pytest.mark.parametrize("text", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("data", [pa.binary(), pa.large_binary()])
def test_spark_may_give_large_types(text: pa.DataType, data: pa.DataType) -> None:
    """As under spark.sql.execution.arrow.useLargeVarTypes."""
    columns = columns_of(value=BinaryType(), key=BinaryType(), headers=HEADERS_TYPE)
    headers = pa.array([[{"key": "a", "value": b"1"}]], pa.list_(pa.struct([("key", text), ("value", data)])))
    arrays = [pa.array([b"x"], data), pa.array([b"k"], data), headers]
    renamed = columns.rename(pa.RecordBatch.from_arrays(arrays, names=["value", "key", "headers"]))
    assert set(message_schema(renamed, topic="orders").spelling) == {"body", "keys", "shardingKey", "properties"}
    assert renamed.to_pylist() == [{"body": b"x", "keys": "k", "shardingKey": "k", "properties": [("a", "1")]}]


@pytest.mark.parametrize(
    ("headers", "row", "text"),
    [
        ([[("a", b"1")], [("a", b"1"), ("b", b"2"), ("a", b"3")]], 1, "its header 'a' is given twice"),
        ([None, [("a", b"1")], [(None, b"1")]], 2, "one of its headers has no key"),
        ([[("a", b"1")], [("a", b"1"), ("KEYS", b"1")]], 1, "its header 'KEYS' is given by the column key"),
        ([None, [("__SHARDINGKEY", b"1")]], 1, "its header '__SHARDINGKEY' is given by the column key"),
    ],
)
def test_headers_that_no_property_can_hold_are_refused(headers: list[Any], row: int, text: str) -> None:
    columns = columns_of(value=BinaryType(), key=BinaryType(), headers=HEADERS_TYPE)
    fault = columns.fault(batch_of(headers))
    assert fault is not None
    assert fault[0] == row
    assert text in fault[1]
