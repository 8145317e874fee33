"""Messages that hold positions of a consumer group, committed with a batch: ``rmq_sys_commitlog_positions``, queue 0.

The body is JSON::

    {"group": "billing", "offsets": {"orders": {"0": 12, "1": 9}}}

It stands for itself whatever consumerOffset.json says: opening the store applies those that the file lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from commitlog_store.java_numbers import MAX_INT, MAX_LONG

_Offset = Annotated[int, msgspec.Meta(ge=0, le=MAX_LONG)]
_QueueId = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT)]


class _Positions(msgspec.Struct):
    group: str
    offsets: dict[str, dict[_QueueId, _Offset]]


def encode_positions(group: str, positions: Mapping[tuple[str, int], int]) -> bytes:
    """The body for positions ``{(topic, queue id): next queue offset}``."""
    offsets: dict[str, dict[int, int]] = {}
    for (topic, queue_id), offset in positions.items():
        offsets.setdefault(topic, {})[queue_id] = offset
    return msgspec.json.encode(_Positions(group, offsets))


def decode_positions(body: bytes) -> tuple[str, dict[tuple[str, int], int]] | None:
    """Group and positions of a body; None for other bytes, which another program put there."""
    try:
        found = msgspec.json.decode(body, type=_Positions)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found.group, {
        (topic, queue_id): offset for topic, queues in found.offsets.items() for queue_id, offset in queues.items()
    }
