"""Parser of the input of ``commitlog produce``: messages from lines of text or JSON.

A line is a body, or a JSON object with the names that message columns have::

    {"body": "...", "topic": "orders", "tags": "paid", "keys": ["k1", "k2"], "queueId": 0, "properties": {"a": "b"}}
"""

from __future__ import annotations

import base64
import binascii
import enum
import io
import json
import select
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import IO, Any

import pyarrow as pa

from commitlog.config import MessageStoreConfig
from commitlog.format.message_rules import no_producers_fault

__all__ = ["BadLine", "Defaults", "LineFormat", "MessageBatch", "read_batches"]

_READ_SIZE = 1 << 20
# A batch is also put when its bodies have this many bytes.
_BATCH_SIZE = 32 << 20
_LARGEST = 2**63 - 1
# Bytes of a line beside its body: as JSON the other fields, each byte of text in up to six.
_SLACK = 1 << 20
_JSON_GROWTH = 6


class LineFormat(str, enum.Enum):
    """The format of a line: the text of a body, or a JSON object."""

    LINES = "lines"
    NDJSON = "ndjson"


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


_SCHEMA = pa.schema(
    [
        ("body", pa.binary()),
        ("topic", pa.string()),
        ("tags", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("queueId", pa.int64()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("flag", pa.int64()),
        ("delayLevel", pa.int64()),
        ("shardingKey", pa.string()),
    ]
)
_FIELDS = ("body", "bodyBase64", *_SCHEMA.names[1:])
_TEXTS = ("topic", "tags", "shardingKey")
_NUMBERS = ("queueId", "flag", "delayLevel")


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
        row = _parse_json(line)
    for name, value in (("topic", defaults.topic), ("tags", defaults.tags), ("queueId", defaults.queue_id)):
        if row.get(name) is None:
            row[name] = value
    if row.get("keys") is None and defaults.key is not None:
        row["keys"] = [defaults.key]
    if row["topic"] is None:
        raise ValueError("it has no topic; give it a field 'topic', or all messages one with --topic")
    if fault := no_producers_fault(str(row["topic"])):
        raise ValueError(fault)
    return row


def _parse_json(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg} at character {error.pos + 1}") from None
    if not isinstance(found, dict):
        raise ValueError("expected a JSON object, found another value")
    for name in found:
        if name not in _FIELDS:
            near = get_close_matches(name, _FIELDS, n=1, cutoff=0.5)
            hint = f", did you mean {near[0]!r}" if near else ""
            raise ValueError(f"unknown field {name!r}{hint}? The fields are: {', '.join(_FIELDS)}")
    row = {name: value for name, value in found.items() if value is not None}
    _check_types(row)
    row["body"] = _body(row)
    return row


def _check_types(row: dict[str, Any]) -> None:
    for name, value in row.items():
        if name in _TEXTS:
            _require_text(name, value)
        elif name in _NUMBERS:
            if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST:
                raise ValueError(f"{name} is an integer, not {_short(value)}")
        elif name == "properties":
            if not isinstance(value, dict):
                raise ValueError(f"properties is an object of strings, not {_short(value)}")
            for key, text in value.items():
                _require_text(f"the name of property {key!r}", key)
                _require_text(f"property {key!r}", text)
    if "keys" in row:
        keys = [row["keys"]] if isinstance(row["keys"], str) else row["keys"]
        if not isinstance(keys, list):
            raise ValueError(f"keys is a string or a list of strings, not {_short(keys)}")
        for key in keys:
            _require_text("a key", key)
        row["keys"] = keys
    if "properties" in row:
        row["properties"] = list(row["properties"].items())


def _require_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{name} is a string, not {_short(value)}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{name} holds half of a surrogate pair, which is not text") from None


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _body(row: dict[str, Any]) -> bytes:
    if ("body" in row) == ("bodyBase64" in row):
        found = "both" if "body" in row else "neither"
        raise ValueError(f"expected one of the fields 'body' and 'bodyBase64', found {found}")
    if "body" in row:
        _require_text("body", row["body"])
        return str(row["body"]).encode("utf-8")
    _require_text("bodyBase64", row["bodyBase64"])
    try:
        return base64.b64decode(row.pop("bodyBase64"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"bodyBase64 is not base64: {error}") from None
