"""``commitlog txn``: lists the batches that applications and queries committed, and resets an application."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from commitlog_store.batch_id import CommittedBatch
from commitlog_store.cli.completion import complete_application
from commitlog_store.cli.console import print_table
from commitlog_store.cli.options import (
    TRANSACTIONS,
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
from commitlog_store.cli.owner_config import owner_config
from commitlog_store.cli.render import printable_text, say
from commitlog_store.cli.row_output import print_rows
from commitlog_store.errors import InvalidValue
from commitlog_store.reader import StoreReader
from commitlog_store.store import MessageStore


def register(app: typer.Typer) -> None:
    """Add the group ``txn`` and its commands."""
    txn = typer.Typer(help="Batches that applications and streaming queries have committed.")
    txn.command("ls", epilog=examples("commitlog txn ls /data/store", "commitlog txn ls /data/store --json"))(txn_list)
    txn.command("reset", epilog=examples("commitlog txn reset /data/store orders-loader"))(txn_reset)
    app.add_typer(txn, name="txn", rich_help_panel=TRANSACTIONS)


def txn_list(path: StorePath, commit_log: CommitLogDir = None, output: Output = None, as_json: AsJson = False) -> None:
    """The last batch of every application or streaming query. Takes no lock."""
    with StoreReader.open(path, store_path_commit_log=commit_log) as reader:
        print_batches(reader.batches(), chosen_output(output, as_json))


def txn_reset(
    path: StorePath,
    application: Annotated[
        str,
        typer.Argument(metavar="QUERY", help="A query's id, or an application's.", autocompletion=complete_application),
    ],
    commit_log: CommitLogDir = None,
    lock_timeout: LockTimeout = 0.0,
    config_file: BrokerConf = None,
) -> None:
    """Forget what a query or application has committed: its next batch is written, whatever its number.

    Messages stay as they are. Takes the store's lock. Exit code 1 if the store does not know it.
    """
    try:
        print(forget(path, application, lock_timeout, config_file, commit_log))
    except InvalidValue as error:
        say(error)
        raise typer.Exit(1) from error


_COLUMNS = ("application", "version", "fingerprint", "rows", "storeTimestamp", "physicalOffset", "end")


def print_batches(batches: Sequence[CommittedBatch], form: OutputFormat) -> None:
    """Print the last batch of each application: a table for people, one object or row each for programs."""
    if form is not OutputFormat.TABLE:
        print_rows(_COLUMNS, map(_row, batches), form)
        return
    columns = ("application", "version", "fingerprint", "rows", "committed (UTC)", "physical offset")
    table = Table(*columns, box=None, pad_edge=False)
    for batch in batches:
        table.add_row(
            Text(printable_text(batch.batch.app_id)),
            str(batch.batch.version),
            Text(printable_text(batch.batch.fingerprint) or "-"),
            str(batch.rows),
            _time(batch),
            str(batch.physical_offset),
        )
    print_table(table)


def forget(
    path: str, application: str, lock_timeout_s: float, config_file: str | None = None, commit_log: str | None = None
) -> str:
    """Make the store forget an application. Returns a sentence about it. ``InvalidValue`` if it has no batches."""
    with MessageStore.open(path, owner_config(path, config_file, commit_log), lock_timeout_s=lock_timeout_s) as store:
        forgotten = store.forget_batches(application)
        known = ", ".join(repr(batch.batch.app_id) for batch in store.batches()) or "none"
    if forgotten is None:
        raise InvalidValue(f"The store of {path} has no batches of {application!r}; it has: {known}.")
    return f"Forgot {application!r}, whose last batch was {forgotten.batch.version}."


def _row(batch: CommittedBatch) -> dict[str, object]:
    return {
        "application": batch.batch.app_id,
        "version": batch.batch.version,
        "fingerprint": batch.batch.fingerprint,
        "rows": batch.rows,
        "storeTimestamp": batch.store_timestamp,
        "physicalOffset": batch.physical_offset,
        "end": batch.end,
    }


def _time(batch: CommittedBatch) -> str:
    stored = datetime.fromtimestamp(batch.store_timestamp / 1000, timezone.utc)
    return stored.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
