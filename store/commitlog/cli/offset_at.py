"""Offsets of a time, for ``commitlog offset-at``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from commitlog.cli.times import Clock
from commitlog.reader import StoreReader

__all__ = ["OFFSET_COLUMNS", "offsets_at"]

OFFSET_COLUMNS = ("topic", "queueId", "offset", "minOffset", "maxOffset", "storeTimestamp")


def offsets_at(reader: StoreReader, topics: Sequence[str], timestamp_ms: int, clock: Clock) -> Iterator[dict[str, Any]]:
    """A row for each queue. ``storeTimestamp`` is None where ``offset`` is the queue's end."""
    for topic in topics:
        for info in reader.queues(topic):
            offset = reader.offset_by_time(topic, info.queue_id, timestamp_ms)
            there = offset < info.max_offset
            stored = clock.iso(reader.store_timestamp(topic, info.queue_id, offset)) if there else None
            found = (topic, info.queue_id, offset, info.min_offset, info.max_offset, stored)
            yield dict(zip(OFFSET_COLUMNS, found, strict=True))
