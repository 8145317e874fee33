"""FlushConsumeQueueService: periodic flushes of queues, index and checkpoint.

Source: RocketMQ ``store/DefaultMessageStore.java`` (``FlushConsumeQueueService``).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from commitlog_store.config import MessageStoreConfig
from commitlog_store.queue.consume_queue_store import ConsumeQueueStore

__all__ = ["FlushConsumeQueueService"]

_MS = 1000.0


class FlushConsumeQueueService:
    """Flushes queues with enough dirty pages; after the thorough interval everything, by ``checkpoint``."""

    def __init__(
        self,
        queues: ConsumeQueueStore,
        config: MessageStoreConfig,
        checkpoint: Callable[[], None],
        note_flushed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queues = queues
        self._least_pages = config.flush_consume_queue_least_pages
        self._interval = config.flush_interval_consume_queue / _MS
        self._thorough = config.flush_consume_queue_thorough_interval / _MS
        self._checkpoint = checkpoint
        self._note_flushed = note_flushed
        self._clock = clock
        self._flushed_at = clock()

    def run_once(self) -> float:
        now = self._clock()
        if now - self._flushed_at >= self._thorough:
            self._checkpoint()
            self._flushed_at = now
        else:
            self._queues.flush(self._least_pages)
            self._note_flushed()
        return self._interval
