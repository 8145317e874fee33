"""The command ``top``: the overview of a store in the terminal, refreshed each second."""

from __future__ import annotations

import sys

import typer

from commitlog_store.cli.options import LOOK, AllOption, CommitLogDir, StorePath, examples
from commitlog_store.errors import InvalidValue

# A server that is gone does not keep the screen from closing for longer.
_RPC_TIMEOUT_S = 5.0


def register(app: typer.Typer) -> None:
    app.command(
        rich_help_panel=LOOK,
        epilog=examples("commitlog top /data/store", "commitlog top grpc://127.0.0.1:8815"),
    )(top)


def top(path: StorePath, commit_log: CommitLogDir = None, show_all: AllOption = False) -> None:
    """Topics by rate, groups by lag, log and disk, refreshed each second until q is pressed.

    It looks from outside, at a directory or a served store, and changes nothing. Keys: s sorts by the next column, r
    turns the order round, / filters by a part of the name, Tab goes to the other table. It needs the extra top.
    """
    try:
        from commitlog_store.cli.top_screen import TopScreen
    except ModuleNotFoundError as error:
        raise InvalidValue(
            f"commitlog top needs the extra top, of which {error.name} is missing: pip install 'pyspark-commitlog[top]'"
        ) from error
    from commitlog_store.queries.store_overview import OverviewLooks
    from commitlog_store.reader import StoreReader

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidValue(
            "commitlog top needs a terminal; commitlog stats, groups ls and info print the same once, for programs too."
        )
    with StoreReader.open(path, store_path_commit_log=commit_log, rpc_timeout_s=_RPC_TIMEOUT_S) as reader:
        TopScreen(OverviewLooks(reader).look, path, shows_system=show_all, interrupt=reader.interrupt_with).run()
