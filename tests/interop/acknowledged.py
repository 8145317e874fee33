"""Messages that were acknowledged to their writers, and what a store must hold because of it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.interop.command_process import Json
from tests.interop.operations import NAME

# Transaction states, prepared and rolled back, with which RocketMQ stores 0 as the queue offset.
_WITHOUT_UNIT = (4, 12)


@dataclass(frozen=True, kw_only=True)
class Acknowledged:
    """A message that was acknowledged to its writer. ``fields`` are those known of it, by answers' names.

    Prepared messages and those that were rolled back are in the log, but in no queue.
    """

    name: str
    fields: dict[str, Any]
    properties: dict[str, str]
    in_queue: bool


def acknowledged(operation: Json, reply: Json) -> list[Acknowledged]:
    """The messages of a put that is over. Anything but PUT_OK fails: no test gives a store reason to refuse."""
    assert reply["status"] == "PUT_OK", f"{reply} for {str(operation)[:2_000]}"
    return [_message(given, place) for given, place in zip(operation["messages"], reply["messages"], strict=True)]


def _message(given: Json, place: Json) -> Acknowledged:
    fields = {name: value for name, value in place.items() if value is not None}
    in_queue = given["sysFlag"] not in _WITHOUT_UNIT
    if not in_queue:
        fields["queueOffset"] = 0
    fields |= {
        "flag": given["flag"],
        "bodySha256": hashlib.sha256(base64.b64decode(given["body"])).hexdigest(),
    }
    properties = dict(given["properties"])
    if given["keys"]:
        properties["KEYS"] = " ".join(given["keys"])
    if given["tags"]:
        properties["TAGS"] = given["tags"]
    return Acknowledged(name=properties[NAME], fields=fields, properties=properties, in_queue=in_queue)


def names_of(messages: Iterable[Json]) -> list[str]:
    """The names of messages as RocketMQ answers them, in order; frame records of transactions have none."""
    return [message["properties"][NAME] for message in messages if NAME in message["properties"]]


def assert_holds(messages: list[Json], wanted: Iterable[Acknowledged]) -> None:
    """Every message that was acknowledged is among RocketMQ's ``messages``, as it was put; and none is there twice."""
    names = names_of(messages)
    assert len(names) == len(set(names)), "a message is there twice"
    stored = {message["properties"][NAME]: message for message in messages if NAME in message["properties"]}
    for message in wanted:
        assert message.name in stored, f"{message} was acknowledged, and is lost"
        found = stored[message.name]
        assert message.fields.items() <= found.items(), f"put {message.fields}, stored {found}"
        assert message.properties.items() <= found["properties"].items()
