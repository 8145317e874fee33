"""Commands about half messages: ``half ls``, ``half commit``, ``half rollback`` and ``half resume``."""

from __future__ import annotations

from typing import Annotated

import typer

from commitlog_store.cli.completion import complete_half_message
from commitlog_store.cli.open_reader import FromLogOption, OnDamage, open_reader
from commitlog_store.cli.options import (
    TRANSACTIONS,
    AsJson,
    CommitLogDir,
    LockTimeout,
    Output,
    StorePath,
    chosen_output,
    examples,
)
from commitlog_store.cli.render import say
from commitlog_store.errors import HalfMessageEnded, HalfMessageNotFound, InvalidValue, MessageNotFound

__all__ = ["half_commit", "half_list", "half_resume", "half_rollback", "register"]

Handle = Annotated[
    str, typer.Argument(metavar="HANDLE", help="As `half ls` shows it.", autocompletion=complete_half_message)
]
GivenUp = Annotated[
    str, typer.Argument(metavar="MESSAGE_ID", help="The id of the message in TRANS_CHECK_MAX_TIME_TOPIC.")
]


def register(app: typer.Typer) -> None:
    """Add the group ``half`` and its commands."""
    half = typer.Typer(help="Half messages: prepared by a transaction's producer, not yet committed or rolled back.")
    half.command("ls", epilog=examples("commitlog half ls /data/store", "commitlog half ls /data/store --json"))(
        half_list
    )
    example = "/data/store 1365:2:payments:DCF848AB773625DE6A686D5FBD447403"
    half.command("commit", epilog=examples(f"commitlog half commit {example}"))(half_commit)
    half.command("rollback", epilog=examples(f"commitlog half rollback {example}"))(half_rollback)
    given_up = "/data/store 7F00000100002A9F0000000000000555"
    half.command("resume", epilog=examples(f"commitlog half resume {given_up}"))(half_resume)
    app.add_typer(half, name="half", rich_help_panel=TRANSACTIONS)


def half_list(
    path: StorePath,
    commit_log: CommitLogDir = None,
    from_log: FromLogOption = False,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The half messages that are pending, oldest first. Takes no lock.

    What cannot be read because of damage is reported at the end: exit code 1. Half messages that ended by a damaged op
    message then count as pending.
    """
    from commitlog_store.cli.half import print_pending

    with open_reader(path, from_log, OnDamage.SKIP, commit_log) as reader:
        print_pending(reader.pending_half_messages(), chosen_output(output, as_json))


def half_commit(
    path: StorePath, handle: Handle, commit_log: CommitLogDir = None, lock_timeout: LockTimeout = 0.0
) -> None:
    """Put the message of a half message into its topic, for consumers to read. Takes the store's lock.

    Exit code 1 if the handle leads to no half message, or if that has ended before.
    """
    _end(path, handle, lock_timeout, commit_log, commit=True)


def half_rollback(
    path: StorePath, handle: Handle, commit_log: CommitLogDir = None, lock_timeout: LockTimeout = 0.0
) -> None:
    """Drop a half message: consumers never see it. Takes the store's lock.

    Exit code 1 if the handle leads to no half message, or if that has ended before.
    """
    _end(path, handle, lock_timeout, commit_log, commit=False)


def half_resume(
    path: StorePath, message_id: GivenUp, commit_log: CommitLogDir = None, lock_timeout: LockTimeout = 0.0
) -> None:
    """Make a half message pending again that checks have given up. Takes the store's lock.

    One that is older than the store's file_reserved_time is given up again by the next check: commit it or roll it back
    before, by the handle that this prints.

    Exit code 1 if the message is none that was given up, is pending already, or was committed.
    """
    from commitlog_store.cli.half import resume_half_message

    try:
        print(resume_half_message(path, message_id, lock_timeout, commit_log))
    except (InvalidValue, MessageNotFound) as error:
        say(error)
        raise typer.Exit(1) from error


def _end(path: str, handle: str, lock_timeout: float, commit_log: str | None, *, commit: bool) -> None:
    from commitlog_store.cli.half import end_half_message

    try:
        print(end_half_message(path, handle, lock_timeout, commit_log, commit=commit))
    except (HalfMessageEnded, HalfMessageNotFound) as error:
        say(error)
        raise typer.Exit(1) from error
