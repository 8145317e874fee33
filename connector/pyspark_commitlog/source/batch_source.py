"""``CommitLogBatchReader``: the batch read, from ``startingOffsets`` to ``endingOffsets``, planned once."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from commitlog_store import StoreReader
from pyspark_commitlog.loss import lost_end_warnings, naming_store
from pyspark_commitlog.options.read import SourceOptions, rule_option
from pyspark_commitlog.options.subscription import QueueKey
from pyspark_commitlog.options.values import LATEST, OffsetRule
from pyspark_commitlog.short_errors import with_short_errors
from pyspark_commitlog.source.missing_topics import check_topics
from pyspark_commitlog.source.offset_rules import resolve_rule
from pyspark_commitlog.source.open_stores import OpenStores, share_partitions
from pyspark_commitlog.source.partitions import RangePartition
from pyspark_commitlog.source.schema import Projection
from pyspark_commitlog.source.store_planner import StorePlanner
from pyspark_commitlog.source.task import ReadTask
from pyspark_commitlog.source.units_of_ranges import QueueRange

if TYPE_CHECKING:
    import pyarrow as pa


_logger = logging.getLogger(__name__)


@with_short_errors
class CommitLogBatchReader(DataSourceReader):
    """Made on the driver, pickled to the executors: holds settings only."""

    def __init__(self, options: SourceOptions, projection: Projection) -> None:
        self._options = options
        self._task = ReadTask(options, projection)

    def partitions(self) -> list[InputPartition]:
        """The ranges of offsets of all queues, cut by bytes. failOnMissingTopic counts."""
        options = self._options
        options.warn_of_doubts()
        stores = OpenStores(options, time.monotonic)
        try:
            readers = stores.look()
            if not readers:
                stores.require(min(options.stores), "None of the stores of path is there.")
            check_topics(options, readers, ends=True)
            return list(self._plan(readers))
        finally:
            stores.close()

    def _plan(self, readers: Mapping[str, StoreReader]) -> Iterator[RangePartition]:
        """The partitions of each store after the other's."""
        shares = dict.fromkeys(readers, self._options.min_partitions)
        if len(readers) > 1 and self._options.min_partitions is not None:
            wanted: dict[str, list[QueueRange]] = {}
            for name, reader in readers.items():
                with naming_store(name):
                    wanted[name], _ = reader.consistently(partial(self._ranges, reader, name), one_moment=False)
            shares = share_partitions(wanted, self._options.min_partitions)
        for name, reader in readers.items():
            with naming_store(name):
                plan = partial(self._plan_store, reader, name, shares[name])
                planned, warnings = reader.consistently(plan, one_moment=False)
            for warning in warnings:
                _logger.warning("%s", warning)
            yield from (replace(partition, store=name or None) for partition in planned)

    def _plan_store(
        self, reader: StoreReader, name: str, min_partitions: int | None
    ) -> tuple[list[RangePartition], list[str]]:
        """The partitions of a store, and what to warn of once they stand: a plan may be made several times."""
        planner = StorePlanner(reader, self._options.of_store(name))
        ranges, warnings = self._ranges(reader, name)
        return planner.partitions(ranges, min_partitions=min_partitions), warnings

    def _ranges(self, reader: StoreReader, name: str) -> tuple[list[QueueRange], list[str]]:
        options = self._options.of_store(name)
        queues = options.subscription.bounds(reader).values()
        warnings = [] if queues else [f"No topic of {options.path} matches; the result is empty."]
        if options.end_rule == OffsetRule(default=LATEST):
            warnings += lost_end_warnings(reader, fail=options.fail_on_data_loss)
        starts = resolve_rule(reader, queues, options.start_rule, options, which="starting", warn=warnings.append)
        ends = resolve_rule(reader, queues, options.end_rule, options, which="ending")
        ranges = [QueueRange(*key, starts[key], max(starts[key], ends[key])) for key in sorted(starts)]
        return ranges, warnings + _late_starts(starts, ends, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._task.read(partition)


def _late_starts(starts: Mapping[QueueKey, int], ends: Mapping[QueueKey, int], options: SourceOptions) -> list[str]:
    """A warning of queues without a message between the options' limits: a time at one end, say, and not at the other.

    Empty without such queues.
    """
    late = [key for key in sorted(starts) if starts[key] > ends[key]]
    if not late:
        return []
    (topic, queue_id), start, end = late[0], starts[late[0]], ends[late[0]]
    names = f"{rule_option('starting', options.start_rule)} and {rule_option('ending', options.end_rule)}"
    some = f"{len(late)} of {len(starts)} queues start after their end, and nothing is read of them"
    of_store = f"Store {options.store!r}: " if options.store else ""
    return [f"{of_store}Options {names}: {some}; queue {queue_id} of topic {topic!r} would go from {start} to {end}."]
