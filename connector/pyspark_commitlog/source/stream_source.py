"""``CommitLogStreamReader``: the streaming read as Spark calls it, around a planner and ``ReadTask``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_commitlog.errors import ConnectorError
from pyspark_commitlog.options.read import SourceOptions
from pyspark_commitlog.short_errors import with_short_errors
from pyspark_commitlog.source.group_commits import GroupCommits
from pyspark_commitlog.source.partitions import RangePartition
from pyspark_commitlog.source.progress_report import ProgressReport
from pyspark_commitlog.source.schema import Projection
from pyspark_commitlog.source.several_stores_offset import planned_by_queue
from pyspark_commitlog.source.several_stores_planner import SeveralStoresPlanner
from pyspark_commitlog.source.stream_planner import StreamPlanner
from pyspark_commitlog.source.task import ReadTask

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CommitLogStreamReader", "RefusedStreamReader"]


@with_short_errors
class CommitLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming read. Spark makes one in a long-lived process on the driver, which plans every batch of a run, and
    another one that it only pickles to the executors for ``read``. So the store is opened on first use."""

    def __init__(self, options: SourceOptions, projection: Projection) -> None:
        self._options = options
        self._task = ReadTask.of(options, projection)
        self._planner: StreamPlanner | SeveralStoresPlanner | None = None
        self._group_commits: GroupCommits | None = None
        # Which source of a query this is, in reports of its tasks and of progress: two may have the same options. Spark
        # makes the readers of a query in the order of its sources, and so these are sorted.
        self._run = f"{time.time_ns():020}-{os.getpid()}"
        # Where the batch ends that was planned last.
        self._end: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        return self._open().initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark cannot express several limits, so one of them is reported; ``latestOffset`` obeys all."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        # Every batch up to ``start`` has ended. (Spark's own call ``commit`` waits for the next batch with messages.)
        self._commit_group(start)
        # Trigger.Once asks for everything, whatever the options say.
        self._end = self._open().latest_offset(start, limited=not isinstance(limit, ReadAllAvailable))
        return self._end

    def reportLatestOffset(self) -> dict[str, Any]:
        """For the listener: ``ProgressReport``."""
        planner = self._open()
        oldest = {} if self._end is None else planner.oldest_waiting(self._end)
        ends = planner.report_latest_offset()
        return ProgressReport.to_json(ends, path=self._options.path, run=self._run, oldest=oldest)

    def prepareForTriggerAvailableNow(self) -> None:
        # Spark calls this before all else, and under this trigger alone: so the topics are looked for now.
        self._open(ends=True).prepare_for_available_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        found = self._open().partitions(start, end)
        if not found and planned_by_queue(start, end):
            found = [RangePartition(())]  # all of it is lost: one task, for the report
        return [replace(one, run=self._run, number=number, count=len(found)) for number, one in enumerate(found)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._task.read(partition)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None

    def _commit_group(self, end: dict[str, Any]) -> None:
        group = self._options.commit_group
        if group is None:
            return
        if self._group_commits is None:
            self._group_commits = GroupCommits(self._options.path, group)
        self._group_commits.commit(end)

    def _open(self, *, ends: bool = False) -> StreamPlanner | SeveralStoresPlanner:
        if self._planner is None:
            self._options.warn_of_doubts()
            planner = SeveralStoresPlanner if self._options.stores else StreamPlanner
            self._planner = planner.open(self._options, ends=ends)
        return self._planner


@with_short_errors
class RefusedStreamReader(DataSourceStreamReader):
    """The reader of a stream whose options or columns are wrong: raises the error when Spark calls it.

    Spark shows an UnboundLocalError of its own in place of what is raised while a stream's reader is made: it stops the
    reader in any case (``python_streaming_source_runner.py``, ``main``).
    """

    def __init__(self, error: ConnectorError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:
        raise self._error.again()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002  # Spark's names
        raise self._error.again()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002
        raise self._error.again()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  # Spark's name
        raise self._error.again()
