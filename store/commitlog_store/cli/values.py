"""Parsers of option values: sizes with suffixes, lists of columns, patterns of topics."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import typer

from commitlog_store.columnar.columns import column_type, nearest_name
from commitlog_store.errors import FilterError, InvalidValue, TopicNotFound
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.paths import checked_commit_log
from commitlog_store.reader import StoreReader
from commitlog_store.sizes import parse_size
from commitlog_store.timestamps import length_of_time_ms

# What to do about queues that are missing, in the middle of a sentence.
READ_THE_LOG = "read them from the log alone with --from-log"

_PATTERN = re.compile(r"[*?\[]")


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
    try:
        for name in names:
            column_type(name)
    except InvalidValue as error:
        raise typer.BadParameter(str(error), param_hint="--columns") from None
    if not names:
        raise typer.BadParameter("Name at least one column.", param_hint="--columns")
    return list(dict.fromkeys(names))


def parse_filter(*, tag: Sequence[str] | None, where: str | None, key: Sequence[str] | None = None) -> MessageFilter:
    """The filter of ``--tag``, ``--key`` and ``--filter``: any of the tags, any of the keys. ``BadParameter``."""
    try:
        return MessageFilter.parse(tags=" || ".join(tag) if tag else None, filter=where, keys=key or None)
    except FilterError as error:
        raise typer.BadParameter(str(error)) from None


def is_pattern(text: str) -> bool:
    """Whether it is a shell pattern, not the name of a topic."""
    return _PATTERN.search(text) is not None


def chosen_topics(reader: StoreReader, wanted: Sequence[str]) -> list[str]:
    """The topics of a store that are named, or match a shell pattern, in the order given and each once.

    ``TopicNotFound`` for a name or a pattern without a topic, with the topic that is spelled most alike.
    """
    known = reader.topics()
    chosen: dict[str, None] = {}
    for one in wanted:
        if not is_pattern(one):
            chosen[one] = None
            if one not in known:
                _explain(reader, one, known)
        elif matching := [topic for topic in known if fnmatchcase(topic, one)]:
            chosen.update(dict.fromkeys(matching))
        else:
            raise TopicNotFound(f"No topic of {reader.path} matches {one!r}. {_list_of(known)}")
    return list(chosen)


def _explain(reader: StoreReader, topic: str, known: Iterable[str]) -> None:
    try:
        reader.queue_ids(topic)
    except TopicNotFound as error:
        near = nearest_name(topic, known)
        hint = f"Did you mean {near!r}?" if near else _list_of(known)
        raise TopicNotFound(f"{error} {hint}") from None


def _list_of(topics: Iterable[str], most: int = 10) -> str:
    listed = list(topics)
    if not listed:
        return f"The store has no consume queues at all; if its log holds messages, {READ_THE_LOG}."
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return f"It has {', '.join(listed[:most])}{more}."


def parse_commit_log(text: str) -> str:
    """The directory of a log, as an absolute path. ``BadParameter``."""
    try:
        return os.path.abspath(checked_commit_log(text))
    except InvalidValue as error:
        raise typer.BadParameter(f"{error.expected}, not {text!r}.") from error
