"""The ``commitlog`` application: gathers the commands of the modules beside it.

A module of commands has a function ``register(app)``, which adds them.
"""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.core import TyperGroup

from commitlog.cli import look_commands, message_commands, repair_commands, txn_commands, write_commands

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


app = typer.Typer(
    cls=_Commands,
    help="Inspect a RocketMQ store directory: no broker, no lock; only 'produce', 'repair' and 'txn reset' write.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

for _module in (look_commands, message_commands, write_commands, repair_commands, txn_commands):
    _module.register(app)
