"""``commitlog clean``: shows or deletes the oldest files of a store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.filesize import decimal

from commitlog_store.cli.completion import complete_group, one_of
from commitlog_store.cli.confirm import (
    Changed,
    DryRun,
    Yes,
    do_as_shown,
    print_unread,
    unread_before,
    unread_rows,
)
from commitlog_store.cli.console import uncut_console
from commitlog_store.cli.option_groups import takes_groups
from commitlog_store.cli.options import (
    AS_TABLE,
    CLEAN,
    CommitLogDir,
    LockTimeout,
    OutputChoice,
    OutputFormat,
    StorePath,
    examples,
    option,
)
from commitlog_store.cli.owner_config import connect_to, is_address, open_owner
from commitlog_store.cli.render import json_text
from commitlog_store.cli.row_output import print_rows
from commitlog_store.cli.times import Clock, parse_zone
from commitlog_store.cli.values import parse_hours, size_option
from commitlog_store.errors import InvalidValue
from commitlog_store.queries.texts import printable_text
from commitlog_store.queries.unread import Unread
from commitlog_store.reader import StoreReader
from commitlog_store.retention.decision import CleanReport, DoomedFile
from commitlog_store.retention.survey import CleanRequest, clean_request, forecast_clean


def register(app: typer.Typer) -> None:
    app.command(
        rich_help_panel=CLEAN,
        epilog=examples(
            "commitlog clean /data/store --older-than 72h --max-bytes 1T",
            "commitlog clean /data/store --older-than 72h --keep-for /data/checkpoints/q1 --yes",
        ),
    )(clean)


_KeepFor = Annotated[
    list[str] | None,
    option(
        "READER",
        "Keep what a Spark checkpoint or a group has not read, or an archive has not: archive:URL.",
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


@takes_groups
def clean(
    path: StorePath,
    commit_log: CommitLogDir = None,
    older_than: Annotated[
        float | None, option("DURATION", "Delete files older than this: 72h, 7d.", parser=parse_hours)
    ] = None,
    max_bytes: Annotated[
        int | None, option("SIZE", "Delete until the log has no more: 500G, 1T.", parser=size_option)
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
    output: OutputChoice = AS_TABLE,
) -> None:
    """Delete the oldest files of a store, by age or by bytes. It shows which, and which consumer groups
    have not read them, and asks.

    Files go oldest first, with the queue and index files that point only into them. The last file stays, and what
    delayed messages need that are not delivered yet. Deleting takes the store's lock; a broker deletes its own
    files. At the address of a server, the server deletes them; --keep-for names directories of its host. Exit code 1
    if a file stays only because a reader holds it, and without a terminal and --yes if there is anything to delete.
    """
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
    form = output.form()
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


_COLUMNS = ("file", "bytes", "newestMessage", "reason", "overruled")


def show_clean(path: str, commit_log: str | None, request: CleanRequest, form: OutputFormat) -> CleanReport:
    """Print what would be deleted, and the consumer groups that have not read it. Takes no lock.

    The errors of ``survey``.
    """
    report = _forecast(path, commit_log, request)
    with StoreReader.open(path, store_path_commit_log=commit_log) as reader:
        unread = unread_before(reader, report.log_start) if report.deleted else []
    print_clean(report, form, unread)
    return report


def _forecast(path: str, commit_log: str | None, request: CleanRequest) -> CleanReport:
    if not is_address(path):
        return forecast_clean(path, request, store_path_commit_log=commit_log)
    with connect_to(path) as store:
        return replace(store.clean_as(request, dry_run=True), path=path)


def clean_store(
    path: str, commit_log: str | None, request: CleanRequest, lock_timeout_s: float, shown: CleanReport | None
) -> CleanReport:
    """Delete as the store's owner: the files of ``shown``, or without it what the request takes now.

    ``Changed`` when these files would not go now; the errors of opening, and of ``survey``.
    """
    with open_owner(path, commit_log, lock_timeout_s) as store:
        if shown is None:
            return store.clean_as(request)
        now = store.clean_as(request, dry_run=True)
        if _files(now)[: len(shown.deleted)] != _files(shown):
            raise Changed
        first = shown.deleted[0].file.base  # a server's own retention may come between
        done = store.clean_as(replace(request, most=len(shown.deleted), first=first))
        if not done.deleted:
            raise Changed
        return replace(done, held=now.held, holders=now.holders)


def _files(report: CleanReport) -> list[tuple[str, tuple[str, ...]]]:
    """The files, and the readers that they are taken from."""
    return [(one.file.path, one.overruled) for one in report.deleted]


def print_clean(report: CleanReport, form: OutputFormat, unread: Sequence[Unread] = ()) -> None:
    """Print the files and the sum: text for people, one object or a row for each file for programs."""
    rows = [_row(one) for one in report.deleted]
    if form is OutputFormat.CSV:
        print_rows(_COLUMNS, rows, form)
        return
    if form is OutputFormat.JSON:
        print(json_text(_to_json(report, rows) | ({"unread": unread_rows(unread)} if report.dry_run else {})))
        return
    clock = Clock(parse_zone("UTC"))
    console = uncut_console()
    for one, row in zip(report.deleted, rows, strict=True):
        newest = "unknown" if one.file.newest_ms is None else clock.iso(one.file.newest_ms)
        taken = f"; still needed by {', '.join(one.overruled)}" if one.overruled else ""
        console.print(printable_text(f"{row['file']}  {newest}  by {row['reason']}{taken}"), markup=False)
    count = f"{len(report.deleted)} files ({decimal(report.freed_bytes)})"
    if report.dry_run:
        does = "It would delete" if report.deleted else "Nothing to delete:"
        console.print(f"{does} {count} of {printable_text(report.path)}.", markup=False)
    else:
        rest = f", {report.queue_files} consume-queue files and {report.index_files} index files"
        console.print(f"Deleted {count}{rest}. The log begins at {report.log_start} now.", markup=False)
    if report.held is not None:
        name = os.path.basename(report.held.path)
        console.print(printable_text(f"{name} stays for {', '.join(report.holders)}."), markup=False)
    if report.dry_run and report.deleted:
        print_unread(unread, hint=": name them with --keep-for")


def _row(one: DoomedFile) -> dict[str, Any]:
    return {
        "file": os.path.basename(one.file.path),
        "bytes": one.file.end - one.file.base,
        "newestMessage": one.file.newest_ms,
        "reason": one.reason.value,
        "overruled": ", ".join(one.overruled),
    }


def _to_json(report: CleanReport, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "path": report.path,
        "dryRun": report.dry_run,
        "files": rows,
        "freedBytes": report.freed_bytes,
        "logStart": report.log_start,
        "queueFiles": report.queue_files,
        "indexFiles": report.index_files,
        "extFiles": report.ext_files,
        "held": None if report.held is None else os.path.basename(report.held.path),
        "holders": list(report.holders),
    }
