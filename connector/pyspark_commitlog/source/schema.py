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
    TimestampNTZType,
    TimestampType,
)

from commitlog_store import ALL_COLUMNS, DEFAULT_COLUMNS, column_type
from commitlog_store.columnar.columns import COLUMN_TYPES, PROPERTIES_COLUMN
from pyspark_commitlog.errors import SchemaError
from pyspark_commitlog.options.read import SourceOptions
from pyspark_commitlog.options.values import did_you_mean
from pyspark_commitlog.source.kafka_rows import HEADERS_COLUMN, KAFKA_COLUMNS

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

STORE_COLUMN = "store"
_TYPES_OF_SOURCE: Mapping[str, DataType] = MappingProxyType({**SPARK_TYPES, STORE_COLUMN: StringType()})

# A message without these properties has NULL there, so they cannot be promised to be NOT NULL.
_MAY_BE_NULL = frozenset({"tags", "keys", "uniqKey"})
_KAFKA_TYPES = {name: one.spark_type for name, one in KAFKA_COLUMNS.items()}
_KAFKAS_MAY_BE_NULL = frozenset(name for name, one in KAFKA_COLUMNS.items() if one.may_be_null)


@dataclass(frozen=True, kw_only=True)
class Projection:
    """The rows of a read: ``names`` are their columns, in the order of the schema, which the user declared.

    ``columns`` are the columns of messages to read for them. The column ``store`` is the store's name, or NULL.
    """

    columns: tuple[str, ...]
    names: tuple[str, ...]
    schema: StructType

    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema that Spark compares with a task's first record batch."""
        fields = zip(self.names, self.schema.fields, strict=True)
        return pa.schema([pa.field(field.name, self._type_of(name), field.nullable) for name, field in fields])

    def to_spark(self, batch: pa.RecordBatch, declared: pa.Schema, *, store: str | None = None) -> pa.RecordBatch:
        """The rows for Spark, of a batch that begins with ``columns``; ``declared`` is ``arrow_schema()``.

        They have the user's spelling and nullability, which Spark compares exactly. ``store`` is the name of the store.
        """
        read = dict(zip(self.columns, batch.columns, strict=False))
        if STORE_COLUMN in self.names:
            read[STORE_COLUMN] = pa.repeat(pa.scalar(store, pa.string()), batch.num_rows)
        arrays = [self._values_of(name, read, batch.num_rows) for name in self.names]
        return pa.RecordBatch.from_arrays(arrays, schema=declared)

    def _type_of(self, name: str) -> pa.DataType:
        return pa.string() if name == STORE_COLUMN else column_type(name)

    def _values_of(self, name: str, read: Mapping[str, pa.Array], rows: int) -> pa.Array:  # noqa: ARG002 - Kafka's
        return read[name]


class KafkaProjection(Projection):
    """The rows of ``rowFormat=kafka``, whose columns are of ``KAFKA_COLUMNS``."""

    def _type_of(self, name: str) -> pa.DataType:
        return KAFKA_COLUMNS[name].arrow_type

    def _values_of(self, name: str, read: Mapping[str, pa.Array], rows: int) -> pa.Array:
        one = KAFKA_COLUMNS[name]
        return one.convert(read.get(one.store_column or ""), rows)


def default_schema(options: SourceOptions) -> StructType:
    """The columns of a query without a user's schema."""
    if options.kafka_rows:
        kafkas = [name for name in KAFKA_COLUMNS if name != HEADERS_COLUMN or options.include_headers]
        return StructType([StructField(name, KAFKA_COLUMNS[name].spark_type, nullable=True) for name in kafkas])
    names = [
        name
        for name in ALL_COLUMNS
        if name in DEFAULT_COLUMNS
        or (options.include_properties if name == PROPERTIES_COLUMN else options.include_metadata)
    ]
    if options.stores:
        names = [STORE_COLUMN, *names]
    return StructType([StructField(name, _TYPES_OF_SOURCE[name], nullable=True) for name in names])


def check_schema(schema: StructType, *, kafka_rows: bool = False) -> Projection:
    """Check a schema: any subset of the columns in any order, each with its own type. ``SchemaError`` for all else.

    Names are compared without regard to case, as Spark's SQL does; the user's spelling is kept. The columns are those
    of Kafka with ``kafka_rows``.
    """
    types = _KAFKA_TYPES if kafka_rows else _TYPES_OF_SOURCE
    if not schema.fields:
        raise SchemaError(
            f"The schema names no column. The columns are: {', '.join(types)}. To count messages, the cheapest "
            f"is {'offset' if kafka_rows else 'queueOffset'}."
        )
    columns: list[str] = []
    for field in schema.fields:
        name = known_column(field.name, types)
        if name in columns:
            raise SchemaError(f"The schema names the column {name} more than once.", column=name)
        if field.dataType != types[name]:
            # A schema of "timestamp" means this one under spark.sql.timestampType=TIMESTAMP_NTZ.
            hint = " Write it as timestamp_ltz." if isinstance(field.dataType, TimestampNTZType) else ""
            raise SchemaError(
                f"Column {field.name} is {_sql(types[name])}; the schema declares it as {_sql(field.dataType)}.{hint}",
                column=name,
            )
        if not field.nullable and name == STORE_COLUMN:
            raise SchemaError(
                f"Column {field.name} is NULL where path names no store; declare it without NOT NULL.", column=name
            )
        if not field.nullable and name in (_KAFKAS_MAY_BE_NULL if kafka_rows else _MAY_BE_NULL):
            raise SchemaError(
                f"Column {field.name} is NULL for messages that do not have the property; declare it without NOT NULL.",
                column=name,
            )
        columns.append(name)
    read = [KAFKA_COLUMNS[name].store_column for name in columns] if kafka_rows else columns
    of_messages = dict.fromkeys(name for name in read if name is not None and name != STORE_COLUMN)
    kind = KafkaProjection if kafka_rows else Projection
    # Without any column, a batch would not say how many rows it has.
    return kind(columns=tuple(of_messages) or ("queueOffset",), names=tuple(columns), schema=schema)


def known_column(name: str, types: Mapping[str, DataType]) -> str:
    """The column of that name, without regard to case. ``SchemaError`` with the nearest name."""
    by_lower_name = {known.lower(): known for known in types}
    found = by_lower_name.get(name.lower())
    if found is None:
        hint = did_you_mean(name, by_lower_name)
        if types is not _KAFKA_TYPES and name in KAFKA_COLUMNS:
            hint = " It is a column of rowFormat=kafka."
        raise SchemaError(f"Unknown column {name!r}.{hint} The columns are: {', '.join(types)}.", column=name)
    return found


def _sql(data_type: DataType) -> str:
    return data_type.simpleString().upper()
