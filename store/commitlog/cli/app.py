"""The commands and their options."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from commitlog.cli import render, scan, summary
from commitlog.errors import MessageNotFound
from commitlog.reader import StoreReader

__all__ = ["ReaderGone", "app"]


class ReaderGone(Exception):
    """Whoever read our output has closed it. No ``OSError``: click would make that an exit code of 1."""


class _Commands(TyperGroup):
    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise ReaderGone from error
        return result


app = typer.Typer(
    cls=_Commands,
    help="Look into a RocketMQ store directory: no broker, no lock, nothing is written.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

StorePath = Annotated[str, typer.Argument(metavar="PATH", help="The store directory (it holds 'commitlog').")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for programs: one object a line.")]
QueueOption = Annotated[
    int | None, typer.Option("--queue", "-q", min=0, help="Only this queue; else all, in log order.")
]

_POLL_SECONDS = 0.25
_TIME_HELP = "ISO 8601, UTC unless it says otherwise, or milliseconds"


@app.command()
def info(
    path: StorePath,
    as_json: AsJson = False,
    queues: Annotated[bool, typer.Option("--queues", help="A row for every queue, not only for every topic.")] = False,
    sizes: Annotated[
        bool, typer.Option("--sizes", help="Bytes of every queue's messages too. Reads all consume queues.")
    ] = False,
) -> None:
    """Topics, queues, offsets and times of a store (UTC), and with --sizes the bytes of each queue."""
    with StoreReader.open(path) as reader:
        found = summary.summarize(reader, with_sizes=sizes)
    if as_json:
        print(json.dumps(found.to_json(), ensure_ascii=False))
    else:
        render.print_summary(found, with_queues=queues, with_sizes=sizes)


@app.command()
def cat(
    path: StorePath,
    topic: Topic,
    queue: QueueOption = None,
    offset: Annotated[int | None, typer.Option(min=0, help="Start at this queue offset (with --queue).")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help=f"Start at this store time: {_TIME_HELP}.")] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Stop before this store time: {_TIME_HELP}.")
    ] = None,
    count: Annotated[int | None, typer.Option("-n", "--count", min=0, help="At most so many messages.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print messages from the first one on, or from an offset or a time."""
    if offset is not None and (queue is None or since is not None):
        raise typer.BadParameter("--offset needs --queue, and goes without --since.", param_hint="--offset")
    begin = scan.parse_time(since) if since is not None else None
    end = scan.parse_time(until) if until is not None else None
    with StoreReader.open(path) as reader:
        ranges = scan.ranges(reader, topic, queue, offset=offset, begin=begin, end=end)
        _emit(islice(scan.messages(reader, ranges), count), as_json)


@app.command()
def tail(
    path: StorePath,
    topic: Topic,
    queue: QueueOption = None,
    count: Annotated[int, typer.Option("-n", "--count", min=0, help="Begin with so many of the newest messages.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes; stop with Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the newest messages, and with -f what comes after them."""
    with StoreReader.open(path) as reader:
        newest, position = scan.newest(reader, topic, queue, count)
        _emit(newest, as_json)
        while follow:
            ranges, position = scan.arrived(reader, topic, queue, position)
            _emit(scan.messages(reader, ranges), as_json)
            sys.stdout.flush()
            time.sleep(_POLL_SECONDS)


@app.command()
def get(
    path: StorePath,
    message: Annotated[str, typer.Argument(metavar="ID", help="A message id (hex) or a physical offset (decimal).")],
    as_json: AsJson = False,
) -> None:
    """Print one message, by its offset message id or by its physical offset."""
    with StoreReader.open(path) as reader:
        # Ids have 32 or 56 digits; no physical offset has more than 19.
        found = (
            reader.message_at(int(message))
            if message.isascii() and message.isdigit() and len(message) < 20
            else reader.message_by_id(message)
        )
    render.print_message(scan.as_row(found), as_json=as_json)


@app.command()
def query(
    path: StorePath,
    topic: Topic,
    key: Annotated[str, typer.Argument(metavar="KEY", help="One of a message's keys, or its unique key.")],
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Stored at or after this time: {_TIME_HELP}.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Stored at or before this time: {_TIME_HELP}.")
    ] = None,
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="At most so many, the newest.")] = 64,
    as_json: AsJson = False,
) -> None:
    """Print the messages of a topic that carry a key, found through the index files."""
    begin = scan.parse_time(since) if since is not None else 0
    end = scan.parse_time(until) if until is not None else 2**63 - 1
    with StoreReader.open(path) as reader:
        found = reader.query(topic, key, begin=begin, end=end, limit=count)
    if not found:
        raise MessageNotFound(f"No message of topic {topic!r} with key {key!r} in the index of {path}.")
    _emit((scan.as_row(message) for message in found), as_json)


def _emit(rows: Iterator[dict[str, Any]], as_json: bool) -> None:
    for row in rows:
        render.print_line(row, as_json=as_json)
