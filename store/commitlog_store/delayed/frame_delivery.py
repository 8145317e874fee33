"""FrameDelivery: delivers waiting messages as one frame of the log, and fewer at a time where the disk has no space."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from commitlog_store.batch_id import BatchId
from commitlog_store.columnar.delivery import Deliveries, Undeliverable, WaitingRecords, deliver
from commitlog_store.delayed.waiting_records import DeliveryTopics
from commitlog_store.engine.store_engine import StoreEngine
from commitlog_store.errors import DiskFull
from commitlog_store.format.arrays import Int64Array


class FrameDelivery:
    """Makes the copies of messages that are due, and appends them. For one thread."""

    def __init__(
        self, engine: StoreEngine, frame_bytes: int, count: Callable[[Deliveries], None] = lambda _: None
    ) -> None:
        """``frame_bytes``: the most that is delivered in one frame. ``count`` is called with each frame."""
        self.rules = DeliveryTopics(engine.topics, engine.log.queues.deleted)
        self._log = engine.log
        self._batches = engine.batches
        self._stats = engine.stats
        self._run_job = engine.run
        self._frame_bytes = self._fitting_bytes = frame_bytes
        self._count = count

    def fitting(self, sizes: Int64Array) -> int:
        """How many of the first messages, by their bytes, fit one frame; at least one."""
        return max(int(np.searchsorted(np.cumsum(sizes), self._fitting_bytes, side="right")), 1)

    def deliver(
        self,
        records: Callable[[list[Undeliverable]], Iterator[WaitingRecords]],
        queue: tuple[str, int],
        size: int,
        batch: BatchId,
        committed: Callable[[], None],
    ) -> Sequence[Undeliverable] | None:
        """Append the copies of records that wait in ``queue`` as a batch. Returns the messages that are left out.

        None where it is to be done again, as a topic was deleted since the copies were made. ``records`` reads them,
        and adds to those that are left out; they have ``size`` bytes. ``committed`` is called on the job thread, when
        the copies are in the log.
        """
        version = self._log.queues.deleted.version
        found = Deliveries()
        for waiting in records(found.skipped):
            piece = deliver(waiting, queue, self.rules, self._log.writer.largest_record)
            found.blocks += piece.blocks
            found.skipped += piece.skipped

        def commit() -> bool:
            if self._log.queues.deleted.version != version:
                return False
            self._batches.commit_blocks(batch, found.blocks, frees_space=True)
            committed()
            return True

        try:
            if found.rows and not self._run_job(commit):
                return None
        except DiskFull:
            # Fewer of them may find space, and free some: the next step tries a half.
            self._fitting_bytes = max(size // 2, 1)
            raise
        self._fitting_bytes = self._frame_bytes
        self._stats.delivered(found.rows, len(found.skipped))
        self._count(found)
        return found.skipped
