"""Output of rows and summaries on stdout: tables and colours for people, JSON for programs."""

from __future__ import annotations

import base64
import json
import os
import sys
from datetime import datetime, timezone
from typing import Any

import orjson
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from commitlog.cli.summary import QueueSummary, StoreSummary
from commitlog.paths import is_system_topic

__all__ = [
    "drop_output",
    "json_text",
    "print_line",
    "print_message",
    "print_summary",
    "printable_text",
    "say",
    "uncut_console",
]

_UNCUT = 100_000


def uncut_console() -> Console:
    """The console for stdout."""
    # Output to a file or another program is not cut to the width of a terminal.
    return Console(soft_wrap=True, highlight=False, width=None if sys.stdout.isatty() else _UNCUT)


def drop_output() -> None:
    """Discard the rest of stdout: at exit, Python would complain of a reader that has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(what: Exception | str) -> None:
    """Print one sentence to stderr, after what stdout still holds."""
    sys.stdout.flush()
    print(f"commitlog: {what}", file=sys.stderr)


def _json_value(value: Any) -> Any:
    return value.isoformat(timespec="milliseconds") if isinstance(value, datetime) else value


def json_text(value: Any) -> str:
    """One line of JSON for stdout, whose encoding may lack characters."""
    try:
        text = orjson.dumps(value).decode()
    except TypeError:  # half of a surrogate pair, of a file name that is not UTF-8
        return json.dumps(value)
    return text if text.isascii() or (sys.stdout.encoding or "").lower() == "utf-8" else json.dumps(value)


def _to_json(row: dict[str, Any]) -> str:
    plain = {name: _json_value(value) for name, value in row.items() if name != "body"}
    # JSON has no bytes: a body that is text is written as text, any other as base64 under another name.
    try:
        plain["body"] = row["body"].decode("utf-8")
    except UnicodeDecodeError:
        plain["bodyBase64"] = base64.b64encode(row["body"]).decode("ascii")
    return json_text(plain)


def _body_text(body: bytes) -> str:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return "hex:" + body.hex()
    return printable_text(text)


def printable_text(text: str) -> str:
    """Text without control characters, which must not reach the terminal."""
    # A lone surrogate, of a file name that is not UTF-8, is not printable either.
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def print_line(row: dict[str, Any], *, as_json: bool) -> None:
    """Print one message on one line."""
    if as_json:
        sys.stdout.write(_to_json(row) + "\n")
        return
    when = row["storeTimestamp"].isoformat(timespec="milliseconds") if row["storeTimestamp"] else "-"
    head = _body_text(f"{row['topic']}/{row['queueId']}@{row['queueOffset']}".encode())
    labels = [_body_text(str(row[name]).encode()) if row[name] else "-" for name in ("tags", "keys")]
    sys.stdout.write("\t".join((when, head, *labels, _body_text(row["body"]))) + "\n")


def print_message(row: dict[str, Any], *, as_json: bool) -> None:
    """Print one message with all its fields."""
    if as_json:
        sys.stdout.write(_to_json(row) + "\n")
        return
    table = Table(show_header=False, box=None)
    for name, value in row.items():
        if name == "body":
            shown = _body_text(value)
        elif name == "properties":
            shown = "\n".join(_body_text(f"{key} = {text}".encode()) for key, text in value.items())
        else:
            shown = "-" if value is None else _body_text(str(_json_value(value)).encode())
        table.add_row(Text(name, style="bold"), Text(shown))
    uncut_console().print(table)


def _when(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "-"
    try:
        return datetime.fromtimestamp(milliseconds / 1000, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)


def print_summary(found: StoreSummary, *, with_queues: bool, with_sizes: bool) -> None:
    """Print the store, then a row for each topic or queue; problems go to stderr."""
    console = uncut_console()
    console.print(Text(found.path, style="bold"))
    console.print(
        f"log [{found.min_physical_offset}, {found.max_physical_offset}) in {found.commit_log_files} files, "
        f"{decimal(found.disk_size)} on disk, {found.index_files} index files with {found.indexed_keys} keys"
    )
    if found.checkpoint:
        console.print(f"checkpoint: messages flushed to {_when(found.checkpoint['physicMsgTimestamp'])} UTC")
    if found.aborted:
        console.print(
            Text("abort file present: an owner runs, or it stopped without closing the store", style="yellow")
        )
    table = Table("topic", "queue" if with_queues else "queues", box=None, pad_edge=False)
    for heading in ("min offset", "max offset", "messages", *(["size"] if with_sizes else [])):
        table.add_column(heading, justify="right")
    for heading in ("first (UTC)", "last (UTC)"):
        table.add_column(heading)
    for topic, queues in found.by_topic().items():
        style = "dim" if is_system_topic(topic) else "cyan"
        for group in [[queue] for queue in queues] if with_queues else [queues]:
            label = str(group[0].queue_id) if with_queues else str(len(queues))
            table.add_row(Text(topic, style=style), label, *_figures(group, with_sizes=with_sizes))
    console.print(table)
    errors = found.problems + [queue.error for queue in found.queues if queue.error]
    for problem in errors:
        print(f"commitlog: {problem}", file=sys.stderr)


def _figures(queues: list[QueueSummary], *, with_sizes: bool) -> tuple[str, ...]:
    firsts = [queue.first_store_timestamp for queue in queues if queue.first_store_timestamp is not None]
    lasts = [queue.last_store_timestamp for queue in queues if queue.last_store_timestamp is not None]
    return (
        str(min(queue.min_offset for queue in queues)),
        str(max(queue.max_offset for queue in queues)),
        str(sum(queue.messages for queue in queues)),
        *([_size(queues)] if with_sizes else []),
        _when(min(firsts, default=None)),
        _when(max(lasts, default=None)),
    )


def _size(queues: list[QueueSummary]) -> str:
    """The bytes of all the queues; unknown if one could not be read."""
    sizes = [queue.size for queue in queues if queue.size is not None]
    return decimal(sum(sizes)) if len(sizes) == len(queues) else "-"
