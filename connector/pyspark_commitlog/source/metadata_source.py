"""``metadata=...``: a batch read of a table about the store, such as its queues, instead of its messages."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

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

from commitlog_store import METADATA_SCHEMAS, StoreReader, store_metadata
from pyspark_commitlog.errors import SchemaError
from pyspark_commitlog.options.metadata import MetadataOptions
from pyspark_commitlog.options.remote import RemoteOptions
from pyspark_commitlog.short_errors import with_short_errors
from pyspark_commitlog.source.open_stores import REFUSED, UNAVAILABLE
from pyspark_commitlog.source.schema import STORE_COLUMN, known_column

_SPARK_TYPE_OF: dict[pa.DataType, DataType] = {
    pa.string(): StringType(),
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
}


_logger = logging.getLogger(__name__)


def metadata_schema(table: str, *, of_stores: bool = False) -> StructType:
    """The columns of a table about the store; about several, the name of the store comes first."""
    store = [StructField(STORE_COLUMN, StringType())] if of_stores else []
    return StructType(store + [StructField(one.name, _SPARK_TYPE_OF[one.type]) for one in METADATA_SCHEMAS[table]])


@dataclass(frozen=True)
class _StorePartition(InputPartition):
    """One store, read by one task."""

    store: str | None
    path: str
    commit_log: str | None
    remote: RemoteOptions


@with_short_errors
class MetadataReader(DataSourceReader):
    """Reads the table in one task for each store. ``SchemaError`` for a schema with other columns than the table's."""

    def __init__(self, options: MetadataOptions, schema: StructType) -> None:
        self._options = options
        of_stores = None not in options.stores
        types = {field.name: field.dataType for field in metadata_schema(options.table, of_stores=of_stores).fields}
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
        found: list[InputPartition] = []
        for store, path in self._options.stores.items():
            log = self._options.commit_logs.get(store)
            if self._options.skips_missing_stores:
                try:
                    StoreReader.open(path, store_path_commit_log=log, **self._options.remote.of(path)).close()
                except REFUSED:
                    raise
                except UNAVAILABLE as error:
                    _logger.warning("Store %r is unavailable and is skipped. %s", store, error)
                    continue
            found.append(_StorePartition(store, path, log, self._options.remote))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, _StorePartition):  # Spark makes one of its own when a plan has none
            return
        table = _table(partition, self._options.table)
        if partition.store is not None:
            name = pa.repeat(pa.scalar(partition.store, pa.string()), table.num_rows)
            table = table.add_column(0, STORE_COLUMN, name)
        yield from table.select(list(self._columns.values())).rename_columns(list(self._columns)).to_batches()


def _table(partition: _StorePartition, table: str) -> pa.Table:
    beside_a_path = partition.remote.of(partition.path)
    if not beside_a_path:
        return store_metadata(partition.path, table, store_path_commit_log=partition.commit_log)
    with StoreReader.open(partition.path, store_path_commit_log=partition.commit_log, **beside_a_path) as reader:
        return store_metadata(reader, table)
