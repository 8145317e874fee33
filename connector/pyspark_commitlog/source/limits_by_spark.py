"""``CommitLogStreamReader``: the streaming read in PySpark 4.2 and newer, which give a batch's start and its limit."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_commitlog.options.read import SourceOptions
from pyspark_commitlog.short_errors import with_short_errors
from pyspark_commitlog.source.progress_report import ProgressReport
from pyspark_commitlog.source.schema import Projection
from pyspark_commitlog.source.stream_source import StreamSource


@with_short_errors
class CommitLogStreamReader(StreamSource, SupportsTriggerAvailableNow):
    """The streaming read with Spark's admission control."""

    def __init__(self, options: SourceOptions, projection: Projection) -> None:
        super().__init__(options, projection)
        # Where the batch ends that was planned last.
        self._end: dict[str, Any] | None = None
        # The last report, with the planner's looks and the end that it is of.
        self._report: tuple[int, dict[str, Any] | None, dict[str, Any]] | None = None

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
        if self._report is None or self._report[:2] != (planner.looks, self._end):
            oldest = {} if self._end is None else planner.oldest_waiting(self._end)
            ends = planner.report_latest_offset()
            report = ProgressReport.to_json(ends, path=self._options.path, run=self._run, oldest=oldest)
            self._report = planner.looks, self._end, report
        return self._report[2]

    def prepareForTriggerAvailableNow(self) -> None:
        # Spark calls this before all else, and under this trigger alone: so the topics are looked for now.
        self._open(ends=True).prepare_for_available_now()
