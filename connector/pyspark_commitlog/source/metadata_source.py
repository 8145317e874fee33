"""``metadata=...``: a batch read of a table about the store, such as its queues, instead of its messages."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from commitlog import METADATA_SCHEMAS, store_metadata
from pyspark_commitlog.errors import SchemaError
from pyspark_commitlog.options.metadata import MetadataOptions
from pyspark_commitlog.short_errors import with_short_errors
from pyspark_commitlog.source.schema import known_column

__all__ = ["MetadataReader", "metadata_schema"]

_SPARK_TYPE_OF: dict[pa.DataType, DataType] = {
    pa.string(): StringType(),
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
}


def metadata_schema(table: str) -> StructType:
    """The columns of a table about the store."""
    return StructType([StructField(one.name, _SPARK_TYPE_OF[one.type]) for one in METADATA_SCHEMAS[table]])


@with_short_errors
class MetadataReader(DataSourceReader):
    """Reads the table in one task. ``SchemaError`` for a schema with other columns than the table's."""

    def __init__(self, options: MetadataOptions, schema: StructType) -> None:
        self._options = options
        types = {field.name: field.dataType for field in metadata_schema(options.table).fields}
        self._columns: dict[str, str] = {}
        for field in schema.fields:
            name = known_column(field.name, types)
            if field.dataType != types[name] or not field.nullable or field.name in self._columns:
                expected = types[name].simpleString().upper()
                raise SchemaError(
                    f"Column {field.name} of {options.table} is {expected}, may be NULL, and is named once.",
                    column=name,
                )
            self._columns[field.name] = name

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  # Spark's name
        table = store_metadata(self._options.path, self._options.table).select(list(self._columns.values()))
        yield from table.rename_columns(list(self._columns)).to_batches()
