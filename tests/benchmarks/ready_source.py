"""A stream source with 1,000 ready rows a trigger: what Spark's own trigger costs with one task in Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

_ROWS = 1000
_BODY_SIZE = 1024


class ReadySource(DataSource):
    """No options, one column."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        return "body binary"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ReadyReader()


class ReadyReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, Any]:
        return {"at": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"at": start["at"] + _ROWS}

    def reportLatestOffset(self) -> dict[str, Any]:
        return {"at": 1 << 60}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"body": pa.array([b"x" * _BODY_SIZE] * _ROWS)})
