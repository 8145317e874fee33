"""Commands about consumer groups: ``groups ls``, ``groups lag`` and ``groups reset``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from commitlog_store.cli.completion import complete_group, complete_topic, one_of
from commitlog_store.cli.confirm import DryRun, Yes, do_as_shown
from commitlog_store.cli.open_reader import OnDamage, OnDamageOption
from commitlog_store.cli.options import (
    GROUPS,
    AllOption,
    AsJson,
    CommitLogDir,
    FullOption,
    LockTimeout,
    Output,
    OutputFormat,
    QueueOption,
    StorePath,
    ZoneOption,
    chosen_output,
    examples,
)
from commitlog_store.cli.render import say
from commitlog_store.cli.row_output import print_hidden
from commitlog_store.cli.times import parse_zone
from commitlog_store.errors import InvalidValue
from commitlog_store.groups.positions import GroupPosition
from commitlog_store.paths import is_system_group
from commitlog_store.reader import StoreReader

__all__ = ["groups_lag", "groups_list", "groups_reset", "register"]

_Group = Annotated[str, typer.Argument(metavar="GROUP", help="A consumer group.", autocompletion=complete_group)]
_OptionalGroup = Annotated[
    str | None,
    typer.Argument(
        metavar="GROUP", help="A consumer group; default: all.", autocompletion=complete_group, show_default=False
    ),
]


def register(app: typer.Typer) -> None:
    """Add the group ``groups`` and its commands."""
    groups = typer.Typer(help="Consumer groups: their positions, and how far behind they are.")
    groups.command("ls", epilog=examples("commitlog groups ls /data/store"))(groups_list)
    groups.command(
        "lag", epilog=examples("commitlog groups lag /data/store billing", "commitlog groups lag /data/store --json")
    )(groups_lag)
    groups.command(
        "reset",
        epilog=examples(
            "commitlog groups reset /data/store billing --to earliest --dry-run",
            "commitlog groups reset /data/store billing --topic orders --to 2026-11-21T08:00 --yes",
        ),
    )(groups_reset)
    app.add_typer(groups, name="groups", rich_help_panel=GROUPS)


def groups_list(
    path: StorePath,
    commit_log: CommitLogDir = None,
    show_all: AllOption = False,
    tz: ZoneOption = "UTC",
    full: FullOption = False,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """A row for each consumer group: what waits for it, in all its topics. Takes no lock."""
    from commitlog_store.cli.groups import print_groups

    clock_zone, form = parse_zone(tz), chosen_output(output, as_json)
    with StoreReader.open(path, store_path_commit_log=commit_log) as reader:
        rows = reader.groups()
    shown = [row for row in rows if show_all or not is_system_group(row.group)]
    print_groups(shown, clock_zone, form, full=full)
    _print_hidden(rows, shown, form)


def _print_hidden(rows: Sequence[GroupPosition], shown: Sequence[GroupPosition], form: OutputFormat) -> None:
    if form is OutputFormat.TABLE:
        print_hidden(len({row.group for row in rows} - {row.group for row in shown}), "group")


def groups_lag(
    path: StorePath,
    commit_log: CommitLogDir = None,
    group: _OptionalGroup = None,
    show_all: AllOption = False,
    tz: ZoneOption = "UTC",
    full: FullOption = False,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """A row for each queue of each topic that a group consumes: its position and what waits. Takes no lock.

    lag is the number of waiting messages, behind (lagMs in JSON and CSV) how long the oldest of them has waited. lost
    is the number of messages that were deleted before the group consumed them. Exit code 1 for a group without
    positions.
    """
    from commitlog_store.cli.groups import print_lag

    clock_zone, form = parse_zone(tz), chosen_output(output, as_json)
    with StoreReader.open(path, store_path_commit_log=commit_log) as reader:
        rows = reader.groups(group)
    if group is not None and not rows:
        say(f"The store of {path} has no positions of group {group!r}.")
        raise typer.Exit(1)
    shown = [row for row in rows if group or show_all or not is_system_group(row.group)]
    print_lag(shown, clock_zone, form, full=full)
    _print_hidden(rows, shown, form)


def groups_reset(
    path: StorePath,
    group: _Group,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="earliest, latest, a time (ISO 8601, 2h), or a queue offset.",
            autocompletion=one_of("earliest", "latest"),
        ),
    ],
    commit_log: CommitLogDir = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            help="Only this topic; default: all but the retry topic.",
            autocompletion=complete_topic,
        ),
    ] = None,
    queue: QueueOption = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    lock_timeout: LockTimeout = 0.0,
    on_damage: OnDamageOption = OnDamage.RAISE,
    tz: ZoneOption = "UTC",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Move a group to another position. It shows the positions, what is skipped, and asks.

    A time moves it to the first message that was stored then or later; digits alone are a queue offset, for which
    --topic is needed. A position outside of a queue becomes its nearest end. With --topic, a group needs no position
    yet.

    Setting them takes the store's lock, so no broker may run: it would overwrite the positions. The retry topic and the
    dead letters stay where they are, unless --topic names one. Exit code 1 if there is no queue to move in, and without
    a terminal and --yes.
    """
    from commitlog_store.cli.groups import Move, Target, print_moves, print_skips, reset_group

    form, target = chosen_output(output, as_json), Target.parse(to, topic, parse_zone(tz))
    for_program = form is not OutputFormat.TABLE

    def show() -> list[Move]:
        moves = reset_group(path, group, topic, queue, target, None, on_damage, commit_log)
        print_moves(moves, form)
        if not for_program:
            print_skips(moves)
        return moves

    def do(shown: list[Move] | None) -> None:
        moves = reset_group(path, group, topic, queue, target, lock_timeout, on_damage, commit_log, shown)
        if shown is None:
            print_moves(moves, form)
        else:
            say(f"Group {group!r} has these positions now.")

    try:
        do_as_shown(show, "Set these positions?", do, yes=yes, dry_run=dry_run, for_program=for_program)
    except InvalidValue as error:
        say(error)
        raise typer.Exit(1) from error
