"""``StreamSource``: the streaming read as every Spark calls it, around a planner and ``ReadTask``.

What differs between versions is in its two classes: ``CommitLogStreamReader`` and ``PositionStreamReader``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_commitlog.errors import ConnectorError
from pyspark_commitlog.options.read import SourceOptions
from pyspark_commitlog.short_errors import with_short_errors
from pyspark_commitlog.source.group_commits import GroupCommits
from pyspark_commitlog.source.partitions import RangePartition
from pyspark_commitlog.source.schema import Projection
from pyspark_commitlog.source.stores_offset import planned_by_queue
from pyspark_commitlog.source.stream_planner import StreamPlanner
from pyspark_commitlog.source.task import ReadTask

if TYPE_CHECKING:
    import pyarrow as pa


@with_short_errors
class StreamSource(DataSourceStreamReader):
    """The streaming read. Spark makes one in a long-lived process on the driver, which plans every batch of a run, and
    another one that it only pickles to the executors for ``read``. So the store is opened on first use."""

    def __init__(self, options: SourceOptions, projection: Projection) -> None:
        self._options = options
        self._task = ReadTask(options, projection)
        self._planner: StreamPlanner | None = None
        self._group_commits: GroupCommits | None = None
        # Which source of a query this is, in reports of its tasks and of progress: two may have the same options. Spark
        # makes the readers of a query in the order of its sources, and so these are sorted.
        self._run = f"{time.time_ns():020}-{os.getpid()}"

    def initialOffset(self) -> dict[str, Any]:
        return self._open().initial_offset()

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
        """Commit the end of a batch that has ended for the consumer group of the options, if they name one."""
        group = self._options.commit_group
        if group is None:
            return
        if self._group_commits is None:
            self._group_commits = GroupCommits(self._options.path, group, remote=self._options.remote)
        self._group_commits.commit(end)

    def _open(self, *, ends: bool = False) -> StreamPlanner:
        if self._planner is None:
            self._options.warn_of_doubts()
            self._planner = StreamPlanner.open(self._options, ends=ends)
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

    def latestOffset(self, *_: object) -> dict[str, Any]:  # PySpark 4.2 gives the start and a limit
        raise self._error.again()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002
        raise self._error.again()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  # Spark's name
        raise self._error.again()
