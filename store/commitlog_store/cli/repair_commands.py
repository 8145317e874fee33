"""Commands that repair a store: ``repair``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from commitlog_store.cli.confirm import Changed, Yes, do_as_shown
from commitlog_store.cli.options import (
    REPAIR,
    AsJson,
    BrokerConf,
    CommitLogDir,
    LockTimeout,
    Output,
    OutputFormat,
    StorePath,
    chosen_output,
    examples,
)
from commitlog_store.cli.render import ends_wrong

if TYPE_CHECKING:
    from commitlog_store.repair import RepairReport

__all__ = ["register", "repair"]

_GO_ON = "Continue without the lost part of the log? Its files cannot be put back after that."


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        rich_help_panel=REPAIR,
        epilog=examples("commitlog repair /data/store", "commitlog repair /data/store --cut-at 96593"),
    )(repair)


def repair(
    path: StorePath,
    commit_log: CommitLogDir = None,
    cut_at: Annotated[
        int | None, typer.Option(min=0, metavar="OFFSET", help="End the log there; keep the rest in 'repair'.")
    ] = None,
    accept_lost_log: Annotated[
        bool, typer.Option("--accept-lost-log", help="Continue with a log whose end, or all of it, is gone.")
    ] = False,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="Build all queues, and an index that is in use, again from the log."),
    ] = False,
    drop_kept: Annotated[
        bool, typer.Option("--drop-kept", help="Remove what earlier cuts have kept in 'repair'.")
    ] = False,
    yes: Yes = False,
    lock_timeout: LockTimeout = 0.0,
    config_file: BrokerConf = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Report what opening a store would lose, and how to save it.

    --cut-at, --accept-lost-log, --rebuild and --drop-kept change the store; without them, not one byte of it changes.
    --accept-lost-log shows what is lost, and asks. Exit code 1 without a terminal and --yes: nothing is changed then.

    -o csv has a line for each queue that loses messages; with --drop-kept, one for each removed piece.
    It reads what opening reads, and says which messages are known to be lost; 'doctor --deep' reads all. Exit code 1
    while the store does not open, its log is damaged, or opening it would cut messages off, and also if it is open now.
    """
    from commitlog_store.cli.owner_config import owner_config
    from commitlog_store.cli.repair import loses_log, print_dropped, print_repair
    from commitlog_store.cli.repair import repair as look_or_change

    form = chosen_output(output, as_json)
    if drop_kept:
        if cut_at is not None or accept_lost_log or rebuild:
            raise typer.BadParameter("It excludes all other changes.", param_hint="--drop-kept")
        print_dropped(path, form)
        return
    config = owner_config(path, config_file, commit_log)

    def show() -> RepairReport | None:
        report = look_or_change(path, config)
        print_repair(report, form, asks=loses_log(report))
        return report if loses_log(report) else None

    def do(shown: RepairReport | None) -> None:
        if shown is not None and str(look_or_change(path, config).damage) != str(shown.damage):
            raise Changed
        report = look_or_change(
            path,
            config,
            cut_at=cut_at,
            accept_lost_log=accept_lost_log,
            rebuild=rebuild,
            lock_timeout_s=lock_timeout,
        )
        with ends_wrong(report.loses):
            print_repair(report, form)

    is_asked = accept_lost_log and not yes and loses_log(look_or_change(path, config))
    for_program = form is not OutputFormat.TABLE
    do_as_shown(show, _GO_ON, do, yes=not is_asked, for_program=for_program)
