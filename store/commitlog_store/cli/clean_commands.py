"""Commands that delete old messages: ``clean``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from commitlog_store.cli.completion import complete_group, one_of
from commitlog_store.cli.confirm import DryRun, Yes, do_as_shown
from commitlog_store.cli.options import (
    CLEAN,
    AsJson,
    CommitLogDir,
    LockTimeout,
    Output,
    OutputFormat,
    StorePath,
    chosen_output,
    examples,
)
from commitlog_store.cli.values import parse_hours, parse_size
from commitlog_store.errors import InvalidValue

if TYPE_CHECKING:
    from commitlog_store.retention.report import CleanReport

__all__ = ["clean", "register"]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        rich_help_panel=CLEAN,
        epilog=examples(
            "commitlog clean /data/store --older-than 72h --max-bytes 1T",
            "commitlog clean /data/store --older-than 72h --keep-for /data/checkpoints/q1 --yes",
        ),
    )(clean)


_KeepFor = Annotated[
    list[str] | None,
    typer.Option(
        metavar="READER",
        help="Keep what a Spark checkpoint or a consumer group has not read.",
        show_default=False,
        autocompletion=complete_group,
    ),
]
_FileClock = Annotated[
    str,
    typer.Option(
        metavar="CLOCK",
        help="A file's age: 'store' (of its messages) or 'mtime' (as RocketMQ).",
        autocompletion=one_of("store", "mtime"),
    ),
]


def clean(
    path: StorePath,
    commit_log: CommitLogDir = None,
    older_than: Annotated[
        float | None,
        typer.Option(
            parser=parse_hours, metavar="DURATION", help="Delete files older than this: 72h, 7d.", show_default=False
        ),
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(
            parser=parse_size, metavar="SIZE", help="Delete until the log has no more: 500G, 1T.", show_default=False
        ),
    ] = None,
    keep_for: _KeepFor = None,
    keep_at_most: Annotated[
        float,
        typer.Option(parser=parse_hours, metavar="DURATION", help="But nothing older than this.", show_default="7d"),
    ] = parse_hours("7d"),
    clock: _FileClock = "store",
    yes: Yes = False,
    dry_run: DryRun = False,
    lock_timeout: LockTimeout = 0.0,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Delete the oldest files of a store, by age or by bytes. It shows which, and which consumer groups
    have not read them, and asks.

    Files go oldest first, with the queue and index files that point only into them. The last file stays, and what
    delayed messages need that are not delivered yet. Deleting takes the store's lock; a broker deletes its own
    files. Exit code 1 if a file stays only because a reader holds it, and without a terminal and --yes if there is
    anything to delete.
    """
    from commitlog_store.cli.clean import clean_store, print_clean, show_clean
    from commitlog_store.retention.survey import clean_request

    try:
        request = clean_request(
            older_than_hours=older_than,
            max_bytes=max_bytes,
            keep_for=keep_for or (),
            keep_at_most_hours=keep_at_most,
            clock=clock,
        )
    except InvalidValue as error:
        hint = "Give --older-than or --max-bytes." if older_than is None and max_bytes is None else str(error)
        raise typer.BadParameter(hint) from None
    form = chosen_output(output, as_json)
    holders: tuple[str, ...] = ()

    def show() -> CleanReport | None:
        nonlocal holders
        report = show_clean(path, commit_log, request, form)
        holders = report.holders
        return report if report.deleted else None

    def do(shown: CleanReport | None) -> None:
        nonlocal holders
        report = clean_store(path, commit_log, request, lock_timeout, shown)
        print_clean(report, form)
        holders = report.holders

    program = form is not OutputFormat.TABLE
    do_as_shown(show, "Delete them?", do, yes=yes, dry_run=dry_run, for_program=program)
    if holders:
        raise typer.Exit(1)
