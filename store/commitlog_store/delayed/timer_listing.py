"""Timer messages as a reader sees them: those that wait, their times and places. It takes no lock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from commitlog_store.batch_id import BatchId
from commitlog_store.columnar.timer_times import TIMER_QUEUE, delivery_times
from commitlog_store.config import MessageStoreConfig
from commitlog_store.delayed.levels import DelayLevel
from commitlog_store.delayed.timer_check import TimerCheckFile, delivered_of
from commitlog_store.delayed.timer_log import Delivered, TimerLog
from commitlog_store.delayed.timer_waiting import agreeing_check, judged_with, next_offset, units_that_wait
from commitlog_store.errors import CorruptRecord, MessageNotFound, QueueNotFound, TopicNotFound
from commitlog_store.format.arrays import Int64Array
from commitlog_store.format.java_hash import string_hash_code
from commitlog_store.format.properties import REAL_TOPIC, decode_properties
from commitlog_store.format.record import Record
from commitlog_store.format.timer_log import TimerCheck
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.queue.views import CatalogView

# The level of timer messages in a list of delay levels.
TIMER_LEVEL = 0
_AT_ONCE = 4_096


class WaitingTimers(NamedTuple):
    """The timer messages that wait, in the log's order: times of delivery in ms, physical offsets, and Java's hash
    codes of the topics that they go to."""

    dues: Int64Array
    physical_offsets: Int64Array
    topic_hashes: Int64Array


NO_TIMERS = WaitingTimers(*(np.zeros(0, np.int64) for _ in WaitingTimers._fields))


def timer_bounds(catalog: CatalogView) -> tuple[int, int] | None:
    """The bounds of the timer's queue; None without one."""
    try:
        return catalog.bounds(*TIMER_QUEUE)
    except (TopicNotFound, QueueNotFound):
        return None


def waiting_timers(
    store_path: str, catalog: CatalogView, commit_log: CommitLog, check: TimerCheck | None, last: BatchId | None
) -> WaitingTimers:
    """The messages that wait. ``check`` was read before ``last``, the last batch of ``rmq-timer`` in the ledger.

    In a store that a broker wrote last, those that it had not delivered as of its checkpoint, a second old if it runs.
    """
    bounds = timer_bounds(catalog) or (0, 0)

    def place_of(offset: int) -> int | None:
        unit = catalog.queue(*TIMER_QUEUE).unit(offset)
        return None if unit is None else unit[0]

    own = agreeing_check(check, 0 if last is None else last.version, bounds, place_of)
    delivered = judged_with(delivered_of(last), own)
    log = TimerLog(store_path, MessageStoreConfig.mapped_file_size_timer_log)
    try:
        found = [WaitingTimers(*one[:2], one.topic_hashes) for one in units_that_wait(log, check, own, delivered)]
    finally:
        log.close()
    found += _not_taken_in(catalog, commit_log, next_offset(check, own, bounds), bounds[1], delivered)
    dues, physical, hashes = (np.concatenate(column) for column in zip(NO_TIMERS, *found, strict=True))
    physical, first = np.unique(physical, return_index=True)
    return WaitingTimers(dues[first], physical, hashes[first])


def _not_taken_in(
    catalog: CatalogView, commit_log: CommitLog, start: int, stop: int, delivered: Delivered
) -> Iterator[WaitingTimers]:
    """The messages of the queue that have no unit in the timer log, as far as they can be read."""
    for first in range(start, stop, _AT_ONCE):
        for units in catalog.queue(*TIMER_QUEUE).units(first, min(first + _AT_ONCE, stop), check=False):
            records = list(_records(commit_log, units["physical_offset"].tolist()))
            properties = [decode_properties(one.properties) for one in records]
            stored = np.array([one.store_timestamp for one in records], np.int64)
            physical = np.array([one.physical_offset for one in records], np.int64)
            dues = delivery_times(
                lambda name, rows=properties: pa.array([one.get(name) for one in rows], pa.string()),  # type: ignore[misc]
                stored,
            )
            waits = delivered.waiting(dues, physical) & (dues >= 0)
            hashes = np.array([string_hash_code(one.get(REAL_TOPIC, "")) for one in properties], np.int64)
            yield WaitingTimers(dues[waits], physical[waits], hashes[waits])


def _records(commit_log: CommitLog, places: list[int]) -> Iterator[Record]:
    for place in places:
        try:
            yield commit_log.read_without_body(place)
        except (CorruptRecord, MessageNotFound):
            continue


def timer_level(
    catalog: CatalogView, commit_log: CommitLog, bounds: tuple[int, int], waiting: WaitingTimers
) -> DelayLevel:
    """The timer messages as a row beside the delay levels: level 0, without a delay. ``bounds`` are their queue's."""
    position, oldest = bounds[1], None
    if len(waiting.dues):
        first = int(waiting.physical_offsets[0])
        position = catalog.queue(*TIMER_QUEUE).first_offset_from(first, *bounds)
        oldest = next((one.store_timestamp for one in _records(commit_log, [first])), None)
    return DelayLevel(
        level=TIMER_LEVEL,
        delay=None,
        waiting=len(waiting.dues),
        next_due=int(waiting.dues.min()) if len(waiting.dues) else None,
        oldest=oldest,
        position=position,
        min_offset=bounds[0],
        max_offset=bounds[1],
    )


def read_check(store_path: str, catalog: CatalogView) -> TimerCheck | None:
    """The checkpoint of a store with timer messages; none is read for others."""
    return None if timer_bounds(catalog) is None else TimerCheckFile(store_path).read()
