"""The body of a batch of messages, as producers send it.

Each message: total size 4 · magic 4 · body CRC 4 · flag 4 · body size 4 and body · properties size 2 and properties.

Source: RocketMQ ``common/message/MessageDecoder.java`` (``encodeMessage``, ``decodeMessages``).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from commitlog_store.errors import InvalidValue

_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">H")


class BatchedMessage(NamedTuple):
    """One message of a batch. ``properties`` are the bytes of the text."""

    flag: int
    body: bytes
    properties: bytes


def decode_batch(data: bytes) -> list[BatchedMessage]:
    """The messages. ``InvalidValue`` if the sizes contradict each other."""
    found = []
    at, total, unpack_head, unpack_short = 0, len(data), _HEAD.unpack_from, _SHORT.unpack_from
    try:
        while at < total:
            size, _, _, flag, body_size = unpack_head(data, at)
            body_at = at + _HEAD.size
            body_end = body_at + body_size
            if body_size < 0:
                raise _cut(data, at)
            (properties_size,) = unpack_short(data, body_end)
            properties_at = body_end + _SHORT.size
            end = properties_at + properties_size
            if end > total or end - at != size:
                raise _cut(data, at)
            # The same as BatchedMessage(...), in half the time.
            fields = flag, data[body_at:body_end], data[properties_at:end]
            found.append(tuple.__new__(BatchedMessage, fields))
            at = end
    except struct.error:  # the bytes end before
        raise _cut(data, at) from None
    return found


def _cut(data: bytes, at: int) -> InvalidValue:
    return InvalidValue(
        f"The message at byte {at} of a batch of {len(data)} bytes has sizes that contradict each other."
    )
