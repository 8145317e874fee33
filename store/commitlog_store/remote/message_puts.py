"""Puts of several messages through a server, each by itself: in calls of a bounded size, with a result for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from commitlog_store.engine.put_message import PutMessageResult
from commitlog_store.errors import CommitLogError, InvalidValue, PutNotConfirmed, PutRefused, RemoteFailed
from commitlog_store.message import Message, PutMessageStatus
from commitlog_store.remote.put_wire import MessageFields
from commitlog_store.remote.session import Session
from commitlog_store.remote.table_puts import LARGEST_PART
from commitlog_store.remote.wire import decode_error

# Of one call, whose question has at most 16 MiB; and of a message beside its body, whose properties are bounded.
_CALL_SIZE = 12 << 20
_HEAD_SIZE = 33 << 10


def size_to_put(fields: Sequence[MessageFields]) -> int:
    """The bytes of the bodies of a call. ``PutRefused`` for more than a question holds."""
    size = sum(len(one.body) for one in fields)
    if size > LARGEST_PART:
        raise PutRefused(
            PutMessageStatus.MESSAGE_ILLEGAL,
            f"A put through a server has at most {LARGEST_PART} bytes; these bodies have {size}.",
        )
    return size


def put_together(session: Session, messages: Sequence[Message]) -> list[PutMessageResult | Exception]:
    """See ``RemoteStore.put_together``."""
    if not isinstance(messages, Iterable):
        raise InvalidValue(f"messages is a list of Message, not {messages!r}.")
    outcomes: dict[int, PutMessageResult | Exception] = {}
    sendable: list[tuple[int, MessageFields]] = []
    for place, message in enumerate(messages):
        try:
            sendable.append((place, MessageFields.of(message)))
        except PutRefused as refusal:
            outcomes[place] = PutMessageResult(refusal.status, reason=refusal.reason)
        except Exception as error:  # noqa: BLE001 - the others are put
            outcomes[place] = error
    failed: RemoteFailed | None = None
    for places, fields in _calls(sendable):
        found: Sequence[PutMessageResult | Exception]
        if failed is None:
            found = _put(session, fields)
            failed = next((one for one in found if isinstance(one, RemoteFailed)), None)
        else:
            found = [failed.again() for _ in fields]  # the server was waited for as long as a call may take
        outcomes.update(zip(places, found, strict=True))
    return [outcomes[place] for place in range(len(messages))]


def _calls(sendable: Sequence[tuple[int, MessageFields]]) -> Iterator[tuple[list[int], list[MessageFields]]]:
    """The messages of each call, and their places. A message that is larger than a call goes alone."""
    places: list[int] = []
    fields: list[MessageFields] = []
    size = 0
    for place, one in sendable:
        length = _HEAD_SIZE + len(one.body)
        if fields and size + length > _CALL_SIZE:
            yield places, fields
            places, fields, size = [], [], 0
        places.append(place)
        fields.append(one)
        size += length
    if fields:
        yield places, fields


def _put(session: Session, fields: list[MessageFields]) -> list[PutMessageResult | Exception]:
    try:
        found = session.once("put_together", fields, size=sum(len(one.body) for one in fields))
    except PutNotConfirmed as error:
        return [PutMessageResult(error.status, reason=error.reason) for _ in fields]
    except CommitLogError as error:
        return [error.again() for _ in fields]
    return [decode_error(one) if isinstance(one, bytes) else one for one in found]
