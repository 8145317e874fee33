"""Commands that print messages: ``cat``, ``tail``, ``get`` and ``query``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import typer

from commitlog.cli import render, scan
from commitlog.cli.options import LOOK, TIME_HELP, AsJson, QueueOption, StorePath, Topic
from commitlog.errors import MessageNotFound
from commitlog.reader import StoreReader

__all__ = ["cat", "get", "query", "register", "tail"]

_POLL_SECONDS = 0.25


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (cat, tail, get, query):
        app.command(rich_help_panel=LOOK)(command)


def cat(
    path: StorePath,
    topic: Topic,
    queue: QueueOption = None,
    offset: Annotated[int | None, typer.Option(min=0, help="Start at this queue offset (with --queue).")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help=f"Start at this store time: {TIME_HELP}.")] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Stop before this store time: {TIME_HELP}.")
    ] = None,
    count: Annotated[int | None, typer.Option("-n", "--count", min=0, help="At most this many messages.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print messages from the first one on, or from an offset or a time."""
    if offset is not None and (queue is None or since is not None):
        raise typer.BadParameter("--offset needs --queue, and excludes --since.", param_hint="--offset")
    begin = scan.parse_time(since) if since is not None else None
    end = scan.parse_time(until) if until is not None else None
    with StoreReader.open(path) as reader:
        ranges = scan.ranges(reader, topic, queue, offset=offset, begin=begin, end=end)
        _emit(islice(scan.messages(reader, ranges), count), as_json)


def tail(
    path: StorePath,
    topic: Topic,
    queue: QueueOption = None,
    count: Annotated[int, typer.Option("-n", "--count", min=0, help="Begin with this many newest messages.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new messages too; stop with Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the newest messages, and with -f new ones as they come."""
    with StoreReader.open(path) as reader:
        newest, position = scan.newest(reader, topic, queue, count)
        _emit(newest, as_json)
        while follow:
            ranges, position = scan.arrived(reader, topic, queue, position)
            _emit(scan.messages(reader, ranges), as_json)
            sys.stdout.flush()
            time.sleep(_POLL_SECONDS)


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


def query(
    path: StorePath,
    topic: Topic,
    key: Annotated[str, typer.Argument(metavar="KEY", help="One of a message's keys, or its unique key.")],
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Stored at or after this time: {TIME_HELP}.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Stored at or before this time: {TIME_HELP}.")
    ] = None,
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="At most this many, the newest.")] = 64,
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
