"""Summaries of consumer groups: what waits for each, in all its topics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from commitlog_store.groups.positions import GroupPosition
from commitlog_store.paths import is_system_group


@dataclass(frozen=True, kw_only=True)
class GroupSummary:
    """A consumer group. The fields are those of ``GroupPosition``, summed up over its queues; None: not known."""

    group: str
    topics: int
    queues: int
    lag: int | None
    lost: int
    lag_ms: int | None
    oldest_waiting_timestamp: int | None
    retry_messages: int
    dead_letters: int
    error: str

    @property
    def is_system(self) -> bool:
        return is_system_group(self.group)


def group_summaries(positions: Iterable[GroupPosition]) -> list[GroupSummary]:
    """One for each group, by name."""
    ordered = sorted(positions, key=lambda one: (one.group, one.topic, one.queue_id))
    return [_summary(name, list(rows)) for name, rows in groupby(ordered, key=lambda one: one.group)]


def _summary(name: str, rows: Sequence[GroupPosition]) -> GroupSummary:
    waiting = [one.oldest_waiting_timestamp for one in rows if one.oldest_waiting_timestamp is not None]
    return GroupSummary(
        group=name,
        topics=len({one.topic for one in rows}),
        queues=len(rows),
        lag=None if any(one.lag is None for one in rows) else sum(one.lag or 0 for one in rows),
        lost=sum(one.lost or 0 for one in rows),
        lag_ms=max((one.lag_ms for one in rows if one.lag_ms is not None), default=None),
        oldest_waiting_timestamp=min(waiting, default=None),
        retry_messages=rows[0].retry_messages,
        dead_letters=rows[0].dead_letters,
        error=next((one.error for one in rows if one.error), ""),
    )
