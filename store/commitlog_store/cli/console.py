"""The console for stdout, and what is shown on it: tables, and one message with its fields."""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from commitlog_store.cli.render import body_text, terminal_width
from commitlog_store.cli.times import Clock
from commitlog_store.queries.texts import printable_text

_UNCUT = 100_000
# Texts in columns are folded to this width before a table becomes wider than the terminal, and the gap between columns.
_NARROW = 12
_GAP = 2


class _Console(Console):
    """A console that leaves a pipe whose reader has gone to the application: rich would exit with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def uncut_console(least: int = 0) -> Console:
    """The console for stdout, as wide as the terminal, and at least ``least``."""
    # Output to a file or another program is not cut to the width of a terminal.
    return _Console(soft_wrap=True, highlight=False, width=max(terminal_width() or _UNCUT, least))


def print_table(table: Table) -> None:
    """Print a table, and cut nothing: texts are folded, and what is still too wide is left to the terminal."""
    least = 0
    for column in table.columns:
        column.overflow = "fold"
        full = max(map(cell_len, map(str, [column.header, *column.cells])))
        least += _GAP + (full if column.no_wrap else min(full, _NARROW))
    uncut_console(least).print(table)


def print_message(row: dict[str, Any], clock: Clock) -> None:
    """Print one message with all its fields, one a line."""
    table = Table(show_header=False, box=None)
    for name, value in row.items():
        if name == "body":
            shown = body_text(value)
        elif name == "properties":
            shown = "\n".join(printable_text(f"{key} = {text}") for key, text in value.items())
        elif name in ("storeTimestamp", "bornTimestamp"):
            shown = clock.iso(value) or "-"
        else:
            shown = "-" if value is None else printable_text(str(value))
        table.add_row(Text(name, style="bold"), Text(shown))
    print_table(table)
