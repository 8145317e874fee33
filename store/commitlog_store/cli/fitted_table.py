"""Tables that fit a terminal: columns that matter less are left out, then names are shortened in the middle.

In a pipe or a file, and with ``--full``, everything is printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import chop_cells

from commitlog_store.cli.render import terminal_width
from commitlog_store.cli.text_columns import GAP, TextColumn, print_columns, text_width, widest
from commitlog_store.queries.texts import printable_text

# Names are shortened to that before a column is left out, and to less only when no column can be.
LEAST_NAME = 20
SHORTEST_NAME = 8


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table. None is shown as ``-``."""

    heading: str
    cells: Sequence[object]
    right: bool = True
    is_name: bool = False
    """Whether its cells may be shortened."""
    rank: int = 0
    """The columns with the highest rank are left out first; those with 0 never."""


def print_fitted(columns: Sequence[Column], *, full: bool = False) -> None:
    """Print a table to stdout, no wider than the terminal that it is."""
    width = None if full else terminal_width()
    texts = {one.heading: _texts(one) for one in columns}
    shown = [(one, widest([one.heading, *texts[one.heading]])) for one in columns]
    if width is not None:
        shown = _fitted(shown, width)
    print_columns(
        [
            TextColumn(
                heading=one.heading, cells=[shortened(text, room) for text in texts[one.heading]], right=one.right
            )
            for one, room in shown
        ]
    )


def _texts(column: Column) -> list[str]:
    return ["-" if cell is None else printable_text(str(cell)) for cell in column.cells]


def _fitted(shown: list[tuple[Column, int]], width: int) -> list[tuple[Column, int]]:
    """The columns that a terminal has room for, and the room of each."""

    def least(column: Column, room: int) -> int:
        return min(room, LEAST_NAME) if column.is_name else room

    def taken(columns: list[tuple[Column, int]]) -> int:
        return sum(least(*one) for one in columns) + GAP * (len(columns) - 1)

    while taken(shown) > width and (rank := max(column.rank for column, _ in shown)):
        last = max(at for at, (column, _) in enumerate(shown) if column.rank == rank)
        shown = shown[:last] + shown[last + 1 :]
    for_names = width - sum(room for column, room in shown if not column.is_name) - GAP * (len(shown) - 1)
    names = sum(column.is_name for column, _ in shown)
    # The shortest names first: what they do not need is left to the longer ones.
    rooms: dict[str, int] = {}
    for column, room in sorted((one for one in shown if one[0].is_name), key=lambda one: one[1]):
        rooms[column.heading] = min(room, max(for_names // names, SHORTEST_NAME))
        for_names, names = for_names - rooms[column.heading], names - 1
    return [(column, rooms.get(column.heading, room)) for column, room in shown]


def shortened(name: str, room: int) -> str:
    """A name with its middle left out: topics differ at their ends as often as at their starts."""
    if text_width(name) <= room:
        return name
    head = (room - 1) // 2
    return chop_cells(name, head)[0] + "…" + name[-(room - 1 - head) :]
