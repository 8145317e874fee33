"""Delay levels of a store as a reader sees them: how many messages wait, since when, and when the next is due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from commitlog_store.config_files.delay_offset import DelayOffsetFile
from commitlog_store.delayed.positions import start_position
from commitlog_store.errors import CorruptRecord, MessageNotFound, TopicNotFound
from commitlog_store.format.consume_queue_unit import LAST_HASH_CODE
from commitlog_store.format.message_rules import SCHEDULE_TOPIC
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.queue.views import CatalogView

__all__ = ["DelayLevel", "delay_levels"]

_NOTED_WITHIN_MS = 15_000


@dataclass(frozen=True, kw_only=True)
class DelayLevel:
    """A delay level whose queue exists. Times are milliseconds.

    ``position`` is the queue offset of the next message to deliver, ``waiting`` the number of messages from there on.
    ``next_due`` is when the first of them is due, and ``oldest`` its store time; both are None without any. ``delay``
    is that of the queue's last message; None when the queue is empty. ``next_due`` and ``delay`` are also None where
    the unit has no time: RocketMQ 4 wrote it while it recovered, or it points into ``consumequeue_ext``.

    ::

        with StoreReader.open("/data/store") as reader:
            print(sum(level.waiting for level in reader.delay_levels()))
    """

    level: int
    delay: int | None
    waiting: int
    next_due: int | None
    oldest: int | None
    position: int
    min_offset: int
    max_offset: int

    def overdue_ms(self, now_ms: int) -> int:
        """How long ago the first message was due, 0 up to 15 seconds: a live broker notes deliveries every 10 s."""
        late = 0 if self.next_due is None else now_ms - self.next_due
        return late if late > _NOTED_WITHIN_MS else 0


def delay_levels(
    store_path: str, catalog: CatalogView, commit_log: CommitLog, ledger: Mapping[int, int]
) -> list[DelayLevel]:
    """The levels that messages waited at so far; ``ledger`` has their positions there. ``CorruptConfig``, and the
    errors of reading units."""
    file = DelayOffsetFile(store_path).read()
    try:
        ids = catalog.queue_ids(SCHEDULE_TOPIC)
    except TopicNotFound:
        return []
    return [_delay_level(queue_id + 1, catalog, commit_log, ledger, file) for queue_id in ids]


def _delay_level(
    level: int,
    catalog: CatalogView,
    commit_log: CommitLog,
    ledger: Mapping[int, int],
    file: Mapping[int, int],
) -> DelayLevel:
    """The level as it is now. ``ledger`` and ``file`` are the positions of ``start_position``.

    ``CorruptConsumeQueue``, and what reading units raises.
    """
    low, high = catalog.bounds(SCHEDULE_TOPIC, level - 1)
    position = start_position(level, ledger, file, low, high)
    first = _times(catalog, commit_log, level, position) if position < high else None
    last = _times(catalog, commit_log, level, high - 1) if low < high else None
    return DelayLevel(
        level=level,
        delay=None if last is None or last[0] is None or last[1] is None else last[0] - last[1],
        waiting=high - position,
        next_due=None if first is None else first[0],
        oldest=None if first is None else first[1],
        position=position,
        min_offset=low,
        max_offset=high,
    )


def _times(catalog: CatalogView, commit_log: CommitLog, level: int, offset: int) -> tuple[int | None, int | None]:
    """The time of delivery and the store time of a message; None where the unit has none, or the record is damaged."""
    (units,) = catalog.queue(SCHEDULE_TOPIC, level - 1).units(offset, offset + 1, check=False)
    try:
        stored = commit_log.read_record(int(units["physical_offset"][0]), check_crc=False).store_timestamp
    except (CorruptRecord, MessageNotFound):
        stored = None
    due = int(units["tags_code"][0])
    return due if due > LAST_HASH_CODE else None, stored
