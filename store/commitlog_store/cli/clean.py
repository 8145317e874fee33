"""``commitlog clean``: shows or deletes old files, and prints the report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.filesize import decimal

from commitlog_store.cli.confirm import Changed, Unread, print_unread, unread_before, unread_rows
from commitlog_store.cli.console import uncut_console
from commitlog_store.cli.options import OutputFormat
from commitlog_store.cli.owner_config import owner_config
from commitlog_store.cli.render import json_text, printable_text
from commitlog_store.cli.row_output import print_rows
from commitlog_store.cli.times import Clock, parse_zone
from commitlog_store.reader import StoreReader
from commitlog_store.retention.decision import DoomedFile
from commitlog_store.retention.report import CleanReport
from commitlog_store.retention.survey import CleanRequest, forecast_clean
from commitlog_store.store import MessageStore

__all__ = ["clean_store", "print_clean", "show_clean"]

_COLUMNS = ("file", "bytes", "newestMessage", "reason", "overruled")


def show_clean(path: str, commit_log: str | None, request: CleanRequest, form: OutputFormat) -> CleanReport:
    """Print what would be deleted, and the consumer groups that have not read it. Takes no lock.

    The errors of ``survey``.
    """
    report = forecast_clean(path, request, store_path_commit_log=commit_log)
    with StoreReader.open(path, store_path_commit_log=commit_log) as reader:
        unread = unread_before(reader, report.log_start) if report.deleted else []
    print_clean(report, form, unread)
    return report


def clean_store(
    path: str, commit_log: str | None, request: CleanRequest, lock_timeout_s: float, shown: CleanReport | None
) -> CleanReport:
    """Delete under the store's lock: the files of ``shown``, or without it what the request takes now.

    ``Changed`` when these files would not go now; the errors of opening, and of ``survey``.
    """
    with MessageStore.open(path, owner_config(path, commit_log=commit_log), lock_timeout_s=lock_timeout_s) as store:
        if shown is None:
            return store.clean_as(request)
        now = store.clean_as(request, dry_run=True)
        if _files(now)[: len(shown.deleted)] != _files(shown):
            raise Changed
        done = store.clean_as(replace(request, most=len(shown.deleted)))
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
