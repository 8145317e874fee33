"""``CommitLogLagListener``: logs the lag of a query in each queue, what its batches read, and what they skipped.

Spark does not pass on the metrics of Python sources, but every progress event has the offsets: where the batch began
and ended, and the ends of the queues. All numbers are computed from these.

    from pyspark_commitlog.listener import CommitLogLagListener
    spark.streams.addListener(CommitLogLagListener())
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_commitlog.errors import OffsetFormatError
from pyspark_commitlog.options.subscription import QueueKey
from pyspark_commitlog.prometheus_metrics import PrometheusMetrics
from pyspark_commitlog.source.several_stores_offset import offset_by_queue

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

__all__ = ["BatchNumbers", "CommitLogLagListener", "batch_numbers", "lag_by_queue"]

# One line names the queues with a lag, unless there are more.
_MOST_QUEUES_NAMED = 16


def lag_by_queue(end_offset: str | None, latest_offset: str | None) -> dict[QueueKey, int] | None:
    """Messages not yet read, by topic and queue id, from the offsets of one source of a progress event.

    None if they are not this source's. In a queue that was not read yet, or whose unread head has expired, the messages
    that still exist count. The topics of named stores are ``store/topic``, as in all numbers of this module.
    """
    try:
        latest = offset_by_queue(json.loads(latest_offset or "null"))
        end = offset_by_queue(json.loads(end_offset)).offsets if end_offset else {}
    except (OffsetFormatError, ValueError):
        return None
    firsts = latest.batch_starts
    return {
        key: max(0, there - max(end.get(key, 0), firsts.get(key, 0))) for key, there in sorted(latest.offsets.items())
    }


class BatchNumbers(NamedTuple):
    """What a batch read of one source: ``read`` messages by topic, and the offsets that it ``skipped``, half-open.

    Skipped are the lost messages that planning found with failOnDataLoss=false: expired before they were read, or in a
    missing file. A queue that was deleted, or lost its end, skips no offsets.
    """

    read: Mapping[str, int]
    skipped: Mapping[QueueKey, tuple[int, int]]


def batch_numbers(start_offset: str | None, end_offset: str | None) -> BatchNumbers | None:
    """The numbers of a batch from the offsets of one source of a progress event; None if they are not this source's."""
    try:
        end = offset_by_queue(json.loads(end_offset or "null"))
    except (OffsetFormatError, ValueError):
        return None
    try:
        start = offset_by_queue(json.loads(start_offset or "null")).offsets
    except (OffsetFormatError, ValueError):
        start = {}  # before the first batch; its end says where it began
    read: dict[str, int] = {}
    skipped: dict[QueueKey, tuple[int, int]] = {}
    for key, stop in sorted(end.offsets.items()):
        was_at = start.get(key)
        begin = end.batch_starts.get(key, stop if was_at is None else was_at)
        if begin < stop:
            read[key[0]] = read.get(key[0], 0) + stop - begin
        if was_at is not None and was_at < begin:
            skipped[key] = was_at, begin
    return BatchNumbers(read, skipped)


class CommitLogLagListener(StreamingQueryListener):
    """Logs the lag of each query that reads this source, and what each batch read and skipped.

    One line at INFO has the total and the 16 queues with the largest lag. If more queues have a lag, each of them
    follows at DEBUG. Another line at INFO has the messages of a batch by topic, and one at WARNING the skipped offsets.

    With ``registry``, the numbers are Prometheus metrics as well; it is one of the package prometheus-client, which
    ``pip install 'pyspark-commitlog[prometheus]'`` installs. Subclass the listener and override ``on_lag`` and
    ``on_batch`` to send the numbers elsewhere.
    """

    def __init__(self, logger: logging.Logger | None = None, *, registry: CollectorRegistry | None = None) -> None:
        self._logger = logger or logging.getLogger(__name__)
        self._metrics = None if registry is None else PrometheusMetrics(registry)
        # The names of the running queries, by their ids.
        self._names: dict[str, str] = {}

    def on_lag(self, query: str, batch_id: int, lag: Mapping[QueueKey, int]) -> None:
        """Called once per progress event and source; ``query`` is the query's name, or its id if it has none."""
        behind = {key: count for key, count in lag.items() if count}
        worst = sorted(behind.items(), key=lambda item: -item[1])
        self._logger.info(
            "Query %s, batch %d: %d messages behind in %d of %d queues%s",
            query,
            batch_id,
            sum(behind.values()),
            len(behind),
            len(lag),
            "".join(f"; {topic}/{queue_id}: {count}" for (topic, queue_id), count in worst[:_MOST_QUEUES_NAMED]),
        )
        if len(worst) > _MOST_QUEUES_NAMED:
            for (topic, queue_id), count in worst:
                self._logger.debug("Query %s, batch %d: %s/%d: %d behind", query, batch_id, topic, queue_id, count)

    def on_batch(self, query: str, batch_id: int, numbers: BatchNumbers) -> None:
        """Called once per finished batch and source with what it read; ``query`` is as in ``on_lag``."""
        if numbers.read:
            topics = ", ".join(f"{topic}: {count}" for topic, count in numbers.read.items())
            self._logger.info(
                "Query %s, batch %d: %d messages read; %s", query, batch_id, sum(numbers.read.values()), topics
            )
        if numbers.skipped:
            self._logger.warning(
                "Query %s, batch %d: %d offsets skipped, whose messages are lost; %s",
                query,
                batch_id,
                sum(stop - start for start, stop in numbers.skipped.values()),
                ", ".join(
                    f"{topic}/{queue_id}: [{start}, {stop})"
                    for (topic, queue_id), (start, stop) in numbers.skipped.items()
                ),
            )

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        query = self._names[str(progress.id)] = progress.name or str(progress.id)
        lags: list[Mapping[QueueKey, int]] = []
        for source in progress.sources:
            numbers = batch_numbers(source.startOffset, source.endOffset)
            # Without new messages Spark reports the offsets of the last batch again, and no rows.
            if numbers is not None and source.startOffset != source.endOffset:
                if self._metrics is not None:
                    self._metrics.add_batch(query, numbers.read, numbers.skipped)
                self.on_batch(query, progress.batchId, numbers)
            lag = lag_by_queue(source.endOffset, source.latestOffset)
            if lag is not None:
                lags.append(lag)
                self.on_lag(query, progress.batchId, lag)
        if self._metrics is not None and lags:
            self._metrics.set_lag(query, {key: count for lag in lags for key, count in lag.items()})

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        name = self._names.pop(str(event.id), None)
        if name is not None and self._metrics is not None:
            self._metrics.forget_lag(name)
