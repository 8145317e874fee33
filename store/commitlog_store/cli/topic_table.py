"""Table of messages by topic, for commands that report what is lost: ``verify`` and ``salvage``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from rich.table import Table
from rich.text import Text

from commitlog_store.queries.texts import printable_text

# So many stretches of lost offsets are shown for a topic.
_MOST_STRETCHES = 40

# A queue id, and the queue offsets [start, stop) that are lost in it.
Stretch = tuple[int, int, int]


class TopicRow(Protocol):
    """What the table shows of a topic, beside numbers that only one command has."""

    @property
    def topic(self) -> str: ...
    @property
    def lost_offsets(self) -> Sequence[Stretch]: ...


def topic_table(rows: Iterable[TopicRow], numbers: Sequence[str]) -> Table:
    """A row for each topic with these attributes as numbers, and at its end the offsets that are lost, by queue."""
    table = Table("topic", box=None, pad_edge=False)
    for name in numbers:
        table.add_column(name.replace("_", " "), justify="right")
    table.add_column("lost offsets")
    for row in rows:
        shown = [str(getattr(row, name)) for name in numbers]
        table.add_row(Text(printable_text(row.topic)), *shown, Text(_stretches(row.lost_offsets)))
    return table


def _stretches(lost: Sequence[Stretch]) -> str:
    shown = ", ".join(f"{queue}: {offset_range(start, stop)}" for queue, start, stop in lost[:_MOST_STRETCHES])
    more = len(lost) - _MOST_STRETCHES
    return shown + (f" and {more} more" if more > 0 else "")


def offset_range(start: int, stop: int) -> str:
    """Queue offsets ``[start, stop)`` as text."""
    return str(start) if stop - start == 1 else f"{start} to {stop - 1}"
