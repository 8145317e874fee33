"""Output of ``commitlog stats``: a row for each topic, with the messages stored a second within the last seconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from commitlog_store.cli.fitted_table import Column, print_fitted
from commitlog_store.cli.options import OutputFormat
from commitlog_store.cli.row_output import print_rows
from commitlog_store.cli.times import Clock
from commitlog_store.queries.texts import duration_text
from commitlog_store.queries.topic_rates import WINDOWS_S, TopicRates

_RATES = tuple(f"putTps{window}" for window in WINDOWS_S)
STATS_COLUMNS = ("topic", "queues", "messages", *_RATES, "lastStoreTimestamp", "idleMs")


def print_stats(topics: Iterable[TopicRates], clock: Clock, form: OutputFormat, *, full: bool = False) -> None:
    """Print a row for each topic."""
    rows = [_row(one, clock) for one in topics]
    if form is not OutputFormat.TABLE:
        print_rows(STATS_COLUMNS, rows, form)
        return

    def cells(name: str) -> list[Any]:
        return [row[name] for row in rows]

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


def _row(one: TopicRates, clock: Clock) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "queues": one.queues,
        "messages": one.messages,
        **{name: one.rates[window] for name, window in zip(_RATES, WINDOWS_S, strict=True)},
        "lastStoreTimestamp": clock.iso(one.last_store_timestamp),
        "idleMs": one.idle_ms,
    }
