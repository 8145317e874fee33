"""Commands that repair a store: ``repair``."""

from __future__ import annotations

from typing import Annotated

import typer

from commitlog_store.cli.options import (
    REPAIR,
    AsJson,
    BrokerConf,
    CommitLogDir,
    LockTimeout,
    Output,
    StorePath,
    chosen_output,
    examples,
)
from commitlog_store.cli.render import ends_wrong

__all__ = ["register", "repair"]


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
        bool, typer.Option("--accept-lost-log", help="Go on with a log whose end, or all of it, is gone.")
    ] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Build all queues and index files again from the log.")
    ] = False,
    drop_kept: Annotated[
        bool, typer.Option("--drop-kept", help="Remove what earlier cuts have kept in 'repair'.")
    ] = False,
    lock_timeout: LockTimeout = 0.0,
    config_file: BrokerConf = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Report what opening a store would lose, and how to save it.

    --cut-at, --accept-lost-log, --rebuild and --drop-kept change the store; without them, not one byte of it changes.

    -o csv has a line for each queue that loses messages; with --drop-kept, one for each removed piece.
    It reads what opening reads, and says which messages are known to be lost; 'doctor --deep' reads all. Exit code 1
    while the store does not open, its log is damaged, or opening it would cut messages off, and also if it is open now.
    """
    from commitlog_store.cli.repair import print_dropped, print_repair
    from commitlog_store.cli.repair import repair as look_or_cut

    form = chosen_output(output, as_json)
    if drop_kept:
        if cut_at is not None or accept_lost_log or rebuild:
            raise typer.BadParameter("It excludes all other changes.", param_hint="--drop-kept")
        print_dropped(path, form)
        return
    report = look_or_cut(
        path,
        cut_at,
        lock_timeout,
        accept_lost_log=accept_lost_log,
        rebuild=rebuild,
        config_file=config_file,
        commit_log=commit_log,
    )
    with ends_wrong(report.loses):
        print_repair(report, form)
