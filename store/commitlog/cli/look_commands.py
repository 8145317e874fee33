"""Commands that look at a whole store: ``info`` and ``verify``."""

from __future__ import annotations

from typing import Annotated

import typer

from commitlog.cli import render, summary
from commitlog.cli.options import LOOK, AsJson, StorePath
from commitlog.cli.render import say
from commitlog.errors import StoreOpenError
from commitlog.reader import StoreReader

__all__ = ["info", "register", "verify"]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel=LOOK)(info)
    app.command(rich_help_panel=LOOK)(verify)


def info(
    path: StorePath,
    as_json: AsJson = False,
    queues: Annotated[bool, typer.Option("--queues", help="One row per queue, not per topic.")] = False,
    sizes: Annotated[
        bool, typer.Option("--sizes", help="Also the bytes of each queue's messages. Reads all consume queues.")
    ] = False,
) -> None:
    """Topics, queues, offsets and times of a store (UTC), and with --sizes the bytes of each queue."""
    with StoreReader.open(path) as reader:
        found = summary.summarize(reader, with_sizes=sizes)
    if as_json:
        print(render.json_text(found.to_json()))
    else:
        render.print_summary(found, with_queues=queues, with_sizes=sizes)


def verify(path: StorePath, as_json: AsJson = False) -> None:
    """Check every record, unit and index entry against each other. Reads everything, changes nothing.

    Exit code 1 for an error; notes (normal after a crash or beside an owner at work) are not errors.
    """
    from commitlog.cli.progress import progress_bar
    from commitlog.cli.verify import print_report
    from commitlog.verify.store import verification_report

    try:
        with progress_bar("verifying") as progress:
            report = verification_report(path, progress=progress)
    except StoreOpenError as error:
        say(error)
        raise typer.Exit(2) from error
    print_report(report, as_json=as_json)
    if report.errors:
        raise typer.Exit(1)
