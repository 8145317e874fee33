"""Schema of the source: the columns as Spark types, and the check of a user's schema.

Spark has no column pruning for Python sources; to read fewer columns, name fewer in ``.schema(...)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from commitlog import ALL_COLUMNS, DEFAULT_COLUMNS, column_type
from commitlog.columnar.columns import COLUMN_TYPES, PROPERTIES_COLUMN
from pyspark_commitlog.errors import SchemaError
from pyspark_commitlog.options.read import SourceOptions
from pyspark_commitlog.options.values import did_you_mean

__all__ = ["SPARK_TYPES", "Projection", "check_schema", "default_schema"]

_SPARK_TYPE_OF: Mapping[pa.DataType, DataType] = {
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
    pa.map_(pa.string(), pa.string()): MapType(StringType(), StringType(), True),
}

SPARK_TYPES: Mapping[str, DataType] = MappingProxyType(
    {name: _SPARK_TYPE_OF[arrow_type] for name, arrow_type in COLUMN_TYPES.items()}
)

# A message without these properties has NULL there, so they cannot be promised to be NOT NULL.
_MAY_BE_NULL = frozenset({"tags", "keys", "uniqKey"})
_BY_LOWER_NAME = {name.lower(): name for name in ALL_COLUMNS}


@dataclass(frozen=True, kw_only=True)
class Projection:
    """The columns to read (``columns``, the store's names), and the schema to give Spark, as the user declared it."""

    columns: tuple[str, ...]
    schema: StructType

    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema that Spark compares with a task's first record batch."""
        fields = zip(self.columns, self.schema.fields, strict=True)
        return pa.schema([pa.field(field.name, column_type(name), field.nullable) for name, field in fields])


def default_schema(options: SourceOptions) -> StructType:
    """The columns of a query without a user's schema."""
    names = [
        name
        for name in ALL_COLUMNS
        if name in DEFAULT_COLUMNS
        or (options.include_properties if name == PROPERTIES_COLUMN else options.include_metadata)
    ]
    return StructType([StructField(name, SPARK_TYPES[name], nullable=True) for name in names])


def check_schema(schema: StructType) -> Projection:
    """Check a schema: any subset of the columns in any order, each with its own type. ``SchemaError`` for all else.

    Names are compared without regard to case, as Spark's SQL does; the user's spelling is kept.
    """
    if not schema.fields:
        raise SchemaError(
            f"The schema names no column. The columns are: {', '.join(ALL_COLUMNS)}. To count messages, the cheapest "
            f"is queueOffset."
        )
    columns: list[str] = []
    for field in schema.fields:
        name = _known_column(field.name)
        if name in columns:
            raise SchemaError(f"The schema names the column {name} more than once.", column=name)
        if field.dataType != SPARK_TYPES[name]:
            raise SchemaError(
                f"Column {field.name} is {_sql(SPARK_TYPES[name])}; the schema declares it as {_sql(field.dataType)}.",
                column=name,
            )
        if not field.nullable and name in _MAY_BE_NULL:
            raise SchemaError(
                f"Column {field.name} is NULL for messages that do not have the property; declare it without NOT NULL.",
                column=name,
            )
        columns.append(name)
    return Projection(columns=tuple(columns), schema=schema)


def _known_column(name: str) -> str:
    known = _BY_LOWER_NAME.get(name.lower())
    if known is None:
        hint = did_you_mean(name, _BY_LOWER_NAME)
        raise SchemaError(f"Unknown column {name!r}.{hint} The columns are: {', '.join(ALL_COLUMNS)}.", column=name)
    return known


def _sql(data_type: DataType) -> str:
    return data_type.simpleString().upper()
