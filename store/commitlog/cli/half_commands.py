"""Commands about half messages: ``half ls``, ``half commit`` and ``half rollback``."""

from __future__ import annotations

from typing import Annotated

import typer

from commitlog.cli.options import TRANSACTIONS, AsJson, LockTimeout, Output, StorePath, chosen_output, examples
from commitlog.cli.render import say
from commitlog.errors import HalfMessageEnded, HalfMessageNotFound
from commitlog.reader import StoreReader

__all__ = ["half_commit", "half_list", "half_rollback", "register"]

Handle = Annotated[str, typer.Argument(metavar="HANDLE", help="As `half ls` shows it.")]


def register(app: typer.Typer) -> None:
    """Add the group ``half`` and its commands."""
    half = typer.Typer(help="Half messages: prepared by a transaction's producer, not yet committed or rolled back.")
    half.command("ls", epilog=examples("commitlog half ls /data/store", "commitlog half ls /data/store --json"))(
        half_list
    )
    example = "/data/store 1365:2:payments:DCF848AB773625DE6A686D5FBD447403"
    half.command("commit", epilog=examples(f"commitlog half commit {example}"))(half_commit)
    half.command("rollback", epilog=examples(f"commitlog half rollback {example}"))(half_rollback)
    app.add_typer(half, name="half", rich_help_panel=TRANSACTIONS)


def half_list(path: StorePath, output: Output = None, as_json: AsJson = False) -> None:
    """The half messages that are pending, oldest first. Takes no lock."""
    from commitlog.cli.half import print_pending

    with StoreReader.open(path) as reader:
        print_pending(reader.pending_half_messages(), chosen_output(output, as_json))


def half_commit(path: StorePath, handle: Handle, lock_timeout: LockTimeout = 0.0) -> None:
    """Put the message of a half message into its topic, for consumers to read. Takes the store's lock.

    Exit code 1 if the handle leads to no half message, or if that has ended before.
    """
    _end(path, handle, lock_timeout, commit=True)


def half_rollback(path: StorePath, handle: Handle, lock_timeout: LockTimeout = 0.0) -> None:
    """Drop a half message: consumers never see it. Takes the store's lock.

    Exit code 1 if the handle leads to no half message, or if that has ended before.
    """
    _end(path, handle, lock_timeout, commit=False)


def _end(path: str, handle: str, lock_timeout: float, *, commit: bool) -> None:
    from commitlog.cli.half import end_half_message

    try:
        print(end_half_message(path, handle, lock_timeout, commit=commit))
    except (HalfMessageEnded, HalfMessageNotFound) as error:
        say(error)
        raise typer.Exit(1) from error
