"""Text on stdout that commands share: JSON and bodies. Without a terminal library, which takes long."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import orjson
import typer

from commitlog_store.cli.exit_codes import WRONG
from commitlog_store.queries.texts import printable_text


def drop_output() -> None:
    """Discard the rest of stdout: at exit, Python would complain of a reader that has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def stop_without_reader() -> None:
    """``BrokenPipeError`` when the reader of stdout has gone: a command that waits would not notice without writing."""
    try:
        stdout = sys.stdout.fileno()
    except (OSError, ValueError):
        return  # not a file
    poll = select.poll()
    poll.register(stdout, 0)
    if any(state & (select.POLLERR | select.POLLHUP) for _, state in poll.poll(0)):
        raise BrokenPipeError


@contextlib.contextmanager
def ends_wrong(is_wrong: bool) -> Iterator[None]:
    """Print a verdict, and end with its exit code: also when the reader, as ``head``, goes before all is printed."""
    with verdict_output(is_wrong):
        yield
    if is_wrong:
        raise typer.Exit(WRONG)


@contextlib.contextmanager
def verdict_output(is_wrong: bool) -> Iterator[None]:
    """Print a verdict; when it is that something is wrong, a reader that goes does not end the command."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        if not is_wrong:
            raise
        drop_output()


@contextlib.contextmanager
def says(*kinds: type[Exception]) -> Iterator[None]:
    """Say an error of these kinds, and end with the exit code 1."""
    try:
        yield
    except kinds as error:
        say(error)
        raise typer.Exit(WRONG) from error


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


def terminal_width() -> int | None:
    """The width of the terminal that stdout is; None when it is a file or another program."""
    if not sys.stdout.isatty():
        return None
    from rich.console import Console

    return Console().width


def camel_members(record: Any, *, without: str = "", **renamed: str) -> dict[str, Any]:
    """The fields of a dataclass or a named tuple under their JSON names: in camel case, unless ``renamed``."""
    names = getattr(record, "_fields", None) or [field.name for field in dataclasses.fields(record)]
    return {renamed.get(name) or _camel(name): getattr(record, name) for name in names if name != without}


@cache
def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)
