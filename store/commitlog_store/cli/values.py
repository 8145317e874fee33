"""Parsers of option values: sizes with suffixes, lists of columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from commitlog_store.cli.exit_codes import wrong_usage
from commitlog_store.columnar.columns import column_type
from commitlog_store.errors import InvalidValue
from commitlog_store.paths import checked_commit_log
from commitlog_store.sizes import parse_size
from commitlog_store.timestamps import length_of_time_ms

if TYPE_CHECKING:  # slow to import, and not for every command
    from commitlog_store.filter.message_filter import MessageFilter


def size_option(text: str | int) -> int:
    """Bytes, of a text that ``parse_size`` takes. ``BadParameter`` for another one, and for none."""
    size = parse_size(str(text))
    if not size:
        raise typer.BadParameter(f"{text!r} is not a size: give whole bytes, at least 1, or such as 64K, 500M, 1.5G.")
    return size


def parse_hours(text: str | float) -> float:
    """Hours: of a number with s, m, h, d or w, such as 72h or 1d12h. ``BadParameter``."""
    return text if isinstance(text, float) else parse_seconds(text) / 3600


def parse_seconds(text: str) -> int:
    """Seconds: of a number with s, m, h, d or w, such as 60s or 1h30m. ``BadParameter``."""
    length = length_of_time_ms(text)
    if length is None or length % 1000:
        raise typer.BadParameter(f"{text!r} is not a length of time in whole seconds: give 90s, 30m, 72h, 7d, ...")
    return length // 1000


def parse_columns(text: str) -> list[str]:
    """The names of a list with commas. ``BadParameter`` for a column that does not exist."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    with wrong_usage("--columns"):
        for name in names:
            column_type(name)
    if not names:
        raise typer.BadParameter("Name at least one column.", param_hint="--columns")
    return list(dict.fromkeys(names))


def parse_filter(*, tag: Sequence[str] | None, where: str | None, key: Sequence[str] | None = None) -> MessageFilter:
    """The filter of ``--tag``, ``--key`` and ``--filter``: any of the tags, any of the keys. ``BadParameter``."""
    from commitlog_store.filter.message_filter import MessageFilter

    with wrong_usage():
        return MessageFilter.parse(tags=" || ".join(tag) if tag else None, filter=where, keys=key or None)


def parse_commit_log(text: str) -> str:
    """The directory of a log, as an absolute path. ``BadParameter``."""
    try:
        return os.path.abspath(checked_commit_log(text))
    except InvalidValue as error:
        raise typer.BadParameter(f"{error.expected}, not {text!r}.") from error
