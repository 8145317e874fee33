"""Columns of the sink: which are accepted, and the errors for the others."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from commitlog_store.columnar.columns import MESSAGE_COLUMNS
from pyspark_commitlog.errors import SchemaError
from pyspark_commitlog.sink.columns import SINK_COLUMNS, check_sink_schema


def struct(ddl: str) -> StructType:
    """Columns as "name type; name type": Spark's own parser of such texts needs a JVM."""
    fields = [field.split(" ", 1) for field in ddl.split("; ")]
    return StructType.fromJson(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": _JSON.get(kind, kind), "nullable": True, "metadata": {}} for name, kind in fields
            ],
        }
    )


def _array(element: str) -> dict[str, object]:
    return {"type": "array", "elementType": element, "containsNull": True}


def _map(key: str, value: str) -> dict[str, object]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


_JSON: dict[str, object] = {
    "array<string>": _array("string"),
    "array<void>": _array("void"),
    "array<int>": _array("integer"),
    "map<string,string>": _map("string", "string"),
    "map<string,int>": _map("string", "integer"),
    "map<string,void>": _map("string", "void"),
    "map<void,void>": _map("void", "void"),
}


def refused(ddl: str, topic: str | None = "orders") -> str:
    with pytest.raises(SchemaError) as caught:
        check_sink_schema(struct(ddl), topic=topic)
    return str(caught.value)


def test_the_columns_of_the_sink_are_the_stores() -> None:
    assert SINK_COLUMNS == MESSAGE_COLUMNS


@pytest.mark.parametrize(
    ("ddl", "names"),
    [
        ("body binary", ("body",)),
        ("value string", ("body",)),
        ("body varchar(10)", ("body",)),
        ("key string; value binary", ("keys", "body")),
        ("KEYS array<string>; Body binary; QUEUEID integer", ("keys", "body", "queueId")),
        ("body binary; properties map<void,void>", ("body", "properties")),
        ("body binary; properties map<string,void>", ("body", "properties")),
        ("keys array<void>; body binary; tags void; queueId void", ("keys", "body", "tags", "queueId")),
        ("body binary; queueId byte; flag short; delayLevel long", ("body", "queueId", "flag", "delayLevel")),
        ("body binary; delayLevel string", ("body", "delayLevel")),
        ("body binary; delayLevel interval day to second", ("body", "delayLevel")),
        (
            "body binary; topic string; shardingKey string; properties map<string,string>; bornTimestamp timestamp",
            ("body", "topic", "shardingKey", "properties", "bornTimestamp"),
        ),
    ],
)
def test_these_schemas_can_be_written(ddl: str, names: tuple[str, ...]) -> None:
    assert check_sink_schema(struct(ddl), topic="orders").names == names


@pytest.mark.parametrize(
    ("ddl", "column", "found", "expected"),
    [
        ("body integer", "body", "INT", "BINARY or STRING"),
        ("body void", "body", "VOID", "BINARY or STRING"),
        ("body binary; queueId boolean", "queueId", "BOOLEAN", "INT (or TINYINT, SMALLINT, BIGINT)"),
        ("body binary; tags integer", "tags", "INT", "STRING"),
        ("body binary; key array<int>", "key", "ARRAY<INT>", "STRING or ARRAY<STRING>"),
        ("body binary; properties map<string,int>", "properties", "MAP<STRING,INT>", "MAP<STRING,STRING>"),
        (
            "body binary; delayLevel double",
            "delayLevel",
            "DOUBLE",
            "INT (or TINYINT, SMALLINT, BIGINT), STRING or INTERVAL DAY TO SECOND",
        ),
        ("body binary; bornTimestamp boolean", "bornTimestamp", "BOOLEAN", "TIMESTAMP"),
        ("body binary; tags boolean", "tags", "BOOLEAN", "STRING"),
    ],
)
def test_a_wrong_type_is_named_with_what_was_expected(ddl: str, column: str, found: str, expected: str) -> None:
    assert refused(ddl) == f"Column {column} is {found}; expected {expected}."


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("long", "timestamp_millis(BORNTIMESTAMP) makes of milliseconds since 1970"),
        ("timestamp_ntz", "cast(BORNTIMESTAMP as timestamp_ltz)"),
        ("date", "cast(BORNTIMESTAMP as timestamp_ltz)"),
        ("string", "cast(BORNTIMESTAMP as timestamp_ltz)"),
    ],
)
def test_a_time_of_another_type_is_refused_with_the_cast_to_a_timestamp(kind: str, told: str) -> None:
    """A plain cast of a number would take milliseconds for seconds."""
    said = refused(f"body binary; BORNTIMESTAMP {kind}")
    assert "expected TIMESTAMP, as " in said
    assert told in said


@pytest.mark.parametrize("column", ["queueId", "FLAG"])
def test_a_text_for_a_number_is_refused_with_the_cast_that_helps(column: str) -> None:
    assert refused(f"body binary; {column} string").endswith(f", as cast({column} as int) makes of it.")


@pytest.mark.parametrize("column", ["key", "KEYS", "tags", "topic", "shardingKey"])
def test_bytes_for_a_text_are_refused_with_the_cast_that_helps(column: str) -> None:
    """Kafka's keys are BINARY, in its sink and in what its source gives."""
    assert refused(f"body binary; {column} binary").endswith(f", as cast({column} as string) makes of UTF-8 bytes.")


@pytest.mark.parametrize(
    ("kafkas", "here"),
    [
        ("headers", "properties here, MAP<STRING,STRING>."),
        ("partition", "queueId here, INT"),
        ("Timestamp", "bornTimestamp here, TIMESTAMP."),
    ],
)
def test_kafkas_columns_are_refused_with_their_names_here(kafkas: str, here: str) -> None:
    said = refused(f"value binary; {kafkas} string")
    assert said.startswith(f"Unknown column '{kafkas}'. Kafka's column of that name is {here}")


def test_an_unknown_column_gets_the_nearest_known_one() -> None:
    said = refused("body binary; queue_id integer")
    assert said.startswith("Unknown column 'queue_id'. Did you mean queueId?")
    assert "shardingKey" in said


def test_columns_that_only_the_source_has_are_reported_together() -> None:
    said = refused("body binary; queueOffset long; storeTimestamp timestamp")
    assert "queueOffset, storeTimestamp" in said
    assert '.drop("queueOffset", "storeTimestamp")' in said


def test_a_column_beside_its_alias_is_refused() -> None:
    assert "columns body and value both give" in refused("body binary; value binary")
    assert "columns key and KEYS both give" in refused("body binary; key string; KEYS string")


def test_a_missing_body_or_topic_is_refused() -> None:
    assert "column body (or value) is missing" in refused("tags string")
    assert "no topic" in refused("body binary", topic=None)
    assert check_sink_schema(struct("body binary; topic string"), topic=None).names == ("body", "topic")


def test_batches_get_the_stores_column_names() -> None:
    columns = check_sink_schema(struct("Value binary; key string"), topic="orders")
    batch = pa.record_batch({"Value": [b"x"], "key": ["k"]})
    assert columns.rename(batch).to_pydict() == {"body": [b"x"], "keys": ["k"]}
