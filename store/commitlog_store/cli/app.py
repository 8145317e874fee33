"""The ``commitlog`` application: gathers the commands of the modules beside it.

A module of commands has a function ``register(app)``, which adds them.
"""

from __future__ import annotations

import platform
import sys
from typing import Annotated, Any

import pyarrow as pa
import typer
from typer.core import TyperGroup

from commitlog_store import __version__
from commitlog_store.cli import (
    clean_commands,
    dlq_commands,
    doctor_commands,
    dump_commands,
    export_commands,
    follow_commands,
    group_commands,
    half_commands,
    look_commands,
    message_commands,
    repair_commands,
    salvage_commands,
    schedule_commands,
    topic_commands,
    txn_commands,
    write_commands,
)
from commitlog_store.cli.exit_codes import EXIT_CODES
from commitlog_store.cli.options import CONTEXT

__all__ = ["ReaderGone", "app"]


class ReaderGone(Exception):
    """The reader of our output has closed it. Not an ``OSError``: click would make that an exit code of 1."""


class _Commands(TyperGroup):
    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise ReaderGone from error
        return result


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"commitlog {__version__} (Python {platform.python_version()}, pyarrow {pa.__version__})")
        raise typer.Exit


def _print_man_page(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        from commitlog_store.cli.man_page import man_page

        print(man_page(ctx.command, EXIT_CODES), end="")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    man: Annotated[
        bool,
        typer.Option("--man", callback=_print_man_page, is_eager=True, help="Print the manual page, for 'man -l -'."),
    ] = False,
) -> None:
    """Inspect a RocketMQ store directory: no broker, no lock. Only the commands under Write, Mirror,
    Repair, Transactions and Delete change a store, and groups reset, dlq redrive, topics create and topics rm.

    Data goes to stdout, everything else to stderr.
    """
    del version, man


app = typer.Typer(
    cls=_Commands,
    callback=_root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings=CONTEXT,
    epilog="Exit codes:\n" + "\n".join(f"  {code:3}  {meaning}" for code, meaning in EXIT_CODES.items()),
)

for _module in (
    doctor_commands,
    look_commands,
    message_commands,
    dump_commands,
    export_commands,
    write_commands,
    follow_commands,
    repair_commands,
    salvage_commands,
    schedule_commands,
    txn_commands,
    half_commands,
    group_commands,
    dlq_commands,
    topic_commands,
    clean_commands,
):
    _module.register(app)
