"""``CommitLogLagListener``: logs the lag of a query in each queue, what its batches read, and what they lost.

    from pyspark_commitlog.listener import CommitLogLagListener
    spark.streams.addListener(CommitLogLagListener())

``query_numbers`` has the numbers and where they come from, docs/source.md what each of them is.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_commitlog.options.subscription import QueueKey
from pyspark_commitlog.prometheus_metrics import PrometheusMetrics
from pyspark_commitlog.query_numbers import (
    BatchNumbers,
    Lag,
    batch_numbers,
    delivered_numbers,
    lag_by_queue,
    lag_of,
)
from pyspark_commitlog.source.progress_report import ProgressReport
from pyspark_commitlog.source.task_reports import Tally, close_reports, drop_reports, open_reports, read_reports
from pyspark_commitlog.spark_versions import HAS_READ_LIMITS

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

__all__ = ["BatchNumbers", "CommitLogLagListener", "Lag", "batch_numbers", "lag_by_queue"]

# One line names the queues with a lag, unless there are more.
_MOST_QUEUES_NAMED = 16


class CommitLogLagListener(StreamingQueryListener):
    """Logs the lag of each query that reads this source, and what each batch read and lost.

    One line at INFO has the total and the 16 queues with the largest lag. If more queues have a lag, each of them
    follows at DEBUG. Another line at INFO has the messages of a batch by topic, and lines at WARNING those that were
    lost.

    With ``registry``, the numbers are Prometheus metrics as well; it is one of the package prometheus-client, which
    ``pip install 'pyspark-commitlog[prometheus]'`` installs. Subclass the listener and override ``on_lag`` and
    ``on_batch`` to send the numbers elsewhere. ``clock`` gives the time in seconds since 1970.

    PySpark 4.0 and 4.1 do not report the lag: there ``on_lag`` is never called, and a warning says so.
    """

    def __init__(
        self,
        logger: logging.Logger | None = None,
        *,
        registry: CollectorRegistry | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._logger = logger or logging.getLogger(__name__)
        self._metrics = None if registry is None else PrometheusMetrics(registry)
        self._clock = clock
        # The running queries by the ids of their runs: the id that a query keeps when it is started again, its name.
        self._runs: dict[str, tuple[str, str]] = {}
        # The paths of a query's sources, by its id.
        self._paths: dict[str, list[str]] = {}
        if not HAS_READ_LIMITS:
            self._logger.warning(
                "Spark %s does not report the lag of a Python source; PySpark 4.2 does. The listener reports what "
                "batches read and lost. commitGroup and the command commitlog groups lag show the lag of a query.",
                pyspark.__version__,
            )

    def on_lag(self, query: str, batch_id: int, lag: Mapping[QueueKey, int]) -> None:
        """Called once per progress event and source with a ``Lag``; ``query`` is the query's name, or its id."""
        behind = {key: count for key, count in lag.items() if count}
        worst = sorted(behind.items(), key=lambda item: -item[1])
        seconds = max(lag.seconds.values(), default=0.0) if isinstance(lag, Lag) else 0.0
        self._logger.info(
            "Query %s, batch %d%s: %d messages behind in %d of %d queues%s%s",
            query,
            batch_id,
            _of_source(lag.source if isinstance(lag, Lag) else ""),
            sum(behind.values()),
            len(behind),
            len(lag),
            f", the oldest for {seconds:.1f} s" if seconds else "",
            "".join(f"; {topic}/{queue_id}: {count}" for (topic, queue_id), count in worst[:_MOST_QUEUES_NAMED]),
        )
        if len(worst) > _MOST_QUEUES_NAMED:
            for (topic, queue_id), count in worst:
                self._logger.debug("Query %s, batch %d: %s/%d: %d behind", query, batch_id, topic, queue_id, count)

    def on_batch(self, query: str, batch_id: int, numbers: BatchNumbers) -> None:
        """Called once per finished batch and source with what became of its messages; ``query`` is as in ``on_lag``."""
        batch = f"Query {query}, batch {batch_id}{_of_source(numbers.source)}"
        if numbers.read:
            self._logger.info("%s: %d messages read; %s", batch, sum(numbers.read.values()), _by_topic(numbers.read))
        if numbers.filtered:
            left_out = sum(numbers.filtered.values())
            self._logger.info("%s: %d messages did not match; %s", batch, left_out, _by_topic(numbers.filtered))
        if numbers.unaccounted:
            self._logger.info("%s: %d messages filtered, lost, or not asked for", batch, numbers.unaccounted)
        if numbers.damaged:
            damaged = sum(numbers.damaged.values())
            self._logger.warning("%s: %d damaged messages skipped; %s", batch, damaged, _by_topic(numbers.damaged))
        if numbers.skipped:
            self._logger.warning(
                "%s: %d offsets skipped, whose messages are lost; %s",
                batch,
                sum(stop - start for start, stop in numbers.skipped.values()),
                ", ".join(
                    f"{topic}/{queue_id}: [{start}, {stop})"
                    for (topic, queue_id), (start, stop) in numbers.skipped.items()
                ),
            )
        if numbers.lost:
            self._logger.warning(
                "%s: %d messages lost before they were read; %s",
                batch,
                sum(numbers.lost.values()),
                ", ".join(f"{topic}/{queue_id}: {count}" for (topic, queue_id), count in numbers.lost.items()),
            )

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        # Spark waits for this before it runs the first batch.
        query_id = str(event.id)
        if not self._is_running(query_id):
            close_reports(query_id)  # of a driver that was killed
        self._runs[str(event.runId)] = query_id, event.name or query_id
        open_reports(query_id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        query_id = str(progress.id)
        query = progress.name or query_id
        self._runs[str(progress.runId)] = query_id, query
        open_reports(query_id)  # of a query that ran before the listener was added
        drop_reports(query_id, progress.batchId)
        reports = [ProgressReport.from_text(source.latestOffset) for source in progress.sources]
        tallies = _by_source(progress, reports)
        labels = self._labels_of(query_id, reports, tallies)
        lags: list[Lag] = []
        for source, report, tally, label in zip(progress.sources, reports, tallies, labels, strict=True):
            numbers = delivered_numbers(source.startOffset, source.endOffset, source.numInputRows, tally, source=label)
            # Without new messages Spark reports the offsets of the last batch again, and no rows.
            if numbers is not None and source.startOffset != source.endOffset:
                if self._metrics is not None:
                    self._metrics.add_batch(query, numbers)
                self.on_batch(query, progress.batchId, numbers)
            lag = report and lag_of(source.endOffset, report, source=label, now_s=self._clock())
            if isinstance(lag, Lag):
                lags.append(lag)
                self.on_lag(query, progress.batchId, lag)
        if self._metrics is not None and lags:
            self._metrics.set_lag(query, lags)

    def _labels_of(
        self, query_id: str, reports: Sequence[ProgressReport | None], tallies: Sequence[Tally | None]
    ) -> list[str]:
        """The paths of the sources; of several with the same path, the second is ``path #2``."""
        known = [*self._paths.get(query_id, []), *[""] * len(reports)][: len(reports)]
        paths = [
            (report and report.path) or (tally and tally.path) or before
            for report, tally, before in zip(reports, tallies, known, strict=True)
        ]
        self._paths[query_id] = paths
        seen: Counter[str] = Counter()
        labels = []
        for path in paths:
            seen[path] += 1
            labels.append(path if seen[path] == 1 else f"{path} #{seen[path]}")
        return labels

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        query_id, name = self._runs.pop(str(event.runId), (str(event.id), ""))
        if not self._is_running(query_id):  # as it may, when it was started again at once
            self._paths.pop(query_id, None)
            close_reports(query_id)
        if self._metrics is not None and not any(name == running for _, running in self._runs.values()):
            self._metrics.forget_lag(name)

    def _is_running(self, query_id: str) -> bool:
        return any(query_id == running for running, _ in self._runs.values())


def _by_source(progress: StreamingQueryProgress, reports: Sequence[ProgressReport | None]) -> list[Tally | None]:
    """What the tasks have reported, by source. A batch that is run again after a restart comes without reports of its
    sources: their runs then have the order of those that read messages."""
    tallies = read_reports(str(progress.id), progress.batchId)
    if any(reports):
        return [tallies.get(report.run) if report else None for report in reports]
    plans = [batch_numbers(source.startOffset, source.endOffset) for source in progress.sources]
    reading = [index for index, plan in enumerate(plans) if plan is not None and plan.read]
    found: list[Tally | None] = [None] * len(plans)
    if len(reading) == len(tallies):
        for index, tally in zip(reading, tallies.values(), strict=True):
            found[index] = tally
    return found


def _of_source(source: str) -> str:
    return f", {source}" if source else ""


def _by_topic(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{topic}: {count}" for topic, count in numbers.items())
