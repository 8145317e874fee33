"""Commands that repair a store: ``repair``."""

from __future__ import annotations

from typing import Annotated

import typer

from commitlog.cli.options import REPAIR, AsJson, LockTimeout, StorePath, examples

__all__ = ["register", "repair"]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        rich_help_panel=REPAIR,
        epilog=examples("commitlog repair /data/store", "commitlog repair /data/store --cut-at 96593"),
    )(repair)


def repair(
    path: StorePath,
    cut_at: Annotated[
        int | None, typer.Option(min=0, metavar="OFFSET", help="End the log there; keep the rest in 'repair'.")
    ] = None,
    lock_timeout: LockTimeout = 0.0,
    as_json: AsJson = False,
) -> None:
    """Report why a store cannot be opened, and which messages a cut would remove; with --cut-at, cut.

    Opens the store as an owner does, which after a crash recovers it. Exit code 1 when it does not open.
    """
    from commitlog.cli.repair import print_repair
    from commitlog.cli.repair import repair as look_or_cut

    report = look_or_cut(path, cut_at, lock_timeout)
    print_repair(report, as_json=as_json)
    if report.damage is not None and report.kept_in is None:
        raise typer.Exit(1)
