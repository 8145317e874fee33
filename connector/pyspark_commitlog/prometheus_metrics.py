"""Prometheus metrics of streaming queries: lag, messages read, offsets skipped. Needs the package prometheus-client.

=====================================  =======  ====================  ==========================================
metric                                 kind     labels                meaning
=====================================  =======  ====================  ==========================================
``commitlog_lag_messages``             gauge    query, topic, queue   messages in the store that are not read yet
``commitlog_read_messages_total``      counter  query, topic          messages of finished batches
``commitlog_skipped_offsets_total``    counter  query, topic, queue   lost messages, with failOnDataLoss=false
=====================================  =======  ====================  ==========================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_commitlog.options.subscription import QueueKey

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["PrometheusMetrics"]


class PrometheusMetrics:
    """The metrics of all queries of one listener."""

    def __init__(self, registry: CollectorRegistry) -> None:
        from prometheus_client import Counter, Gauge

        by_queue = ("query", "topic", "queue")
        self._lag = Gauge("commitlog_lag_messages", "Messages not read yet.", by_queue, registry=registry)
        self._read = Counter("commitlog_read_messages", "Messages read.", ("query", "topic"), registry=registry)
        self._skipped = Counter("commitlog_skipped_offsets", "Offsets of lost messages.", by_queue, registry=registry)
        self._queues: dict[str, set[QueueKey]] = {}

    def set_lag(self, query: str, lag: Mapping[QueueKey, int]) -> None:
        """The lag of all queues of a query; queues that are not among them (any more) have none."""
        self._remove_lag(query, self._queues.get(query, set()) - lag.keys())
        for (topic, queue_id), count in lag.items():
            self._lag.labels(query, topic, queue_id).set(count)
        self._queues[query] = set(lag)

    def add_batch(self, query: str, read: Mapping[str, int], skipped: Mapping[QueueKey, tuple[int, int]]) -> None:
        for topic, count in read.items():
            self._read.labels(query, topic).inc(count)
        for (topic, queue_id), (start, stop) in skipped.items():
            self._skipped.labels(query, topic, queue_id).inc(stop - start)

    def forget_lag(self, query: str) -> None:
        """A query that has ended has no lag any more; its counters stay."""
        self._remove_lag(query, self._queues.pop(query, set()))

    def _remove_lag(self, query: str, queues: set[QueueKey]) -> None:
        for topic, queue_id in queues:
            self._lag.remove(query, topic, queue_id)
