"""Spark's Python source path at its fastest: one ready record batch, handed over again and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType


class CeilingSource(DataSource):
    """Options: ``path`` of a store to take one batch from, ``rows``, ``partitions``, ``batchRows``."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> StructType:
        raise NotImplementedError("give the schema of the source that is measured beside it")

    def reader(self, schema: StructType) -> DataSourceReader:
        return CeilingReader(dict(self.options), schema.names)


class CeilingReader(DataSourceReader):
    def __init__(self, options: dict[str, Any], columns: Sequence[str]) -> None:
        options = {name.lower(): value for name, value in options.items()}
        self.path = options["path"]
        self.rows = int(options["rows"])
        self.count = int(options["partitions"])
        self.batch_rows = int(options["batchrows"])
        self.columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(self.rows // self.count) for _ in range(self.count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from commitlog_store import StoreReader

        with StoreReader.open(self.path) as reader:
            batch = next(
                reader.read(
                    "orders",
                    0,
                    0,
                    self.batch_rows,
                    columns=self.columns,
                    max_batch_rows=self.batch_rows,
                    max_batch_bytes=1 << 30,
                )
            )
        left = int(partition.value)
        while left > 0:
            yield batch.slice(0, min(left, len(batch)))
            left -= len(batch)
