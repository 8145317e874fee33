"""WaitingRequests: how many requests of clients wait for a thread, by a broker's names of the threads for them.

Source: RocketMQ ``broker/metrics/BrokerMetricsManager.java`` (``rocketmq_processor_watermark``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

from commitlog_store.serve.rocketmq.answering import InThread

_T = TypeVar("_T")


class WaitingRequests:
    """``threads_of`` is called by the event loop's thread, ``counts`` by any."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Adding to a set and discarding from it are atomic; a number that two threads change is not.
        self._waiting: dict[str, set[object]] = {}

    def threads_of(self, processor: str) -> InThread:
        """Does work in one of the loop's threads; until one begins with it, it counts for this processor."""
        waiting = self._waiting.setdefault(processor, set())

        def do(work: Callable[[], _T]) -> asyncio.Future[_T]:
            request = object()
            waiting.add(request)

            def begin() -> _T:
                waiting.discard(request)
                return work()

            try:
                future = self._loop.run_in_executor(None, begin)
            except BaseException:  # the executor is shut down: the server stops
                waiting.discard(request)
                raise
            # The pull of a client that disconnects is cancelled, perhaps before a thread has begun with it.
            future.add_done_callback(lambda _: waiting.discard(request))
            return future

        return do

    def counts(self) -> Mapping[str, int]:
        """By processor, 0 where none waits."""
        return {processor: len(waiting) for processor, waiting in self._waiting.items()}
