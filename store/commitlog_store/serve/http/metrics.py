"""``/metrics``: the numbers of all served stores, as Prometheus reads them; OpenMetrics where the request asks for it.

docs/decisions/0040-metrics.md has the reasons.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response

from commitlog_store.engine.stats import Histogram
from commitlog_store.errors import CommitLogError
from commitlog_store.serve.http.app import HttpRoute
from commitlog_store.serve.http.metrics_table import BASE_LABELS, METRICS, Kind
from commitlog_store.serve.http.samples import Samples
from commitlog_store.serve.http.served_stores import ServedStores
from commitlog_store.serve.http.store_samples import MOST_LAGS, MOST_TOPICS, StoreSamples
from commitlog_store.serve.rocketmq.broker_identity import DEFAULT_CLUSTER, DEFAULT_NAME

_LOG = logging.getLogger(__name__)
_NODE_TYPE = "broker"
_MADE: Mapping[Kind, Callable[..., Any]] = {
    Kind.COUNTER: CounterMetricFamily,
    Kind.GAUGE: GaugeMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
}
# Two Prometheus servers that ask at the same time get one answer.
_KEPT_S = 1.0


class StoreCollector:
    """A collector of prometheus-client that asks the stores at each scrape. One scrape at a time."""

    def __init__(self, stores: ServedStores, *, most_topics: int = MOST_TOPICS, most_lags: int = MOST_LAGS) -> None:
        self._stores = stores
        self._samples = {
            name: StoreSamples(
                stores.owned,
                archive=stores.archive,
                # They are the server's, not a store's: the first one has them.
                connections=stores.connections if name == stores.names[0] else None,
                most_topics=most_topics,
                most_lags=most_lags,
            )
            for name in stores.names
        }
        # Stores that could not be asked, each logged once.
        self._down: set[str] = set()

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry does not scrape to learn names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        families = _Families()
        for name in self._stores.names:
            node = name or self._stores.node or DEFAULT_NAME
            families.add([self._stores.cluster or DEFAULT_CLUSTER, _NODE_TYPE, node], self._asked(name))
        yield from families.filled()

    def _asked(self, name: str) -> Samples:
        """The numbers of one store, as far as it can be asked."""
        started = time.perf_counter()
        samples, asked = Samples([], []), self._samples[name]
        try:
            asked.read_owned(samples)
            with self._stores.lent(name) as reader:
                asked.read(samples, reader)
        except (CommitLogError, OSError) as error:
            if name not in self._down:
                self._down.add(name)
                _LOG.warning("The store%s cannot be asked for its metrics: %s", _named(name), error)
        else:
            if name in self._down:
                self._down.discard(name)
                _LOG.warning("The store%s can be asked for its metrics again", _named(name))
        samples.values.append(("commitlog_up", (), name not in self._down))
        samples.values.append(("commitlog_scrape_seconds", (), time.perf_counter() - started))
        return samples


class MetricsPage:
    """The text of the metrics, made once for requests that come at the same time."""

    def __init__(self, stores: ServedStores) -> None:
        self._stores = stores
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        self._registry.register(StoreCollector(stores))
        self._lock = threading.Lock()
        # By content type: when it was made, and the text.
        self._made: dict[str, tuple[float, bytes]] = {}

    def text(self, accept: str) -> tuple[bytes, str]:
        """The text and its content type, by the request's header ``Accept``."""
        encode, content_type = choose_encoder(accept)
        with self._lock:
            made = self._made.get(content_type)
            if made is None or time.monotonic() - made[0] > _KEPT_S:
                text = encode(self._registry)
                made = self._made[content_type] = time.monotonic(), text
        return made[1], content_type

    async def answer(self, request: Request) -> Response:
        text, content_type = await self._stores.in_thread(lambda: self.text(request.headers.get("accept", "")))
        return Response(text, headers={"content-type": content_type})


def metrics_routes(stores: ServedStores) -> Sequence[HttpRoute]:
    """``/metrics``. Where there is a token file, Prometheus sends a token with the role read."""
    return [HttpRoute(path="/metrics", answer=MetricsPage(stores).answer)]


class _Families:
    """prometheus-client's objects of one scrape, in the order of the table."""

    def __init__(self) -> None:
        self._families = {
            name: _MADE[kind](name, text, labels=[*BASE_LABELS, *labels])
            for name, kind, text, labels, _ in METRICS.values()
        }

    def add(self, base: list[str], samples: Samples) -> None:
        for name, labels, value in samples.values:
            self._families[name].add_metric([*base, *labels], float(value))
        for name, labels, histogram in samples.histograms:
            self._families[name].add_metric([*base, *labels], _cumulated(histogram), histogram.total)

    def filled(self) -> Iterator[Metric]:
        return (one for one in self._families.values() if one.samples)


def _cumulated(histogram: Histogram) -> Sequence[tuple[str, float]]:
    ends = [*(repr(float(end)) for end in histogram.upper_ends), "+Inf"]
    return list(zip(ends, map(float, accumulate(histogram.counts)), strict=True))


def _named(name: str) -> str:
    return f" {name!r}" if name else ""
