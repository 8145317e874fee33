"""Arguments and options that several commands have, and the groups of commands in the help."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "LOOK",
    "REPAIR",
    "TIME_HELP",
    "TRANSACTIONS",
    "WRITE",
    "AsJson",
    "CountOption",
    "LockTimeout",
    "QueueOption",
    "SizeOption",
    "StorePath",
    "Topic",
]

LOOK = "Look (read only)"
WRITE = "Write"
REPAIR = "Repair"
TRANSACTIONS = "Transactions"

TIME_HELP = "ISO 8601, UTC unless it says otherwise, or milliseconds"

StorePath = Annotated[str, typer.Argument(metavar="PATH", help="The store directory (it contains 'commitlog').")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for programs: one object per line.")]
QueueOption = Annotated[
    int | None, typer.Option("--queue", "-q", min=0, help="Only this queue; default: all, in log order.")
]

SizeOption = Annotated[
    int | None, typer.Option(min=1, help="Bytes of a file; for a new store only.", show_default=False)
]
CountOption = Annotated[int | None, typer.Option(min=1, help="Of index files created from now on.", show_default=False)]
LockTimeout = Annotated[float, typer.Option(min=0, help="Seconds to wait for another owner.")]
