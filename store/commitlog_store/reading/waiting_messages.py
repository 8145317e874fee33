"""Messages that wait for a time of delivery: delay levels and timer messages, and how far each is by the ledger."""

from __future__ import annotations

import pyarrow as pa

from commitlog_store.batch.frames import StoredFrames
from commitlog_store.batch.ledger import BatchLedger, delivered_offsets, last_batch, load_ledger
from commitlog_store.batch_id import TIMER_APPLICATION
from commitlog_store.delayed.levels import DelayLevel, delay_levels
from commitlog_store.delayed.timer_listing import (
    NO_TIMERS,
    WaitingTimers,
    read_check,
    timer_bounds,
    timer_level,
    waiting_timers,
)
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.queue.views import CatalogView


class WaitingMessages:
    """What waits in the store whose ``config/`` is in ``path``. ``StoreReader`` has the meanings."""

    def __init__(self, path: str, commit_log: CommitLog, catalog: CatalogView, frames: StoredFrames) -> None:
        self._path = path
        self._commit_log = commit_log
        self._catalog = catalog
        self._frames = frames

    def ledger(self) -> BatchLedger:
        """The store's ledger of committed batches, deliveries among them."""
        self._commit_log.refresh()
        return load_ledger(self._path, self._frames)

    def delay_levels(self) -> list[DelayLevel]:
        """``StoreReader.delay_levels``."""
        return self.levels_and_timers()[0]

    def levels_and_timers(self) -> tuple[list[DelayLevel], WaitingTimers]:
        """The levels, and the messages of level 0."""
        check = read_check(self._path, self._catalog)  # before the ledger, which may then only be ahead of it
        ledger = self.ledger()
        store = self._path, self._catalog, self._commit_log
        levels = delay_levels(*store, delivered_offsets(ledger))
        bounds = timer_bounds(self._catalog)
        if bounds is None:
            return levels, NO_TIMERS
        waiting = waiting_timers(*store, check, last_batch(ledger, TIMER_APPLICATION))
        return [timer_level(self._catalog, self._commit_log, bounds, waiting), *levels], waiting

    def timers(self) -> pa.Table:
        """``StoreReader.waiting_timers``."""
        check = read_check(self._path, self._catalog)
        last = last_batch(self.ledger(), TIMER_APPLICATION)
        waiting = waiting_timers(self._path, self._catalog, self._commit_log, check, last)
        times = pa.array(waiting.dues).cast(pa.timestamp("ms", "UTC"))
        return pa.table({"deliverAt": times, "physicalOffset": waiting.physical_offsets})
