"""``commitlog half``: lists pending half messages, commits or rolls back one of them, resumes one given up."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from commitlog_store.cli.options import OutputFormat
from commitlog_store.cli.owner_config import owner_config
from commitlog_store.cli.row_output import print_rows
from commitlog_store.half_message import HalfMessageHandle, PendingHalfMessage
from commitlog_store.store import MessageStore

__all__ = ["end_half_message", "print_pending", "resume_half_message"]

_COLUMNS = ("handle", "topic", "queueId", "producerGroup", "keys", "bornTimestamp", "checkTimes", "bodySize")


def print_pending(pending: Sequence[PendingHalfMessage], form: OutputFormat) -> None:
    """Print pending half messages: a table with times in UTC for people, milliseconds for programs."""
    rows = [_row(one) for one in pending]
    if form is OutputFormat.TABLE:
        rows = [row | {"bornTimestamp": _time(one)} for row, one in zip(rows, pending, strict=True)]
    print_rows(_COLUMNS, rows, form)


def end_half_message(path: str, handle: str, lock_timeout_s: float, commit_log: str | None, *, commit: bool) -> str:
    """Commit a half message, or roll it back. Returns a sentence about it. The errors are those of the service."""
    named = HalfMessageHandle.parse(handle)
    with MessageStore.open(path, owner_config(path, commit_log=commit_log), lock_timeout_s=lock_timeout_s) as store:
        if commit:
            store.half_messages.commit(named)
        else:
            store.half_messages.rollback(named)
    return f"{'Committed' if commit else 'Rolled back'} the half message {named}."


def resume_half_message(path: str, message_id: str, lock_timeout_s: float, commit_log: str | None) -> str:
    """Make a given-up half message pending again. Returns its handle. The errors are those of the service."""
    with MessageStore.open(path, owner_config(path, commit_log=commit_log), lock_timeout_s=lock_timeout_s) as store:
        return str(store.half_messages.resume(message_id))


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


def _time(one: PendingHalfMessage) -> str:
    try:
        born = datetime.fromtimestamp(one.message.born_timestamp / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return str(one.message.born_timestamp)
    return born.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
