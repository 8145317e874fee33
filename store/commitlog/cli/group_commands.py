"""Commands about consumer groups: ``groups ls``, ``groups lag`` and ``groups reset``."""

from __future__ import annotations

from typing import Annotated

import typer

from commitlog.cli.open_reader import OnDamage, OnDamageOption
from commitlog.cli.options import (
    GROUPS,
    AsJson,
    CommitLogDir,
    LockTimeout,
    Output,
    QueueOption,
    StorePath,
    ZoneOption,
    chosen_output,
    complete_topic,
    examples,
)
from commitlog.cli.render import say
from commitlog.cli.times import parse_zone
from commitlog.errors import InvalidValue
from commitlog.reader import StoreReader

__all__ = ["groups_lag", "groups_list", "groups_reset", "register"]

_Group = Annotated[str, typer.Argument(metavar="GROUP", help="A consumer group.")]
_OptionalGroup = Annotated[
    str | None, typer.Argument(metavar="GROUP", help="A consumer group; default: all.", show_default=False)
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
            "commitlog groups reset /data/store billing --to earliest",
            "commitlog groups reset /data/store billing --topic orders --to 2026-11-21T08:00 --yes",
        ),
    )(groups_reset)
    app.add_typer(groups, name="groups", rich_help_panel=GROUPS)


def groups_list(
    path: StorePath,
    commit_log: CommitLogDir = None,
    zone: ZoneOption = "UTC",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """A row for each consumer group: what waits for it, in all its topics. Takes no lock."""
    from commitlog.cli.groups import print_groups

    clock_zone = parse_zone(zone)
    with StoreReader.open(path, store_path_commit_log=commit_log) as reader:
        print_groups(reader.groups(), clock_zone, chosen_output(output, as_json))


def groups_lag(
    path: StorePath,
    commit_log: CommitLogDir = None,
    group: _OptionalGroup = None,
    zone: ZoneOption = "UTC",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """A row for each queue of each topic that a group consumes: its position and what waits. Takes no lock.

    lag is the number of waiting messages, lagMs how long the oldest of them has waited. lost is the number of messages
    that were deleted before the group consumed them. Exit code 1 for a group without positions.
    """
    from commitlog.cli.groups import print_lag

    clock_zone = parse_zone(zone)
    with StoreReader.open(path, store_path_commit_log=commit_log) as reader:
        rows = reader.groups(group)
    if group is not None and not rows:
        say(f"The store of {path} has no positions of group {group!r}.")
        raise typer.Exit(1)
    print_lag(rows, clock_zone, chosen_output(output, as_json))


def groups_reset(
    path: StorePath,
    group: _Group,
    to: Annotated[
        str, typer.Option("--to", metavar="WHERE", help="earliest, latest, a time (ISO 8601, 2h), or a queue offset.")
    ],
    commit_log: CommitLogDir = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic", "-t", help="Only this topic; default: all but the retry topic.", autocompletion=complete_topic
        ),
    ] = None,
    queue: QueueOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Set the positions. Without it, they are only shown.")] = False,
    lock_timeout: LockTimeout = 0.0,
    on_damage: OnDamageOption = OnDamage.RAISE,
    zone: ZoneOption = "UTC",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Move a group to another position. Without --yes, nothing is changed.

    A time moves it to the first message that was stored then or later; digits alone are a queue offset, for which
    --topic is needed. A position outside of a queue becomes its nearest end. With --topic, a group needs no position
    yet.

    With --yes it takes the store's lock, so no broker may run: it would overwrite the positions. Exit code 1 if there
    is no queue to move in.
    """
    from commitlog.cli.groups import Target, print_moves, reset_group

    form, target = chosen_output(output, as_json), Target.parse(to, topic, parse_zone(zone))
    try:
        moves = reset_group(path, group, topic, queue, target, lock_timeout if yes else None, on_damage, commit_log)
    except InvalidValue as error:
        say(error)
        raise typer.Exit(1) from error
    print_moves(moves, form)
    if not yes:
        say("Nothing is changed without --yes.")
