"""Prometheus metrics of streaming queries: lag, and what became of messages. Needs the package prometheus-client.

========================================  =======  ============================  ======================================
metric                                    kind     labels                        meaning
========================================  =======  ============================  ======================================
``commitlog_lag_messages``                gauge    query, source, topic, queue   messages in the store, not read yet
``commitlog_lag_seconds``                 gauge    query, source, topic, queue   how long the oldest of them has waited
``commitlog_read_messages_total``         counter  query, source, topic          messages delivered to the query
``commitlog_filtered_messages_total``     counter  query, source, topic          did not match tags, filter, keys
``commitlog_damaged_messages_total``      counter  query, source, topic          with corruptRecordMode=skip
``commitlog_skipped_offsets_total``       counter  query, source, topic, queue   lost, found by planning
``commitlog_lost_messages_total``         counter  query, source, topic, queue   lost between planning and reading
``commitlog_unaccounted_messages_total``  counter  query, source                 planned, not read, cause not known
========================================  =======  ============================  ======================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark_commitlog.query_numbers import BatchNumbers, Lag

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Gauge


# Source, topic and queue of a gauge.
_Place = tuple[str, str, int]


class PrometheusMetrics:
    """The metrics of all queries of one listener. Counters stay when a query ends, and go on when it starts again."""

    def __init__(self, registry: CollectorRegistry) -> None:
        from prometheus_client import Counter, Gauge

        by_source = ("query", "source")
        by_topic = (*by_source, "topic")
        by_queue = (*by_topic, "queue")

        def counter(name: str, text: str, labels: Sequence[str]) -> Counter:
            return Counter(f"commitlog_{name}", text, labels, registry=registry)

        messages = Gauge("commitlog_lag_messages", "Messages not read yet.", by_queue, registry=registry)
        seconds = Gauge("commitlog_lag_seconds", "Age of the oldest message not read.", by_queue, registry=registry)
        self._lag_messages = _QueueGauge(messages)
        self._lag_seconds = _QueueGauge(seconds)
        self._read = counter("read_messages", "Messages delivered to the query.", by_topic)
        self._filtered = counter("filtered_messages", "Messages that did not match.", by_topic)
        self._damaged = counter("damaged_messages", "Damaged messages that were skipped.", by_topic)
        self._skipped = counter("skipped_offsets", "Offsets of messages that planning found lost.", by_queue)
        self._lost = counter("lost_messages", "Messages lost between planning and reading.", by_queue)
        self._unaccounted = counter("unaccounted_messages", "Messages planned and not read.", by_source)

    def set_lag(self, query: str, lags: Sequence[Lag]) -> None:
        """The lag of all sources of a query; queues that are not among them (any more) have none."""
        self._lag_messages.set(query, {(lag.source, *key): count for lag in lags for key, count in lag.items()})
        self._lag_seconds.set(query, {(lag.source, *key): age for lag in lags for key, age in lag.seconds.items()})

    def add_batch(self, query: str, numbers: BatchNumbers) -> None:
        source = numbers.source
        for counter, by_topic in (
            (self._read, numbers.read),
            (self._filtered, numbers.filtered),
            (self._damaged, numbers.damaged),
        ):
            for topic, count in by_topic.items():
                counter.labels(query, source, topic).inc(count)
        for (topic, queue_id), (start, stop) in numbers.skipped.items():
            self._skipped.labels(query, source, topic, queue_id).inc(stop - start)
        for (topic, queue_id), count in numbers.lost.items():
            self._lost.labels(query, source, topic, queue_id).inc(count)
        if numbers.unaccounted:
            self._unaccounted.labels(query, source).inc(numbers.unaccounted)

    def forget_lag(self, query: str) -> None:
        """A query that has ended has no lag any more; its counters stay."""
        self._lag_messages.set(query, {})
        self._lag_seconds.set(query, {})


class _QueueGauge:
    """A gauge of queues, which has those of a query's last report and no others."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._places: dict[str, set[_Place]] = {}

    def set(self, query: str, values: dict[_Place, float] | dict[_Place, int]) -> None:
        for place in self._places.pop(query, set()) - values.keys():
            self._gauge.remove(query, *place)
        for place, value in values.items():
            self._gauge.labels(query, *place).set(value)
        if values:
            self._places[query] = set(values)
