"""The sink under another name, ``commitlog_small_parts``, and with an option more: ``part``, the bytes of a part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from unittest import mock

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from commitlog_store.remote import uploads
from pyspark_commitlog import DefaultSource
from pyspark_commitlog.options.write import parse_stream_write_options
from pyspark_commitlog.sink.columns import check_sink_schema
from pyspark_commitlog.sink.commit import plan_write
from pyspark_commitlog.sink.task import StageTask
from pyspark_commitlog.sink.writers import CommitLogStreamWriter, refuse_overwrite

if TYPE_CHECKING:
    import pyarrow as pa


FORMAT = "commitlog_small_parts"


class SmallPartsSource(DefaultSource):
    def __init__(self, options: dict[str, str]) -> None:
        DataSource.__init__(self, {name: text for name, text in options.items() if name != "part"})
        self._part_size = int(options["part"])

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        refuse_overwrite(overwrite, streaming=True)
        options = parse_stream_write_options(self.options)
        return _SmallPartsWriter(self._part_size, plan_write(options, check_sink_schema(schema, topic=options.topic)))


class _SmallPartsWriter(CommitLogStreamWriter):
    def __init__(self, part_size: int, task: StageTask) -> None:
        super().__init__(task)
        self._part_size = part_size

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with mock.patch.object(uploads, "PART_SIZE", self._part_size):
            return super().write(iterator)
