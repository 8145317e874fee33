"""Bodies of requests and answers: JSON as RocketMQ's fastjson reads and writes it.

It leaves the quotes off integers that are names of members, ``{0:"127.0.0.1:10911"}``, and writes an object in the
place of such a name: ``{{"brokerName":"b","queueId":0,"topic":"t"}:12}``. Java clients read both back as maps.

Source: RocketMQ ``remoting/protocol/RemotingSerializable.java``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from commitlog_store.serve.rocketmq.answering import system_error

# RocketMQ's DataVersion of a table that has none.
NO_VERSION: Mapping[str, int] = {"counter": 0, "stateVersion": 0, "timestamp": 0}
_Struct = TypeVar("_Struct", bound=msgspec.Struct)
# A text, or a number or a word that is the name of a member. A text that does not end is one up to the body's end: a
# search that began again within it would take a time that grows with the square of the body.
_TEXT_OR_BARE_NAME = re.compile(rb'"(?:[^"\\]|\\.)*+"?|([{,]\s*)(-?[A-Za-z0-9_$]+)(?=\s*:)', re.DOTALL)


def decode_body(body: bytes, kind: type[_Struct], *, most: int) -> _Struct:
    """What a body of at most ``most`` bytes holds. ``RequestFault`` says what is wrong with it."""
    if len(body) > most:
        raise system_error(f"the body of this request has at most {most} bytes, not {len(body)}")
    try:
        try:
            return msgspec.json.decode(body, type=kind, strict=False)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            quoted = _TEXT_OR_BARE_NAME.sub(
                lambda found: found[1] + b'"' + found[2] + b'"' if found[2] else found[0], body
            )
            return msgspec.json.decode(quoted, type=kind, strict=False)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise system_error(f"the body of this request cannot be read: {error}") from None


def encode_body(value: Mapping[str, Any]) -> bytes:
    """The value as JSON; what ``number_names`` and ``object_names`` give may be within it."""
    return msgspec.json.encode(value)


def number_names(table: Mapping[int, Any]) -> msgspec.Raw:
    """An object whose names are numbers without quotes."""
    return _object((str(name).encode(), value) for name, value in table.items())


def object_names(table: Iterable[tuple[Mapping[str, Any], Any]]) -> msgspec.Raw:
    """An object whose names are objects themselves."""
    return _object((msgspec.json.encode(name), value) for name, value in table)


def _object(members: Iterable[tuple[bytes, Any]]) -> msgspec.Raw:
    return msgspec.Raw(b"{" + b",".join(name + b":" + msgspec.json.encode(value) for name, value in members) + b"}")
