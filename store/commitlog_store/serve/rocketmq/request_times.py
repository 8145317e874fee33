"""How long requests of RocketMQ's clients took: all of them by their codes, and those that create topics and groups.

Source: RocketMQ ``remoting/metrics/RemotingMetricsManager.java``, ``remoting/netty/NettyRemotingAbstract.java``
(``writeResponse``), ``broker/metrics/BrokerMetricsManager.java`` (``registerMetricsView``),
``broker/processor/AdminBrokerProcessor.java`` (``updateAndCreateTopic``, ``updateAndCreateSubscriptionGroup``).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Literal, TypeAlias

from commitlog_store.engine.stats import CountedValues, Histogram
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.paths import is_system_topic
from commitlog_store.serve.connection_counts import PROTOCOL_TYPE
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode

# RocketMQ's, in milliseconds.
REQUEST_BUCKETS_MS: tuple[float, ...] = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
CREATION_BUCKETS_MS: tuple[float, ...] = (10, 100, 1_000, 3_000, 5_000)
_SUCCESS, _FAILURE = "success", "failure"
# Clients may send any number as a code, and answers of clients are handed on: those without a name share one series.
_OTHER_CODE, _OTHER = -1, "(other)"
_REQUEST_CODES, _RESPONSE_CODES = frozenset(RequestCode), frozenset(ResponseCode)
_MS = 1000

Result: TypeAlias = Literal["success", "oneway", "write_channel_failed"]


class RequestLatencies:
    """``answered`` is called by the event loop's thread, ``by_labels`` by any."""

    def __init__(self) -> None:
        # By request code, response code, whether it waited for messages, and result.
        self._times: dict[tuple[int, int, bool, Result], CountedValues] = {}

    def answered(self, request: RemotingCommand, code: int, result: Result, seconds: float) -> None:
        """Count a request that got an answer of this code, so long after it was received."""
        times = self._times.get((request.code, code, request.is_suspended, result))
        if times is None:
            known = request.code if request.code in _REQUEST_CODES else _OTHER_CODE
            answered = code if code in _RESPONSE_CODES else _OTHER_CODE
            key = known, answered, request.is_suspended, result
            times = self._times.setdefault(key, CountedValues(REQUEST_BUCKETS_MS))
        times.add(seconds * _MS)

    def by_labels(self) -> Mapping[tuple[str, ...], Histogram]:
        """By protocol type, request code, response code, long polling, and result: milliseconds."""
        return {
            (PROTOCOL_TYPE, _name(RequestCode, code), _name(ResponseCode, answer), _text(is_suspended), result): (
                times.snapshot()
            )
            for (code, answer, is_suspended, result), times in list(self._times.items())
        }


class CreationTimes:
    """Times of requests that create or change a topic or a consumer group. Any number of threads."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._topics: dict[tuple[str, ...], CountedValues] = {}
        self._groups: dict[tuple[str, ...], CountedValues] = {}

    def of_topic(self, topic: str) -> contextlib.AbstractContextManager[None]:
        """Count what happens inside; an error counts as a failure."""
        return self._timed(self._topics, _text(is_system_topic(topic)))

    def of_group(self) -> contextlib.AbstractContextManager[None]:
        """As ``of_topic``."""
        return self._timed(self._groups)

    @contextlib.contextmanager
    def _timed(self, times: dict[tuple[str, ...], CountedValues], *labels: str) -> Iterator[None]:
        begun, status = self._clock(), _FAILURE
        try:
            yield
            status = _SUCCESS
        finally:
            took_ms = (self._clock() - begun) * _MS
            with self._lock:
                times.setdefault((status, *labels), CountedValues(CREATION_BUCKETS_MS)).add(took_ms)

    def topics(self) -> Mapping[tuple[str, ...], Histogram]:
        """By status, and whether the topic is RocketMQ's own: milliseconds."""
        return self._snapshot(self._topics)

    def groups(self) -> Mapping[tuple[str, ...], Histogram]:
        """By status: milliseconds."""
        return self._snapshot(self._groups)

    def _snapshot(self, times: Mapping[tuple[str, ...], CountedValues]) -> Mapping[tuple[str, ...], Histogram]:
        with self._lock:
            return {labels: one.snapshot() for labels, one in times.items()}


def _name(codes: type[IntEnum], code: int) -> str:
    return _OTHER if code == _OTHER_CODE else codes(code).name.lower()


def _text(value: bool) -> str:
    return "true" if value else "false"
