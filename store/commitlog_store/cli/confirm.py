"""Questions before a command changes a store: what it will do, which consumer groups have not read that yet, and y/N.

``clean``, ``topics rm``, ``groups reset``, ``promote``, ``dlq redrive``, ``txn reset``, ``half rollback``, and
``repair`` with ``--accept-lost-log`` or ``--drop-kept`` first show what they will do. On a terminal they ask; elsewhere
they change nothing without ``--yes``, and the exit code is 1. What was shown is what is done: where the store has
changed in between, they show and ask again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from typing import Annotated, Any, TypeVar

import typer

from commitlog_store.cli.render import say
from commitlog_store.groups.positions import GroupPosition
from commitlog_store.paths import is_system_group
from commitlog_store.queries.texts import printable_text
from commitlog_store.queries.unread import Unread, unread_words
from commitlog_store.reader import StoreReader

_Plan = TypeVar("_Plan")

Yes = Annotated[
    bool, typer.Option("--yes", help="Do it without asking. Without a terminal, nothing is done otherwise.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show, whatever else is given.")]

_NOTHING = "Nothing is changed without --yes."


class Changed(Exception):
    """The store has changed since a plan was shown, so that it is not what would be done now: nothing was done."""


def confirmed(question: str, *, yes: bool, dry_run: bool, for_program: bool = False) -> bool:
    """Whether to continue; False with ``dry_run``. Exits with 1 where the answer is no, or there is no terminal.

    ``for_program``: the output is for a program, so no question is asked.
    """
    if dry_run or yes:
        return not dry_run
    sys.stdout.flush()
    if for_program or not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        say(_NOTHING)
        raise typer.Exit(1)
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    say("Nothing is changed.")
    raise typer.Exit(1)


def do_as_shown(
    show: Callable[[], _Plan],
    question: str,
    do: Callable[[_Plan | None], object],
    *,
    yes: bool,
    dry_run: bool = False,
    for_program: bool = False,
) -> None:
    """``show`` what would be done, ask, and ``do`` that; an empty plan ends it. The options are those of ``confirmed``.

    ``do`` raises ``Changed`` for a plan that is not what it would do now: then it is shown and asked again. With
    ``yes``, nothing is shown, and ``do`` is called without a plan.
    """
    if yes and not dry_run:
        do(None)
        return
    while (plan := show()) and confirmed(question, yes=yes, dry_run=dry_run, for_program=for_program):
        try:
            do(plan)
            return
        except Changed:
            say("The store has changed since this was shown. Nothing was done; what would be done now:")


def unread_in(reader: StoreReader, topics: Collection[str]) -> list[Unread]:
    """What consumer groups have not read of these topics, by their positions."""
    return _counted((row, row.lag) for row in reader.groups() if row.topic in topics)


def unread_before(reader: StoreReader, log_start: int) -> list[Unread]:
    """What consumer groups have not read of the messages before a physical offset, by their positions."""
    rows = reader.groups()
    behind = [row for row in rows if row.lag and row.min_offset is not None and row.max_offset is not None]
    wanted = [(row.topic, row.queue_id, log_start, row.min_offset or 0, row.max_offset or 0) for row in behind]
    lost = {
        (row.group, row.topic, row.queue_id): max(first - max(row.committed_offset or 0, row.min_offset or 0), 0)
        for row, first in zip(behind, reader.first_offsets_from(wanted), strict=True)
    }
    return _counted((row, lost.get((row.group, row.topic, row.queue_id), row.lag)) for row in rows)


def _counted(rows: Iterable[tuple[GroupPosition, int | None]]) -> list[Unread]:
    counts: dict[tuple[str, str], int | None] = {}
    for row, messages in rows:
        if messages != 0 and not is_system_group(row.group):
            counted = counts.get((row.group, row.topic), 0)
            counts[row.group, row.topic] = None if messages is None or counted is None else counted + messages
    return [Unread(*key, messages) for key, messages in sorted(counts.items())]


def print_unread(found: Iterable[Unread], *, hint: str = "") -> None:
    """Print a line for each group that has not read everything, and what is not known; ``hint`` says what to do."""
    for one in unread_words(found, hint=hint):
        print(printable_text(one))


def unread_rows(found: Iterable[Unread]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [one._asdict() for one in found]
