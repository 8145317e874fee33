"""``PositionStreamReader``: the streaming read in PySpark 4.0 and 4.1: ``latestOffset()`` has neither start nor limit.

So the reader keeps the position. Spark calls it in this order; ``x`` is the last offset of the checkpoint::

    a new query              latestOffset()   initialOffset()   partitions(initial, end)   latestOffset() ...
    after a clean restart    partitions(x, x)   latestOffset()   partitions(x, end)   latestOffset() ...
    after a crash            partitions(x, x)   partitions(start, x)   latestOffset()   partitions(x, end) ...

``partitions(x, x)`` is ``setLatestSeenOffset``, and comes before all else: a reader that is asked without it has a new
query. With the triggers once and availableNow, ``latestOffset()`` is called once in a run at most, and Spark does not
say which trigger it is. So a run's first batch has all that waits, unless the run has repeated one before.

Source: Spark 4.0 ``PythonMicroBatchStream.scala``, ``MicroBatchExecution.scala``; a trace of 4.0.1 and 4.1.0 is in
docs/decisions/0029-spark-and-python-versions.md.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql.datasource import InputPartition

from pyspark_commitlog.errors import SparkVersionError
from pyspark_commitlog.options.read import SourceOptions
from pyspark_commitlog.short_errors import with_short_errors
from pyspark_commitlog.source.schema import Projection
from pyspark_commitlog.source.stream_source import StreamSource

_logger = logging.getLogger(__name__)

_WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


@with_short_errors
class PositionStreamReader(StreamSource):
    """The streaming read without Spark's admission control."""

    def __init__(self, options: SourceOptions, projection: Projection) -> None:
        super().__init__(options, projection)
        self._initial: dict[str, Any] | None = None
        # Where the next batch starts: the end of the last one that was planned, in this run or before.
        self._position: dict[str, Any] | None = None
        # The end of the last batch that Spark has run, or repeats.
        self._ran_to: dict[str, Any] | None = None
        # Whether the trigger is known to be neither once nor availableNow.
        self._limits_count = False

    def initialOffset(self) -> dict[str, Any]:
        """The same in all of a run: Spark asks for it after the end of the first batch is planned from it."""
        if self._initial is None:
            self._initial = self._open().initial_offset()
        return self._initial

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # the method of PySpark 4.0 and 4.1
        start = self.initialOffset() if self._position is None else self._position
        # Every batch that was run has ended.
        if self._ran_to is not None:
            self._commit_group(self._ran_to)
        self._position = self._open().latest_offset(start, limited=self._limits_count)
        if not self._limits_count and self._position != start:
            self._warn_of_limits()
        self._limits_count = True
        return self._position

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start != end:
            self._limits_count = True
        elif self._initial is not None:
            # The wrapper has asked for an end before Spark said where the query is.
            raise SparkVersionError(
                f"A query that continues cannot run with the setting {_WRAPPER}=true in Spark 4.0 and 4.1: Spark plans "
                "the end of its batch before it says where the query is. Set it to false, its default."
            )
        self._position = self._ran_to = end
        return super().partitions(start, end)

    def _warn_of_limits(self) -> None:
        options = self._options
        limits = {
            "maxOffsetsPerTrigger": options.max_offsets_per_trigger,
            "maxBytesPerTrigger": options.max_bytes_per_trigger,
        }
        if named := [name for name, limit in limits.items() if limit is not None]:
            _logger.warning(
                "The first batch of this run reads all messages that wait; %s applies from the second on. Spark 4.0 "
                "and 4.1 do not say whether the trigger is availableNow, for which one batch has to read them all.",
                " and ".join(named),
            )
