"""``CommitLogBatchReader``: the batch read, from ``startingOffsets`` to ``endingOffsets``, planned once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from commitlog import StoreReader
from pyspark_commitlog.options.read import SourceOptions
from pyspark_commitlog.short_errors import with_short_errors
from pyspark_commitlog.source.offset_rules import resolve_rule
from pyspark_commitlog.source.partitions import QueueRange, RangePartition, plan_partitions
from pyspark_commitlog.source.record_limit import limit_records
from pyspark_commitlog.source.replanning import retry_while_store_changes
from pyspark_commitlog.source.schema import Projection
from pyspark_commitlog.source.task import ReadTask

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CommitLogBatchReader"]

_logger = logging.getLogger(__name__)


@with_short_errors
class CommitLogBatchReader(DataSourceReader):
    """Made on the driver, pickled to the executors: holds settings only."""

    def __init__(self, options: SourceOptions, projection: Projection) -> None:
        self._options = options
        self._task = ReadTask.of(options, projection)

    def partitions(self) -> list[InputPartition]:
        """The ranges of offsets of all queues, cut by bytes. Named topics and queues must exist."""
        options = self._options
        with options.open_store() as reader:
            options.subscription.require_all(reader)
            return list(retry_while_store_changes(lambda: self._plan(reader), fail=options.fail_on_data_loss))

    def _plan(self, reader: StoreReader) -> list[RangePartition]:
        options = self._options
        queues = options.subscription.bounds(reader).values()
        if not queues:
            _logger.warning("No topic of %s matches; the result is empty.", options.path)
        starts = resolve_rule(reader, queues, options.start_rule, options, which="starting")
        ends = resolve_rule(reader, queues, options.end_rule, options, which="ending")
        partitions = plan_partitions(
            reader,
            [QueueRange(*key, starts[key], ends[key]) for key in sorted(starts)],
            max_bytes=options.max_bytes_per_partition,
            min_partitions=options.min_partitions,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        return limit_records(partitions, options.max_records_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._task.read(partition)
