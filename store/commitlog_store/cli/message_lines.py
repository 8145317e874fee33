"""Parser of the input of ``commitlog produce``: messages from lines of text or JSON.

A line is a body, or a JSON object with the names that message columns have::

    {"body": "...", "topic": "orders", "tags": "paid", "keys": ["k1", "k2"], "queueId": 0, "properties": {"a": "b"}}

The lines of ``cat --json`` and ``export`` are taken back: what only a store gives is ignored, as
``columnar/input.py`` has it for tables. A text of ``keys`` has them separated by spaces, as in a store.
"""

from __future__ import annotations

import io
import json
import re
import select
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from difflib import get_close_matches
from typing import IO, Annotated, Any

import msgspec
import pyarrow as pa

from commitlog_store.cli.options import LineFormat
from commitlog_store.columnar.columns import ASSIGNED_COLUMNS, PUT_COLUMNS
from commitlog_store.config import MessageStoreConfig
from commitlog_store.format.message_rules import STORE_PROPERTIES, no_producers_fault
from commitlog_store.format.properties import KEY_SEPARATOR, ORIGIN_MESSAGE_ID, RETRY_TOPIC
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.paths import DLQ_TOPIC_PREFIX, MOST_QUEUES, RETRY_TOPIC_PREFIX

_READ_SIZE = 1 << 20
# A batch is also put when its bodies have this many bytes.
_BATCH_SIZE = 32 << 20
# Bytes of a line beside its body: as JSON the other fields, each byte of text in up to six.
_SLACK = 1 << 20
_JSON_GROWTH = 6


class BadLine(Exception):
    """A line that is not a message. Its number counts from 1."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"Line {number}: {reason}.")


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """Values for messages without their own."""

    topic: str | None = None
    tags: str | None = None
    key: str | None = None
    queue_id: int | None = None


_TYPES = {name: column.row_type for name, column in PUT_COLUMNS.items()}
_SCHEMA = pa.schema({**_TYPES, "delayLevel": pa.string()})


_Long = Annotated[int, msgspec.Meta(ge=-MAX_LONG, le=MAX_LONG)]


class MessageLine(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of a JSON line, and their types; null is the same as none."""

    body: str | None = None
    bodyBase64: bytes | None = None
    topic: str | None = None
    tags: str | None = None
    keys: str | list[str] | None = None
    queueId: _Long | None = None
    properties: dict[str, str] | None = None
    flag: _Long | None = None
    bornTimestamp: datetime | _Long | None = None
    delayLevel: _Long | str | None = None
    shardingKey: str | None = None
    # What only a store gives.
    queueOffset: Any = None
    physicalOffset: Any = None
    storeTimestamp: Any = None
    storeSize: Any = None
    msgId: Any = None
    uniqKey: Any = None
    bornHost: Any = None
    storeHost: Any = None
    sysFlag: Any = None
    bodyCrc: Any = None
    reconsumeTimes: Any = None
    preparedTransactionOffset: Any = None


_DECODER = msgspec.json.Decoder(MessageLine)
_ASSIGNED = tuple(name for name in MessageLine.__struct_fields__ if name in ASSIGNED_COLUMNS)
assert len(_ASSIGNED) == len(ASSIGNED_COLUMNS)
_FIELDS = tuple(name for name in MessageLine.__struct_fields__ if name not in ASSIGNED_COLUMNS)
# The words for the types that are not a string.
_EXPECTED = {
    "bodyBase64": "a string of base64",
    "keys": "a string or a list of strings",
    "properties": "an object of strings",
    "bornTimestamp": "a time in ISO 8601 or in milliseconds",
    "delayLevel": "a level, or its time such as '10s'",
    **dict.fromkeys(("queueId", "flag"), "an integer"),
}
# What a consumer group notes of a message that it gives back: in another topic than the group's own, it means nothing.
_GROUPS_PROPERTIES = frozenset({RETRY_TOPIC, ORIGIN_MESSAGE_ID, "RECONSUME_TIME"})
_GROUPS_TOPICS = (DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX)
# In the messages of msgspec: the field of the line that has another type.
_FAULTY_FIELD = re.compile(r" - at `\$\.([A-Za-z0-9]+)")


@dataclass
class MessageBatch:
    """Messages that are put together, and the line number of each."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    size: int = 0

    def add(self, row: dict[str, Any], number: int) -> None:
        self.rows.append(row)
        self.numbers.append(number)
        self.size += len(row["body"])

    def part(self, start: int, stop: int | None = None) -> MessageBatch:
        """Some of the messages, as a batch of their own."""
        rows = self.rows[start:stop]
        return MessageBatch(rows, self.numbers[start:stop], sum(len(row["body"]) for row in rows))

    def table(self) -> pa.Table:
        """The columns that ``MessageStore.put_messages`` takes."""
        columns = {name: pa.array([row.get(name) for row in self.rows], kind) for name, kind in _kinds()}
        return pa.table(columns)


def _kinds() -> list[tuple[str, pa.DataType]]:
    return [(column.name, column.type) for column in _SCHEMA]


def read_batches(
    stream: IO[bytes],
    line_format: LineFormat,
    defaults: Defaults,
    batch_size: int,
    *,
    max_message_size: int = MessageStoreConfig.max_message_size,
) -> Iterator[MessageBatch]:
    """The messages of a stream, in batches of at most ``batch_size``; a smaller batch if no more lines are waiting.

    ``BadLine`` at a line that is not a message, or much longer than a body of ``max_message_size`` bytes makes it,
    after the messages before it were yielded.
    """
    batch = MessageBatch()
    longest = max_message_size * (_JSON_GROWTH if line_format is LineFormat.NDJSON else 1) + _SLACK
    for number, line, more in _lines(stream, longest):
        if line is not None:
            try:
                if len(line) > longest:
                    raise ValueError(f"it has more than {longest} bytes; a body has at most {max_message_size}")
                row = _parse(line, line_format, defaults)
            except ValueError as error:
                if batch.rows:
                    yield batch
                raise BadLine(number, str(error)) from None
            if row is not None:
                batch.add(row, number)
        if batch.rows and (not more or len(batch.rows) >= batch_size or batch.size >= _BATCH_SIZE):
            yield batch
            batch = MessageBatch()


def _lines(stream: IO[bytes], longest: int) -> Iterator[tuple[int, bytes | None, bool]]:
    """Number and bytes of each line, and whether more are waiting; None without a line.

    A line of more than ``longest`` bytes is cut, so that an endless line does not fill the memory.
    """
    number, size = 0, 0
    pieces: list[bytes] = []
    read = getattr(stream, "read1", stream.read)
    while data := read(_READ_SIZE):
        *whole, rest = data.split(b"\n")
        for line in whole:
            number += 1
            yield number, b"".join((*pieces, line)), True
            pieces, size = [], 0
        pieces.append(rest)
        size += len(rest)
        if size > longest:
            break
        if not _is_waiting(stream):
            yield number, None, False
    if size:
        yield number + 1, b"".join(pieces), False
    yield number, None, False


def _is_waiting(stream: IO[bytes]) -> bool:
    """Whether reading would not block: a pipe or terminal has bytes, or has ended."""
    try:
        return bool(select.select([stream.fileno()], [], [], 0)[0])
    except (OSError, ValueError, io.UnsupportedOperation):
        return True


def _parse(line: bytes, line_format: LineFormat, defaults: Defaults) -> dict[str, Any] | None:
    """The message of a line; None for a line without one. ``ValueError`` names the fault, without a full stop."""
    if line_format is LineFormat.LINES:
        row: dict[str, Any] = {"body": line.removesuffix(b"\r")}
    elif not line.strip():
        return None
    else:
        row = _parse_json(line, defaults.topic)
    for name, value in (("topic", defaults.topic), ("tags", defaults.tags), ("queueId", defaults.queue_id)):
        if row.get(name) is None:
            row[name] = value
    if row.get("keys") is None and defaults.key is not None:
        row["keys"] = [defaults.key]
    if row["topic"] is None:
        raise ValueError("it has no topic; give it a field 'topic', or all messages one with --topic")
    if fault := no_producers_fault(str(row["topic"])):
        raise ValueError(fault)
    if row["topic"] != defaults.topic and (fault := _groups_topic_fault(str(row["topic"]))):
        raise ValueError(fault)
    if row["queueId"] is not None and row["queueId"] >= MOST_QUEUES:
        raise ValueError(f"its queueId is {row['queueId']}; it must be 0 to {MOST_QUEUES - 1}")
    return row


def _groups_topic_fault(topic: str) -> str | None:
    """Why a line may not name a consumer group's topic: a message that was read there would fall back into it."""
    if not topic.startswith(_GROUPS_TOPICS):
        return None
    group = topic.removeprefix(DLQ_TOPIC_PREFIX).removeprefix(RETRY_TOPIC_PREFIX)
    return (
        f"its topic {topic!r} belongs to a consumer group. 'commitlog dlq redrive PATH {group}' gives the group its "
        f"dead letters again; to put lines there all the same, name it: --topic '{topic}'"
    )


def _parse_json(line: bytes, default_topic: str | None) -> dict[str, Any]:
    try:
        found = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(_fault(line, error)) from None
    if (found.body is None) == (found.bodyBase64 is None):
        which = "neither" if found.body is None else "both"
        raise ValueError(f"expected one of the fields 'body' and 'bodyBase64', found {which}")
    row = {name: value for name in _SCHEMA.names if (value := getattr(found, name)) is not None}
    row["body"] = found.bodyBase64 if found.body is None else found.body.encode()
    if isinstance(found.keys, str):
        row["keys"] = found.keys.split(KEY_SEPARATOR)
    if found.delayLevel is not None:
        row["delayLevel"] = str(found.delayLevel)
    if isinstance(found.bornTimestamp, datetime):
        row["bornTimestamp"] = _milliseconds(found.bornTimestamp)
    if found.properties is not None:
        was_read = any(getattr(found, name) is not None for name in _ASSIGNED)
        of_group = (found.topic or default_topic or "").startswith(_GROUPS_TOPICS)
        ignored = STORE_PROPERTIES | (frozenset() if of_group else _GROUPS_PROPERTIES) if was_read else frozenset()
        row["properties"] = [one for one in found.properties.items() if one[0] not in ignored]
    return row


def _milliseconds(when: datetime) -> int:
    """A time in milliseconds since the epoch; in UTC unless it says otherwise."""
    when = when if when.tzinfo else when.replace(tzinfo=timezone.utc)
    return round(when.timestamp() * 1000)


def _fault(line: bytes, error: Exception) -> str:
    """The reason why a line was refused, with the place or the value; it is looked for once more, at leisure."""
    try:
        found = json.loads(line)
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    except UnicodeEncodeError:
        return "it holds half of a surrogate pair, which is not text"
    except RecursionError:
        return "it is nested too deeply"
    except json.JSONDecodeError as fault:
        return f"it is not JSON: {fault.msg} at character {fault.pos + 1}"
    if not isinstance(found, dict):
        return "expected a JSON object, found another value"
    for name in found:
        if name not in _FIELDS and name not in _ASSIGNED:
            near = get_close_matches(name, _FIELDS, n=1, cutoff=0.5)
            hint = f", did you mean {near[0]!r}" if near else ""
            return f"unknown field {name!r}{hint}? The fields are: {', '.join(_FIELDS)}"
    place = _FAULTY_FIELD.search(str(error))
    if place is None:
        return str(error)
    name = place[1]
    return f"{name} is {_EXPECTED.get(name, 'a string')}, not {_short(found.get(name))}"


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
