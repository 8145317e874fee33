"""Schemas of the source: which are accepted, and the errors for the others."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from commitlog_store import ALL_COLUMNS, DEFAULT_COLUMNS
from pyspark_commitlog.errors import SchemaError
from pyspark_commitlog.options.read import parse_options
from pyspark_commitlog.source.schema import SPARK_TYPES, check_schema, default_schema

GOOD = {"path": "/store", "subscribe": "orders"}


def struct(*fields: StructField) -> StructType:
    return StructType(list(fields))


def test_every_column_has_the_spark_type_of_its_arrow_type() -> None:
    """Spark compares record batches with the declared schema exactly; one type apart and no query runs."""
    assert tuple(SPARK_TYPES) == ALL_COLUMNS
    schema = struct(*(StructField(name, data_type) for name, data_type in SPARK_TYPES.items()))
    assert check_schema(schema).arrow_schema().equals(to_arrow_schema(schema, timezone="UTC"))


def test_the_schema_is_the_default_columns_and_those_of_the_two_includes() -> None:
    assert default_schema(parse_options(GOOD)).names == list(DEFAULT_COLUMNS)
    with_properties = default_schema(parse_options(GOOD | {"includeProperties": "true"}))
    assert with_properties.names == [*DEFAULT_COLUMNS, "properties"]
    with_metadata = default_schema(parse_options(GOOD | {"includeMetadata": "true"}))
    assert with_metadata.names == [name for name in ALL_COLUMNS if name != "properties"]
    both = default_schema(parse_options(GOOD | {"includeMetadata": "true", "includeProperties": "true"}))
    assert both.names == list(ALL_COLUMNS)
    assert all(field.nullable for field in both)


def test_any_subset_of_columns_is_accepted_in_any_order() -> None:
    projection = check_schema(struct(StructField("flag", IntegerType()), StructField("body", BinaryType())))
    assert projection.columns == ("flag", "body")


def test_names_are_compared_as_sql_does_and_kept_as_written() -> None:
    projection = check_schema(struct(StructField("BODY", BinaryType()), StructField("queueid", IntegerType())))
    assert projection.columns == ("body", "queueId")
    assert projection.arrow_schema() == pa.schema([pa.field("BODY", pa.binary()), pa.field("queueid", pa.int32())])


def test_a_wrong_type_is_refused_with_the_right_one() -> None:
    with pytest.raises(SchemaError, match=r"Column body is BINARY; the schema declares it as STRING\."):
        check_schema(struct(StructField("body", StringType())))


def test_an_unknown_column_is_refused_with_the_nearest() -> None:
    with pytest.raises(SchemaError, match=r"Unknown column 'queue_id'\. Did you mean queueId\?"):
        check_schema(struct(StructField("queue_id", IntegerType())))


def test_not_null_is_accepted_where_it_holds() -> None:
    declared = check_schema(struct(StructField("body", BinaryType(), nullable=False)))
    assert declared.arrow_schema() == pa.schema([pa.field("body", pa.binary(), nullable=False)])
    with pytest.raises(SchemaError, match=r"Column tags is NULL .* without NOT NULL"):
        check_schema(struct(StructField("tags", StringType(), nullable=False)))


def test_an_empty_schema_is_refused() -> None:
    """Arrow loses the number of rows of a batch without columns: every count would be 0."""
    with pytest.raises(SchemaError, match="names no column"):
        check_schema(struct())


def test_a_column_twice_is_refused() -> None:
    with pytest.raises(SchemaError, match="body more than once"):
        check_schema(struct(StructField("body", BinaryType()), StructField("Body", BinaryType())))
