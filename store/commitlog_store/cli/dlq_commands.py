"""Commands about dead letters: ``dlq ls``, ``dlq redrive`` and ``dlq export``."""

from __future__ import annotations

import enum
from collections import Counter
from typing import Annotated

import typer

from commitlog_store.cli.completion import complete_group
from commitlog_store.cli.confirm import DryRun, Yes, do_as_shown
from commitlog_store.cli.export_commands import export
from commitlog_store.cli.open_reader import NoVerifyCrcOption, OnDamage, OnDamageOption, exit_for_skipped
from commitlog_store.cli.options import (
    GROUPS,
    AllOption,
    AsJson,
    CommitLogDir,
    LockTimeout,
    Output,
    Since,
    StorePath,
    Until,
    ZoneOption,
    chosen_output,
    examples,
)
from commitlog_store.cli.render import say
from commitlog_store.cli.times import Clock, parse_zone
from commitlog_store.errors import InvalidValue
from commitlog_store.paths import DLQ_TOPIC_PREFIX, is_system_group, validate_group
from commitlog_store.reader import StoreReader

__all__ = ["dlq_export", "dlq_list", "dlq_redrive", "register"]

_Group = Annotated[str, typer.Argument(metavar="GROUP", help="A consumer group.", autocompletion=complete_group)]
_OptionalGroup = Annotated[
    str | None,
    typer.Argument(
        metavar="GROUP",
        help="A consumer group; default: all.",
        show_default=False,
        autocompletion=complete_group,
    ),
]


class _To(str, enum.Enum):
    RETRY = "retry"
    TOPIC = "topic"


def register(app: typer.Typer) -> None:
    """Add the group ``dlq`` and its commands."""
    dlq = typer.Typer(help="Dead letters: messages that consumer groups have given up.")
    dlq.command("ls", epilog=examples("commitlog dlq ls /data/store", "commitlog dlq ls . billing --json"))(dlq_list)
    dlq.command(
        "redrive",
        epilog=examples(
            "commitlog dlq redrive /data/store billing --dry-run",
            "commitlog dlq redrive /data/store billing --yes",
            "commitlog dlq redrive /data/store billing --to topic -n 1 --yes",
        ),
    )(dlq_redrive)
    dlq.command(
        "export",
        epilog=examples("commitlog dlq export /data/store billing --to ndjson:dead.ndjson"),
    )(dlq_export)
    app.add_typer(dlq, name="dlq", rich_help_panel=GROUPS)


def dlq_list(
    path: StorePath,
    group: _OptionalGroup = None,
    commit_log: CommitLogDir = None,
    show_all: AllOption = False,
    tz: ZoneOption = "UTC",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """A row for each consumer group with dead letters: how many, and how many were not put back. Takes no lock.

    oldest is the store time of the first one that was not put back, newest that of the last one. 'cat' prints the
    messages of the topic %DLQ%GROUP. Exit code 1 for a group without dead letters.
    """
    from commitlog_store.cli.dlq import print_dead_letters

    form, clock = chosen_output(output, as_json), Clock(parse_zone(tz))
    with StoreReader.open(path, store_path_commit_log=commit_log) as reader:
        rows = reader.dead_letters(group)
    if group is not None and not rows:
        say(f"The store of {path} has no dead letters of group {group!r}.")
        raise typer.Exit(1)
    print_dead_letters((one for one in rows if show_all or group or not is_system_group(one.group)), clock, form)


def dlq_redrive(
    path: StorePath,
    group: _Group,
    commit_log: CommitLogDir = None,
    to: Annotated[
        _To,
        typer.Option(
            "--to",
            metavar="retry|topic",
            help="'retry' or 'topic': the group's retry topic, or the topic that each message was sent to.",
        ),
    ] = _To.RETRY,
    count: Annotated[
        int | None,
        typer.Option(
            "--count", "-n", min=1, metavar="COUNT", help="At most this many, the oldest.", show_default=False
        ),
    ] = None,
    on_damage: OnDamageOption = OnDamage.RAISE,
    no_verify_crc: NoVerifyCrcOption = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    lock_timeout: LockTimeout = 0.0,
) -> None:
    """Give a consumer group its dead letters again, each exactly once. It shows how many, and asks.

    They go to %RETRY%GROUP, which this group alone reads; with --to topic to the topic that each was sent to first,
    where other groups get it again too. They count as never consumed. The dead letters stay in %DLQ%GROUP, and the
    position of the group there says which were put back. Takes the store's lock, so no broker may run. Exit code 1
    for a group that never had dead letters, and without a terminal and --yes if there is anything to put back.

    Damage ends it after those before. --on-damage skip puts back those after it too, says how many were skipped, and
    never puts these back later; the exit code is 1 then. --no-verify-crc puts damaged bodies back as they are.
    """
    from commitlog_store.cli.dlq import Redrive, redrive_dead_letters, show_redrive

    wanted = Redrive(
        group=group,
        most=count,
        to_topic=to is _To.TOPIC,
        on_damage=on_damage.value,
        verify_crc=not no_verify_crc,
    )

    def do(shown: Counter[str] | None) -> None:
        done, skipped = redrive_dead_letters(path, commit_log, wanted, lock_timeout, shown)
        print(done)
        exit_for_skipped(skipped)

    try:
        validate_group(group)
        _refuse_unknown(path, commit_log, group)
        do_as_shown(lambda: show_redrive(path, commit_log, wanted), "Put them back?", do, yes=yes, dry_run=dry_run)
    except InvalidValue as error:
        say(error)
        raise typer.Exit(1) from error


def _refuse_unknown(path: str, commit_log: str | None, group: str) -> None:
    """Exit with 1 for a group without a dead-letter topic: its name may be misspelt."""
    with StoreReader.open(path, store_path_commit_log=commit_log) as reader:
        known = [one.group for one in reader.dead_letters()]
    if group not in known:
        have = f"; groups that have some: {', '.join(known[:10])}" if known else ""
        say(f"The store of {path} has no dead letters of group {group!r}{have}.")
        raise typer.Exit(1)


def dlq_export(
    path: StorePath,
    group: _Group,
    to: Annotated[str, typer.Option("--to", metavar="TARGET", help="parquet:DIR, ndjson:FILE or csv:FILE.")],
    commit_log: CommitLogDir = None,
    since: Since = None,
    until: Until = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the export that filled this target.")] = False,
    on_damage: OnDamageOption = OnDamage.RAISE,
    no_verify_crc: NoVerifyCrcOption = False,
    as_json: AsJson = False,
) -> None:
    """Copy the dead letters of a consumer group into Parquet, JSON lines or CSV: 'export' of the topic %DLQ%GROUP."""
    try:
        validate_group(group)
    except InvalidValue as error:
        raise typer.BadParameter(str(error), param_hint="GROUP") from error
    export(
        path,
        to,
        commit_log,
        topic=[DLQ_TOPIC_PREFIX + group],
        since=since,
        until=until,
        resume=resume,
        on_damage=on_damage,
        no_verify_crc=no_verify_crc,
        as_json=as_json,
    )
