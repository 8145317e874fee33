"""What a server answers, as a client gets it: of the type of its call."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from commitlog_store.errors import RemoteFailed
from commitlog_store.half_message import PendingHalfMessage
from commitlog_store.message import MessageExt
from commitlog_store.queue.skipped import SkippedRange
from commitlog_store.remote.read_calls import READ_CALLS
from commitlog_store.remote.wire import Answer, Call, decode_other


def decode_answer(call: str, body: bytes | memoryview) -> Answer:
    """``RemoteFailed`` for anything but an answer to this call."""
    try:
        answer = Answer(*_decoder(call).decode(body))
    except msgspec.MsgspecError as error:
        raise RemoteFailed(
            f"The server's answer to {call} is not one: {error}. Is it another version of commitlog serve?"
        ) from error
    _make_tuples(answer.value)
    return answer


@functools.cache
def _decoder(call: str) -> msgspec.msgpack.Decoder[Any]:
    """A decoder knows its type; ``msgspec.msgpack.decode`` takes some microseconds to look it up, for each message."""
    kind = tuple.__class_getitem__((int, _call_of(call).answer, int, list[SkippedRange]))
    return msgspec.msgpack.Decoder(kind, dec_hook=decode_other)


def _call_of(name: str) -> Call:
    if name in READ_CALLS:
        return READ_CALLS[name]
    from commitlog_store.remote.calls import CALLS  # readers load a sixth of what these need

    return CALLS[name]


def _make_tuples(value: Any) -> None:
    """Messages hold their keys in tuples, as those that a directory gives."""
    # A ``GetMessageResult``, or ``HalfMessagesAsked``.
    messages = value.messages if hasattr(value, "messages") else value
    for one in messages if isinstance(messages, list) else [messages]:
        message = one.message if isinstance(one, PendingHalfMessage) else one
        if isinstance(message, MessageExt):
            object.__setattr__(message, "keys", tuple(message.keys))
