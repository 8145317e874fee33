"""The end of a half message as it would be: its commit or its rollback, in words."""

from __future__ import annotations

from typing import Literal

from commitlog_store.half_message import HalfMessageHandle, PendingHalfMessage
from commitlog_store.queries.texts import utc_text

HalfMessageEnd = Literal["commit", "roll back"]
_THEN = {
    "commit": "Consumers read its message then, and it cannot be rolled back any more.",
    "roll back": "Consumers never see its message then, and it cannot be committed any more.",
}


def half_message_words(end: HalfMessageEnd, handle: HalfMessageHandle, pending: PendingHalfMessage | None) -> list[str]:
    """Of the half message that would be ended; None for one that cannot be read."""
    shown = f"It would {end} the half message {handle}"
    if pending is None:
        shown += ", which cannot be read: the store is damaged."
    else:
        message = pending.message
        keys = f", keys {' '.join(message.keys)}" if message.keys else ""
        shown += (
            f" of {utc_text(message.born_timestamp)} UTC for topic {message.topic}, queue {message.queue_id}{keys}: "
            f"{len(message.body)} bytes."
        )
    return [shown, _THEN[end]]
