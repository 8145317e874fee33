"""``commitlog half``: lists pending half messages, commits or rolls back one of them, resumes one given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from commitlog_store.cli.completion import complete_half_message
from commitlog_store.cli.confirm import Yes, do_as_shown
from commitlog_store.cli.open_reader import FromLogOption, OnDamage, open_reader
from commitlog_store.cli.options import (
    AS_TABLE,
    TRANSACTIONS,
    CommitLogDir,
    LockTimeout,
    OutputChoice,
    OutputFormat,
    StorePath,
    examples,
)
from commitlog_store.cli.owner_config import open_owner
from commitlog_store.cli.render import says
from commitlog_store.cli.row_output import print_rows
from commitlog_store.cli.storage_options import NO_STORAGE, Storage, takes_storage
from commitlog_store.errors import HalfMessageEnded, HalfMessageNotFound, InvalidValue, MessageNotFound
from commitlog_store.half_message import HalfMessageHandle, PendingHalfMessage
from commitlog_store.queries.half_message_plan import half_message_words
from commitlog_store.queries.texts import printable_text, utc_text
from commitlog_store.reader import StoreReader

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


@takes_storage
def half_list(
    path: StorePath,
    commit_log: CommitLogDir = None,
    from_log: FromLogOption = False,
    output: OutputChoice = AS_TABLE,
    storage: Storage = NO_STORAGE,
) -> None:
    """The half messages that are pending, oldest first. Takes no lock.

    What cannot be read because of damage is reported at the end: exit code 1. Half messages that ended by a damaged op
    message then count as pending.
    """
    with open_reader(path, from_log, OnDamage.SKIP, commit_log, storage) as reader:
        print_pending(reader.pending_half_messages(), output.form())


def half_commit(
    path: StorePath, handle: Handle, commit_log: CommitLogDir = None, lock_timeout: LockTimeout = 0.0
) -> None:
    """Put the message of a half message into its topic, for consumers to read. Takes the store's lock; at an address,
    the server does it.

    Exit code 1 if the handle leads to no half message, or if that has ended before.
    """
    _end(path, HalfMessageHandle.parse(handle), lock_timeout, commit_log, commit=True)


def half_rollback(
    path: StorePath,
    handle: Handle,
    commit_log: CommitLogDir = None,
    yes: Yes = False,
    lock_timeout: LockTimeout = 0.0,
) -> None:
    """Drop a half message: consumers never see it. It shows the message, and asks. Takes the store's lock; at an
    address, the server does it.

    Exit code 1 if the handle leads to no half message, or if that has ended before, and without a terminal and --yes.
    """

    named = HalfMessageHandle.parse(handle)

    def do(_: object) -> None:
        _end(path, named, lock_timeout, commit_log, commit=False)

    with StoreReader.open(path, store_path_commit_log=commit_log, on_damage="skip") as reader:
        pending = next((one for one in reader.pending_half_messages() if one.handle == named), None)
        is_known = pending is not None or bool(reader.skipped)
    # What is not pending cannot be rolled back: the store says why.
    do_as_shown(lambda: show_half_message(named, pending), "Roll it back?", do, yes=yes or not is_known)


def show_half_message(handle: HalfMessageHandle, pending: PendingHalfMessage | None) -> str:
    """Print the half message that would be rolled back; None for one that cannot be read. Returns what it prints."""
    words = half_message_words("roll back", handle, pending)
    for one in words:
        print(printable_text(one))
    return words[0]


def half_resume(
    path: StorePath, message_id: GivenUp, commit_log: CommitLogDir = None, lock_timeout: LockTimeout = 0.0
) -> None:
    """Make a half message pending again that checks have given up. Takes the store's lock; at an address, the server
    does it.

    One that is older than the store's file_reserved_time is given up again by the next check: commit it or roll it back
    before, by the handle that this prints.

    Exit code 1 if the message is none that was given up, is pending already, or was committed.
    """
    with says(InvalidValue, MessageNotFound), open_owner(path, commit_log, lock_timeout) as store:
        resumed = store.half_messages.resume(message_id)
    print(resumed)


def _end(path: str, handle: HalfMessageHandle, lock_timeout_s: float, commit_log: str | None, *, commit: bool) -> None:
    """Commit a half message, or roll it back, and say so."""
    with says(HalfMessageEnded, HalfMessageNotFound), open_owner(path, commit_log, lock_timeout_s) as store:
        if commit:
            store.half_messages.commit(handle)
        else:
            store.half_messages.rollback(handle)
    print(f"{'Committed' if commit else 'Rolled back'} the half message {handle}.")


_COLUMNS = ("handle", "topic", "queueId", "producerGroup", "keys", "bornTimestamp", "checkTimes", "bodySize")


def print_pending(pending: Sequence[PendingHalfMessage], form: OutputFormat) -> None:
    """Print pending half messages: a table with times in UTC for people, milliseconds for programs."""
    rows = [_row(one) for one in pending]
    if form is OutputFormat.TABLE:
        rows = [
            row | {"bornTimestamp": utc_text(one.message.born_timestamp)}
            for row, one in zip(rows, pending, strict=True)
        ]
    print_rows(_COLUMNS, rows, form)


def _row(one: PendingHalfMessage) -> dict[str, object]:
    return {
        "handle": str(one.handle),
        "topic": one.message.topic,
        "queueId": one.message.queue_id,
        "producerGroup": one.handle.producer_group,
        "keys": " ".join(one.message.keys),
        "bornTimestamp": one.message.born_timestamp,
        "checkTimes": one.check_times,
        "bodySize": len(one.message.body),
    }
