"""JSON of kept pieces, for ``info``, ``repair`` and ``follow``."""

from __future__ import annotations

from typing import Any

from commitlog_store.cli.render import camel_members
from commitlog_store.recovery.kept import KeptPiece


def kept_to_json(piece: KeptPiece) -> dict[str, Any]:
    """A kept piece as one object."""
    return {
        "path": piece.path,
        "cutAt": piece.start,
        "bytes": piece.size,
        "messages": piece.messages,
        "reason": piece.reason,
        "uncommitted": piece.uncommitted or None,
        "queues": [camel_members(one) for one in piece.lost],
    }
