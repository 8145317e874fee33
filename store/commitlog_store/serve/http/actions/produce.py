"""The action that puts a message into a topic."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping

from commitlog_store.errors import InvalidValue
from commitlog_store.format.message_rules import no_producers_fault
from commitlog_store.java_numbers import MAX_INT
from commitlog_store.message import Message
from commitlog_store.queries.texts import counted
from commitlog_store.reader import StoreReader
from commitlog_store.serve.http.actions.action import Action, ActionAsked, Done, Plan
from commitlog_store.serve.http.pages.views import Values
from commitlog_store.store import MessageStore

# Bytes of a form, in which a byte of a body takes up to three.
_LARGEST_FORM = 1 << 20
_SHOWN = 200


def _message(asked: ActionAsked) -> Message:
    """``InvalidValue``."""
    properties: dict[str, str] = {}
    for line in asked.fields["properties"].splitlines():
        name, separator, value = line.partition("=")
        if line.strip() and (not separator or not name.strip()):
            raise InvalidValue(f"A property is a line NAME=VALUE, not {line[:_SHOWN]!r}.")
        if line.strip():
            properties[name.strip()] = value.strip()
    return Message(
        topic=asked.names["name"],
        body=_body(asked),
        tags=asked.text("tags") or None,
        keys=asked.text("keys").split(),
        properties=properties,
        queue_id=_number("queue", asked.text("queue")),
        delay_level=_number("delay level", asked.text("delay")),
    )


def _body(asked: ActionAsked) -> bytes:
    text = asked.fields["body"]
    if asked.text("form") != "base64":
        return text.encode()
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidValue(f"The body is not Base64: {error}.") from None


def _number(name: str, text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 11 and int(text) <= MAX_INT):
        raise InvalidValue(f"The {name} is a number from 0 on, not {text[:_SHOWN]!r}.")
    return int(text)


def _form(reader: StoreReader, names: Mapping[str, str]) -> Values:
    topic = names["name"]
    return {"topic": topic, "queues": len(_queues(reader, topic))}


def _queues(reader: StoreReader, topic: str) -> list[int]:
    """``TopicNotFound``; ``InvalidValue`` for a topic that takes no message of a producer."""
    queues = reader.queue_ids(topic)
    if fault := no_producers_fault(topic):
        raise InvalidValue(f"{fault}.")
    return queues


def _plan(reader: StoreReader, asked: ActionAsked) -> Plan:
    message, topic = _message(asked), asked.names["name"]
    _queues(reader, topic)
    where = "the topic's queues in turn" if message.queue_id is None else f"queue {message.queue_id}"
    words = [f"It would put a message of {counted(len(message.body), 'byte')} into topic {topic}, by {where}."]
    if message.delay_level:
        words.append(f"Consumers get it after the delay of level {message.delay_level}.")
    words.append("The groups that consume the topic get it as any other message; it cannot be taken back.")
    start = message.body[:_SHOWN]
    rows = [
        ("Tags", message.tags), ("Keys", " ".join(message.keys)),
        ("Properties", ", ".join(f"{name}={value}" for name, value in message.properties.items())),
        ("Body", start.decode(errors="backslashreplace") + ("…" if len(message.body) > _SHOWN else "")),
    ]  # fmt: skip
    return Plan(words=words, state=True, columns=("Field", "Value"), rows=[row for row in rows if row[1]])


def _do(store: MessageStore, asked: ActionAsked, plan: Plan) -> Done:
    del plan
    result = store.put_message(_message(asked)).raise_for_status()
    return Done(
        sentence=(
            f"The message {result.message_id} is in the log at physical offset {result.physical_offset}: queue "
            f"{result.queue_id}, offset {result.queue_offset}."
        ),
        link=f"/messages/{result.physical_offset}",
        label="The message",
    )


def _logged(asked: ActionAsked) -> Mapping[str, object]:
    """Without the body, which may hold what no log may."""
    message = _message(asked)
    names = ("tags", "keys", "queue", "delay")
    given: dict[str, object] = {name: asked.text(name) for name in names if asked.text(name)}
    return given | {
        "properties": " ".join(sorted(message.properties)),
        "bodySize": len(message.body),
        "bodySha256": hashlib.sha256(message.body).hexdigest(),
    }


PRODUCE = Action(
    name="produce",
    path="/topics/{name}/produce",
    title="Produce a message",
    button="Put it",
    fields=("body", "form", "tags", "keys", "queue", "delay", "properties"),
    plan=_plan,
    do=_do,
    form=_form,
    logged=_logged,
    largest_form=_LARGEST_FORM,
)
