"""``CommitLogBatchReader``: the batch read, from ``startingOffsets`` to ``endingOffsets``, planned once."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from commitlog_store import StoreReader
from pyspark_commitlog.loss import naming_store, report_lost_ends
from pyspark_commitlog.options.read import SourceOptions
from pyspark_commitlog.options.values import LATEST, OffsetRule
from pyspark_commitlog.short_errors import with_short_errors
from pyspark_commitlog.source.missing_topics import check_topics, check_topics_of_stores
from pyspark_commitlog.source.offset_rules import resolve_rule
from pyspark_commitlog.source.open_stores import OpenStores
from pyspark_commitlog.source.partitions import QueueRange, RangePartition, plan_partitions
from pyspark_commitlog.source.record_limit import limit_records
from pyspark_commitlog.source.replanning import plan_again
from pyspark_commitlog.source.schema import Projection
from pyspark_commitlog.source.store_shares import share_partitions
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
        """The ranges of offsets of all queues, cut by bytes. failOnMissingTopic counts."""
        options = self._options
        options.warn_of_doubts()
        if options.stores:
            return list(self._partitions_of_stores())
        with options.open_store() as reader:
            check_topics(options, reader, ends=True)
            return list(self._plan(reader, options))

    def _partitions_of_stores(self) -> Iterator[RangePartition]:
        """Those of each store after the other's. failOnMissingTopic is about what none of the stores has."""
        options = self._options
        stores = OpenStores(options, time.monotonic)
        try:
            readers = stores.look()
            if not readers:
                stores.require(min(options.stores), "None of the stores of path is there.")
            check_topics_of_stores(options, readers, ends=True)
            wanted: dict[str, list[QueueRange]] = {}
            for name, reader in readers.items():
                with naming_store(name):
                    wanted[name] = plan_again(reader, partial(self._ranges, reader, options.of_store(name)))
            shares = share_partitions(wanted, options.min_partitions)
            for name, reader in readers.items():
                with naming_store(name):
                    planned = self._plan(reader, replace(options.of_store(name), min_partitions=shares[name]))
                yield from (replace(partition, store=name) for partition in planned)
        finally:
            stores.close()

    def _plan(self, reader: StoreReader, options: SourceOptions) -> list[RangePartition]:
        if options.end_rule == OffsetRule(default=LATEST):
            report_lost_ends(reader, fail=options.fail_on_data_loss)

        def plan() -> list[RangePartition]:
            partitions = plan_partitions(
                reader,
                self._ranges(reader, options),
                max_bytes=options.max_bytes_per_partition,
                min_partitions=options.min_partitions,
                fail_on_data_loss=options.fail_on_data_loss,
            )
            return limit_records(partitions, options.max_records_per_partition)

        return plan_again(reader, plan)

    def _ranges(self, reader: StoreReader, options: SourceOptions) -> list[QueueRange]:
        queues = options.subscription.bounds(reader).values()
        if not queues:
            _logger.warning("No topic of %s matches; the result is empty.", options.path)
        starts = resolve_rule(reader, queues, options.start_rule, options, which="starting")
        ends = resolve_rule(reader, queues, options.end_rule, options, which="ending")
        return [QueueRange(*key, starts[key], ends[key]) for key in sorted(starts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._task.read(partition)
