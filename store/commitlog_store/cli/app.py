"""The ``commitlog`` application: finds the commands in the modules beside it.

A module of commands has a function ``register(app)``, which adds them, and is listed in ``_MODULES``.
"""

from __future__ import annotations

import gc
import platform
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Annotated, Any, cast

import typer
import typer.main
from typer.core import TyperGroup

from commitlog_store import __version__
from commitlog_store.cli.exit_codes import EXIT_CODES
from commitlog_store.cli.options import CONTEXT


class ReaderGone(Exception):
    """The reader of our output has closed it. Not an ``OSError``: click would make that an exit code of 1."""


# The module beside this one that has each command, in the order of the help.
_MODULES = {
    "doctor": "doctor",
    "info": "look_commands",
    "offset-at": "look_commands",
    "stats": "look_commands",
    "top": "top",
    "verify": "look_commands",
    "cat": "message_commands",
    "tail": "message_commands",
    "get": "message_commands",
    "query": "message_commands",
    "dump-log": "dump",
    "dump-queue": "dump",
    "dump-index": "dump",
    "export": "export",
    "produce": "produce",
    "archive": "archive",
    "restore": "archive",
    "serve": "serve",
    "token": "serve",
    "follow": "follow",
    "promote": "follow",
    "repair": "repair",
    "salvage": "salvage",
    "clean": "clean",
    "schedule": "schedule",
    "txn": "txn",
    "half": "half",
    "groups": "groups",
    "dlq": "dlq",
    "topics": "topics",
}


class _LazyCommands(Mapping[str, Any]):
    """The commands by name. A module is imported when one of its commands is asked for: most are slow to import."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        module_name = _MODULES[name]
        if name not in self._loaded:
            gc.disable()  # imports make no garbage, and a tenth of their time goes into looking for it
            try:
                module = import_module(f"commitlog_store.cli.{module_name}")
            finally:
                gc.freeze()
                gc.enable()
            part = typer.Typer(callback=_no_callback, rich_markup_mode="rich")
            module.register(part)
            self._loaded |= cast("TyperGroup", typer.main.get_command(part)).commands
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


def _no_callback() -> None:
    """With a callback, an application of a single command is a group too."""


class _Commands(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = cast("MutableMapping[str, Any]", _LazyCommands())

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise ReaderGone from error
        return result


def _print_version(wanted: bool) -> None:
    if wanted:
        import pyarrow as pa

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
    """Inspect a RocketMQ store directory: no broker, no lock.

    The commands under Write, Mirror, Repair, Transactions and Delete change a store. Of the others, only groups reset,
    dlq redrive, topics create, topics rm, and serve without --read-only do.

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
