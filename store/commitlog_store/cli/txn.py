"""``commitlog txn``: lists the batches that applications and queries committed, and resets an application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer
from rich.table import Table
from rich.text import Text

from commitlog_store.batch_id import CommittedBatch, is_store_application
from commitlog_store.cli.completion import complete_application
from commitlog_store.cli.confirm import Changed, Yes, do_as_shown
from commitlog_store.cli.console import print_table
from commitlog_store.cli.options import (
    AS_TABLE,
    TRANSACTIONS,
    BrokerConf,
    CommitLogDir,
    LockTimeout,
    OutputChoice,
    OutputFormat,
    StorePath,
    examples,
)
from commitlog_store.cli.owner_config import connect_to, is_address, owner_config, refuse_at_address
from commitlog_store.cli.render import says
from commitlog_store.cli.row_output import print_rows
from commitlog_store.cli.storage_options import NO_STORAGE, Storage, takes_storage
from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import InvalidValue
from commitlog_store.queries.forgotten_batches import forgotten_words, last_batch_of, unknown_application
from commitlog_store.queries.texts import printable_text, utc_text
from commitlog_store.reader import StoreReader
from commitlog_store.store import MessageStore


def register(app: typer.Typer) -> None:
    """Add the group ``txn`` and its commands."""
    txn = typer.Typer(help="Batches that applications and streaming queries have committed.")
    txn.command("ls", epilog=examples("commitlog txn ls /data/store", "commitlog txn ls /data/store --json"))(txn_list)
    txn.command("reset", epilog=examples("commitlog txn reset /data/store orders-loader"))(txn_reset)
    app.add_typer(txn, name="txn", rich_help_panel=TRANSACTIONS)


@takes_storage
def txn_list(
    path: StorePath,
    commit_log: CommitLogDir = None,
    output: OutputChoice = AS_TABLE,
    storage: Storage = NO_STORAGE,
) -> None:
    """The last batch of every application or streaming query. Takes no lock."""
    with storage.open(path, store_path_commit_log=commit_log) as reader:
        print_batches(reader.batches(), output.form())


def txn_reset(
    path: StorePath,
    application: Annotated[
        str,
        typer.Argument(metavar="QUERY", help="A query's id, or an application's.", autocompletion=complete_application),
    ],
    commit_log: CommitLogDir = None,
    yes: Yes = False,
    lock_timeout: LockTimeout = 0.0,
    config_file: BrokerConf = None,
) -> None:
    """Forget what a query or application has committed: its next batch is written, whatever its number.
    It shows the last batch, and asks.

    Messages stay as they are. Takes the store's lock; at an address, the server does it. Exit code 1 if the store does
    not know it, and without a terminal and --yes.
    """
    if is_address(path):
        refuse_at_address({"--config": config_file})
        config = MessageStoreConfig(store_path_commit_log=commit_log)
    else:
        config = owner_config(path, config_file, commit_log)

    def do(shown: Forgotten | None) -> None:
        print(forget(path, application, lock_timeout, config, shown))

    with says(InvalidValue):
        do_as_shown(lambda: show_forgotten(path, application, config), "Forget it?", do, yes=yes)


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
            utc_text(batch.store_timestamp),
            str(batch.physical_offset),
        )
    print_table(table)


class Forgotten(NamedTuple):
    """The last batch of an application that is to be forgotten; None for one of the store's own."""

    batch: CommittedBatch | None


def show_forgotten(path: str, application: str, config: MessageStoreConfig) -> Forgotten:
    """Print what would be forgotten. Takes no lock. ``InvalidValue`` if the application has no batches."""
    with StoreReader.open(path, store_path_commit_log=config.store_path_commit_log) as reader:
        batches = reader.batches()
    if is_store_application(application):
        print(printable_text(f"It would forget the position {application!r} of the store itself."))
        return Forgotten(None)
    last = last_batch_of(batches, application)
    if last is None:
        raise unknown_application(path, application, batches)
    for one in forgotten_words(last):
        print(printable_text(one))
    return Forgotten(last)


def forget(
    path: str, application: str, lock_timeout_s: float, config: MessageStoreConfig, shown: Forgotten | None
) -> str:
    """Make the store forget an application. Returns a sentence about it.

    ``InvalidValue`` if it has no batches; ``Changed`` if its last batch is not the one ``shown``.
    """
    opened = (
        connect_to(path, lock_timeout_s)
        if is_address(path)
        else MessageStore.open(path, config, lock_timeout_s=lock_timeout_s)
    )
    with opened as store:
        batches = store.batches()
        if shown is not None and last_batch_of(batches, application) != shown.batch:
            raise Changed
        forgotten = store.forget_batches(application)
    if forgotten is None:
        raise unknown_application(path, application, batches)
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
