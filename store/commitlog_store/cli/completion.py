"""Completion in the shell: what the store on the command line has, and the values that an option takes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from zoneinfo import available_timezones

import typer

from commitlog_store.columnar.columns import ALL_COLUMNS
from commitlog_store.errors import CommitLogError
from commitlog_store.files.disk import with_home

if TYPE_CHECKING:  # its import takes a tenth of a second, and few commands complete anything
    from commitlog_store.reader import StoreReader


def _given(ctx: typer.Context, name: str) -> list[str]:
    """What the line has for an argument or an option so far.

    While the value of an option is typed, the line is no whole command: its arguments are left unnamed then.
    """
    if value := ctx.params.get(name):
        return [value] if isinstance(value, str) else list(value)
    arguments = [one for one in ctx.command.params if one.param_type_name == "argument"]
    for place, one in enumerate(arguments):
        if one.name == name:
            return ctx.args[place:] if one.nargs == -1 else ctx.args[place : place + 1]
    return []


def _in_store(ctx: typer.Context, names: Callable[[StoreReader], Iterable[str]]) -> list[str]:
    """What the store on the command line has; nothing if it cannot be read. Says nothing: a line is being typed."""
    path = _given(ctx, "path") or _given(ctx, "places")
    if not path:
        return []
    from commitlog_store.reader import StoreReader

    logging.disable()
    try:
        commit_log = _given(ctx, "commit_log")
        with StoreReader.open(
            with_home(path[0]), store_path_commit_log=commit_log[0] if commit_log else None
        ) as reader:
            return sorted(names(reader))
    except (CommitLogError, OSError):
        return []
    finally:
        logging.disable(logging.NOTSET)


def _completion(names: Callable[[StoreReader], Iterable[str]]) -> Callable[[typer.Context, str], Iterable[str]]:
    """A completion of what the store has."""

    def complete(ctx: typer.Context, incomplete: str) -> Iterable[str]:
        return [name for name in _in_store(ctx, names) if name.startswith(incomplete)]

    return complete


def _groups(reader: StoreReader) -> Iterable[str]:
    from commitlog_store.groups.positions import committed_offsets

    return committed_offsets(reader).groups()


complete_topic = _completion(lambda reader: reader.topics())
# Those that have positions.
complete_group = _completion(_groups)
# The applications and queries that have committed batches, and the handles of pending half messages.
complete_application = _completion(lambda reader: [one.batch.app_id for one in reader.batches()])
complete_half_message = _completion(lambda reader: [str(one.handle) for one in reader.pending_half_messages()])


def complete_queue(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """The ids of the queues of the topics on the command line."""
    topics = _given(ctx, "topics") or _given(ctx, "topic")

    def ids(reader: StoreReader) -> Iterable[str]:
        known = set(reader.topics())
        return {f"{one}" for topic in topics if topic in known for one in reader.queue_ids(topic)}

    return sorted((one for one in _in_store(ctx, ids) if one.startswith(incomplete)), key=int)


def complete_columns(incomplete: str) -> Iterable[str]:
    """The columns of messages, the last name of a list with commas."""
    head, comma, last = incomplete.rpartition(",")
    given = head.split(",")
    return [f"{head}{comma}{name}" for name in ALL_COLUMNS if name.startswith(last) and name not in given]


def complete_zone(incomplete: str) -> Iterable[str]:
    """The time zones that the system knows."""
    return [zone for zone in ("UTC", "local", *sorted(available_timezones())) if zone.startswith(incomplete)]


def one_of(*values: str) -> Callable[[str], Iterable[str]]:
    """A completion of these values."""

    def complete(incomplete: str) -> Iterable[str]:
        return [value for value in values if value.startswith(incomplete)]

    return complete
