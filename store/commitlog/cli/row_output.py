"""Output of rows with named columns: a table for people, JSON lines or CSV for programs."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from commitlog.cli.options import OutputFormat
from commitlog.cli.render import json_text, printable_text, uncut_console

__all__ = ["print_rows"]


def print_rows(columns: Sequence[str], rows: Iterable[dict[str, Any]], form: OutputFormat) -> None:
    """Print rows. JSON and CSV are printed row by row; a table needs all of them first. None is empty, or ``-``."""
    if form is OutputFormat.JSON:
        for row in rows:
            sys.stdout.write(json_text(row) + "\n")
        return
    if form is OutputFormat.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([row[name] for name in columns] for row in rows)
        return
    listed = list(rows)
    table = Table(box=None, pad_edge=False)
    for name in columns:
        numbers = all(isinstance(row[name], int | None) for row in listed)
        table.add_column(name, justify="right" if numbers and listed else "left", no_wrap=True)
    for row in listed:
        table.add_row(*(Text("-" if row[name] is None else printable_text(str(row[name]))) for name in columns))
    uncut_console().print(table)
