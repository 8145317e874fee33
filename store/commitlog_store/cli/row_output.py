"""Output of rows with named columns: a table for people, JSON lines or CSV for programs."""

from __future__ import annotations

import base64
import csv
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from commitlog_store.cli.options import OutputFormat
from commitlog_store.cli.render import body_text, json_text
from commitlog_store.queries.texts import counted, printable_text


def print_lines(columns: Sequence[str], rows: Iterable[dict[str, Any]], form: OutputFormat) -> None:
    """Print rows one by one as they come, any number of them. The table of people has tabs between its columns.

    A column ``body`` is bytes: text, or base64 in ``bodyBase64`` (JSON), or hexadecimal.
    """
    if form is OutputFormat.JSON:
        for row in rows:
            sys.stdout.write(json_text(_with_text_body(row)) + "\n")
        return
    if form is OutputFormat.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow(["" if row.get(name) is None else _cell(row[name]) for name in columns])
        return
    sys.stdout.write("\t".join(columns) + "\n")
    for row in rows:
        sys.stdout.write("\t".join("-" if row.get(name) is None else _cell(row[name]) for name in columns) + "\n")


def _cell(value: object) -> str:
    if isinstance(value, bytes):
        return body_text(value)
    return printable_text(json_text(value) if isinstance(value, dict) else str(value))


def _with_text_body(row: dict[str, Any]) -> dict[str, Any]:
    body = row.get("body")
    if not isinstance(body, bytes):
        return row
    others = {name: value for name, value in row.items() if name != "body"}
    try:
        return others | {"body": body.decode()}
    except UnicodeDecodeError:
        return others | {"bodyBase64": base64.b64encode(body).decode("ascii")}


def print_hidden(count: int, what: str) -> None:
    """Print, below a table, how many things that are RocketMQ's or the store's own it leaves out."""
    if count:
        print(f"{counted(count, what)} of RocketMQ's or the store's own: --all shows them too.")


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
    from commitlog_store.cli.text_columns import TextColumn, print_columns

    listed = list(rows)
    print_columns(
        [
            TextColumn(
                heading=name,
                cells=["-" if row[name] is None else printable_text(str(row[name])) for row in listed],
                right=bool(listed) and all(isinstance(row[name], int | None) for row in listed),
            )
            for name in columns
        ]
    )
