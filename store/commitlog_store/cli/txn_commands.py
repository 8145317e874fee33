"""Commands about committed batches: ``txn ls`` and ``txn reset``."""

from __future__ import annotations

from typing import Annotated

import typer

from commitlog_store.cli.completion import complete_application
from commitlog_store.cli.options import (
    TRANSACTIONS,
    AsJson,
    BrokerConf,
    CommitLogDir,
    LockTimeout,
    Output,
    StorePath,
    chosen_output,
    examples,
)
from commitlog_store.cli.render import say
from commitlog_store.errors import InvalidValue
from commitlog_store.reader import StoreReader

__all__ = ["register", "txn_list", "txn_reset"]


def register(app: typer.Typer) -> None:
    """Add the group ``txn`` and its commands."""
    txn = typer.Typer(help="Batches that applications and streaming queries have committed.")
    txn.command("ls", epilog=examples("commitlog txn ls /data/store", "commitlog txn ls /data/store --json"))(txn_list)
    txn.command("reset", epilog=examples("commitlog txn reset /data/store orders-loader"))(txn_reset)
    app.add_typer(txn, name="txn", rich_help_panel=TRANSACTIONS)


def txn_list(path: StorePath, commit_log: CommitLogDir = None, output: Output = None, as_json: AsJson = False) -> None:
    """The last batch of every application or streaming query. Takes no lock."""
    from commitlog_store.cli.txn import print_batches

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
    from commitlog_store.cli.txn import forget

    try:
        print(forget(path, application, lock_timeout, config_file, commit_log))
    except InvalidValue as error:
        say(error)
        raise typer.Exit(1) from error
