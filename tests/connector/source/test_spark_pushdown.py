"""Spark's filter pushdown into Python sources, which loses rows: why the source has no ``pushFilters``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition, LessThan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class HundredRows(DataSource):
    """The numbers from 0 to 99, fewer where a query asks for fewer."""

    @classmethod
    def name(cls) -> str:
        return "hundred_rows"

    def schema(self) -> str:
        return "n int"

    def reader(self, schema: StructType) -> DataSourceReader:
        return HundredRowsReader()


class HundredRowsReader(DataSourceReader):
    def __init__(self) -> None:
        self._stop = 100

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        self._stop = min([self._stop, *(one.value for one in filters if isinstance(one, LessThan))])
        return filters

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self._stop)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return ((number,) for number in range(partition.value))


def test_a_pushed_condition_stays_for_later_queries(spark: SparkSession) -> None:
    """When this fails, Spark keeps queries apart, and docs/decisions/0014-filters.md can be looked at again."""
    spark.dataSource.register(HundredRows)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("hundred_rows").load()
        assert frame.count() == 100
        assert frame.where("n < 10").count() == 10
        assert frame.count() == 10, "it should be 100"
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
