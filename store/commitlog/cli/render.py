"""Output on stdout that commands share: the console, JSON, printable text, and one message with its fields."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

import orjson
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from commitlog.cli.times import Clock

__all__ = [
    "body_text",
    "drop_output",
    "json_text",
    "print_message",
    "print_table",
    "printable_text",
    "say",
    "terminal_width",
    "uncut_console",
]

_UNCUT = 100_000
# Texts in columns are folded to this width before a table becomes wider than the terminal, and the gap between columns.
_NARROW = 12
_GAP = 2


class _Console(Console):
    """A console that leaves a pipe whose reader has gone to the application: rich would exit with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


# Runs of characters beside the plain ones of ASCII: only these are looked at one by one.
_NOT_PLAIN = re.compile(r"[^\x20-\x7e]+")


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


def drop_output() -> None:
    """Discard the rest of stdout: at exit, Python would complain of a reader that has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(what: Exception | str) -> None:
    """Print one sentence to stderr, after what stdout still holds."""
    sys.stdout.flush()
    print(f"commitlog: {what}", file=sys.stderr)


def json_text(value: Any) -> str:
    """One line of JSON for stdout, whose encoding may lack characters."""
    try:
        text = orjson.dumps(value).decode()
    except TypeError:  # half of a surrogate pair, of a file name that is not UTF-8
        return json.dumps(value)
    return text if text.isascii() or (sys.stdout.encoding or "").lower() == "utf-8" else json.dumps(value)


def body_text(body: bytes | None) -> str:
    """A body as printable text; one that is not UTF-8 in hexadecimal."""
    if body is None:
        return "-"
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return "hex:" + body.hex()
    return printable_text(text)


def printable_text(text: str) -> str:
    """Text without control characters, which must not reach the terminal."""
    return text if text.isprintable() else _NOT_PLAIN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    # A lone surrogate, of a file name that is not UTF-8, is not printable either.
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in found[0])


def terminal_width() -> int | None:
    """The width of the terminal that stdout is; None when it is a file or another program."""
    return Console().width if sys.stdout.isatty() else None


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
