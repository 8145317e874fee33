"""JSON of kept pieces and of the messages in them, for ``info`` and ``repair``."""

from __future__ import annotations

from typing import Any

from commitlog_store.recovery.kept import KeptPiece, LostMessages

LOST_COLUMNS = ("topic", "queueId", "start", "stop", "messages")


def kept_to_json(piece: KeptPiece) -> dict[str, Any]:
    """A kept piece as one object."""
    return {
        "path": piece.path,
        "cutAt": piece.start,
        "bytes": piece.size,
        "messages": piece.messages,
        "reason": piece.reason,
        "uncommitted": piece.uncommitted or None,
        "queues": lost_to_json(piece.lost),
    }


def lost_to_json(lost: list[LostMessages]) -> list[dict[str, Any]]:
    """Lost messages, one object for each queue."""
    return [dict(zip(LOST_COLUMNS, one, strict=True)) for one in lost]
