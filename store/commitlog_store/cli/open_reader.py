"""Readers of the commands that look: from the queues or the log alone, and what damage made them skip."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from commitlog_store.cli.render import say
from commitlog_store.cli.storage_options import NO_STORAGE, Storage
from commitlog_store.queries.texts import counted
from commitlog_store.queue.skipped import SkippedRange
from commitlog_store.reader import StoreReader


class OnDamage(str, enum.Enum):
    """What to do at a damaged record or unit: end with an error, or continue after it and report what was skipped."""

    RAISE = "raise"
    SKIP = "skip"


FromLogOption = Annotated[
    bool, typer.Option("--from-log", help="Derive the queues from the log, which is read as a whole, past damage.")
]
OnDamageOption = Annotated[
    OnDamage,
    typer.Option(
        "--on-damage",
        metavar="raise|skip",
        help="At damage: end with an error, or skip it and report it at the end.",
    ),
]
NoVerifyCrcOption = Annotated[
    bool,
    typer.Option("--no-verify-crc", help="Give bodies as they are, also those that do not match their CRC."),
]


@contextmanager
def open_reader(
    path: str, from_log: bool, on_damage: OnDamage, commit_log: str | None, storage: Storage = NO_STORAGE
) -> Iterator[StoreReader]:
    """A reader of the store, with its archive if ``storage`` names one.

    What it cannot read is logged as it is met; at the end it is counted: exit code 1.
    """
    with storage.open(path, store_path_commit_log=commit_log, from_log=from_log, on_damage=on_damage.value) as reader:
        yield reader
        gaps, strays, skipped = reader.log_gaps, reader.strays, reader.skipped
    if gaps:
        say(f"{counted(len(gaps), 'stretch', 'es')} of the log, {sum(gap.size for gap in gaps)} bytes, cannot be read.")
    if strays:
        found = counted(sum(stray.records for stray in strays), "whole message")
        say(f"{found} are in no queue, since their queue offset or topic is damaged; 'dump-log' lists them.")
    exit_for_skipped(skipped)
    if gaps or strays:
        raise typer.Exit(1)


def say_lost_ends(problems: Sequence[str], store: str) -> bool:
    """Say what ``StoreReader.lost_ends`` found: the command has read to the end. Whether there is any."""
    for problem in problems:
        say(f"Messages are missing: {problem} More: commitlog doctor {store}")
    return bool(problems)


def exit_for_skipped(skipped: Sequence[SkippedRange]) -> None:
    """Say how many messages were skipped; exit code 1 if there are any."""
    if skipped:
        say(f"{counted(sum(one.messages for one in skipped), 'message')} skipped because of damage.")
        raise typer.Exit(1)
