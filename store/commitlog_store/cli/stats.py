"""Rates of a store's topics, for ``commitlog stats``: how many messages were stored within the last seconds.

Counted by store times, from outside, so it works beside a running broker and on a copy. What only the owner knows (how
long puts took, which were refused) is in ``MessageStore.stats``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from commitlog_store.cli.durations import duration_text
from commitlog_store.cli.fitted_table import Column, print_fitted
from commitlog_store.cli.options import OutputFormat
from commitlog_store.cli.row_output import print_rows
from commitlog_store.cli.times import Clock
from commitlog_store.reader import QueueInfo, StoreReader

# RocketMQ's windows, in seconds.
WINDOWS_S = (10, 60, 600)
_RATES = tuple(f"putTps{window}" for window in WINDOWS_S)
STATS_COLUMNS = ("topic", "queues", "messages", *_RATES, "lastStoreTimestamp", "idleMs")


def print_stats(rows: Iterable[dict[str, Any]], form: OutputFormat, *, full: bool = False) -> None:
    """Print a row for each topic."""
    if form is not OutputFormat.TABLE:
        print_rows(STATS_COLUMNS, rows, form)
        return
    listed = list(rows)

    def cells(name: str) -> list[Any]:
        return [row[name] for row in listed]

    ages = [None if idle is None else f"{duration_text(idle)} ago" for idle in cells("idleMs")]
    columns = [
        Column(heading="topic", cells=cells("topic"), right=False, is_name=True),
        Column(heading="queues", cells=cells("queues"), rank=1),
        Column(heading="messages", cells=cells("messages")),
        *(Column(heading=name, cells=cells(name)) for name in _RATES),
        Column(heading="last put", cells=ages),
        Column(heading="lastStoreTimestamp", cells=cells("lastStoreTimestamp"), rank=2),
    ]
    print_fitted(columns, full=full)


def topic_stats(
    reader: StoreReader, topics: Sequence[str], clock: Clock, now_ms: int | None = None
) -> list[dict[str, Any]]:
    """A row for each topic: its messages, and those stored a second within each window up to now."""
    now = int(time.time() * 1000) if now_ms is None else now_ms

    def look() -> list[dict[str, Any]]:
        infos = reader.queue_infos(lambda: [(topic, one) for topic in topics for one in reader.queue_ids(topic)])
        by_topic = groupby(infos, key=lambda info: info.topic)
        return [_of_topic(reader, topic, list(queues), clock, now) for topic, queues in by_topic]

    return reader.consistently(look, one_moment=False)


def _of_topic(reader: StoreReader, topic: str, queues: Sequence[QueueInfo], clock: Clock, now: int) -> dict[str, Any]:
    counts = [0] * len(WINDOWS_S)
    newest = None
    for info in queues:
        if info.min_offset == info.max_offset:
            continue
        stored = reader.store_timestamp(topic, info.queue_id, info.max_offset - 1)
        newest = stored if newest is None else max(newest, stored)
        for place, window in enumerate(WINDOWS_S):
            if stored > now - window * 1000:
                since = now - window * 1000 + 1
                counts[place] += info.max_offset - reader.offset_by_time(topic, info.queue_id, since, bounds=info)
    return {
        "topic": topic,
        "queues": len(queues),
        "messages": sum(info.max_offset - info.min_offset for info in queues),
        **{f"putTps{window}": round(count / window, 3) for window, count in zip(WINDOWS_S, counts, strict=True)},
        "lastStoreTimestamp": None if newest is None else clock.iso(newest),
        "idleMs": None if newest is None else max(now - newest, 0),
    }
