"""Offsets of a time, for ``commitlog offset-at``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commitlog_store.cli.times import Clock
from commitlog_store.reader import QueueInfo, StoreReader

OFFSET_COLUMNS = ("topic", "queueId", "offset", "minOffset", "maxOffset", "storeTimestamp")


def offsets_at(reader: StoreReader, topics: Sequence[str], timestamp_ms: int, clock: Clock) -> list[dict[str, Any]]:
    """A row for each queue. ``storeTimestamp`` is None where ``offset`` is the queue's end."""

    def look() -> list[dict[str, Any]]:
        infos = reader.queue_infos(lambda: [(topic, one) for topic in topics for one in reader.queue_ids(topic)])
        return [_in_queue(reader, info, timestamp_ms, clock) for info in infos]

    return reader.consistently(look, one_moment=False)


def _in_queue(reader: StoreReader, info: QueueInfo, timestamp_ms: int, clock: Clock) -> dict[str, Any]:
    topic, queue_id = info.topic, info.queue_id
    offset = reader.offset_by_time(topic, queue_id, timestamp_ms, bounds=info)
    stored = clock.iso(reader.store_timestamp(topic, queue_id, offset)) if offset < info.max_offset else None
    found = (topic, queue_id, offset, info.min_offset, info.max_offset, stored)
    return dict(zip(OFFSET_COLUMNS, found, strict=True))
