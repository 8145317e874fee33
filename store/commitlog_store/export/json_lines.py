"""JSON lines of messages, put together column by column: no Python loop over messages where Arrow can do it.

Each column becomes an array of JSON texts (``"orders"``, ``17``, ``null``), and the lines are joined from them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc

# Texts of timestamps, null for those that no calendar has, and the end that all texts share.
TimeTexts: TypeAlias = "Callable[[pa.Array], tuple[pa.StringArray, str]]"

# Scalars have their type given: to infer it from a value, pyarrow looks for the package dateutil each time.
# Years 1 to 9999, in milliseconds.
_LEAST_MS, _MOST_MS = (pa.scalar(value, pa.int64()) for value in (-62_135_596_800_000, 253_402_300_799_999))
_MICROSECONDS = pa.scalar(1000, pa.int64())
_NO_TIME = pa.scalar(None, pa.int64())

_BACKSLASH = ord("\\")
# Bytes of a text that need no escape in JSON.
_PLAIN = bytes(code for code in range(256) if code >= ord(" ") and chr(code) not in '"\\')


def json_lines(table: pa.Table, columns: Sequence[str], times: TimeTexts) -> bytes:
    """One object with the columns for each row. A body that is not UTF-8 text is base64, named ``bodyBase64``."""
    lines = []
    for batch in table.select(list(columns)).to_batches():
        if batch.num_rows:
            parts, begun = [], "{"
            for name in columns:
                label, texts, end = _texts(name, batch.column(name), times)
                parts += [_text(begun + label), texts]
                begun = end + ","
            end = begun[:-1] + "}\n"
            lines.append(_joined(pc.binary_join_element_wise(*parts, _text(end), _text(""))))
    return b"".join(lines)


def _text(text: str) -> pa.StringScalar:
    return pa.scalar(text, pa.string())


def utc_texts(column: pa.Array) -> tuple[pa.StringArray, str]:
    """ISO 8601 in UTC with milliseconds, as ``TimeTexts``."""
    milliseconds = pc.divide(column.cast(pa.int64()), _MICROSECONDS)
    known = pc.and_(pc.greater_equal(milliseconds, _LEAST_MS), pc.less_equal(milliseconds, _MOST_MS))
    milliseconds = pc.if_else(known, milliseconds, _NO_TIME)
    return pc.strftime(milliseconds.cast(pa.timestamp("ms")), format="%Y-%m-%dT%H:%M:%S"), "+00:00"


def _joined(texts: pa.StringArray) -> bytes:
    """All texts of an array one after the other: the bytes that it holds them in."""
    start, stop = texts.offset, texts.offset + len(texts)
    offsets = memoryview(texts.buffers()[1]).cast("i")
    return bytes(memoryview(texts.buffers()[2])[offsets[start] : offsets[stop]])


def _texts(name: str, column: pa.Array, times: TimeTexts) -> tuple[str, pa.StringArray, str]:
    """What stands before each value of a column, the value's JSON text, and what stands after it."""
    label, kind = f'"{name}":', column.type
    if name == "body":
        try:
            column = column.cast(pa.string())
        except pa.ArrowInvalid:
            return "", pa.array([_body(body) for body in column.to_pylist()], pa.string()), ""
        return _quoted(label, _escaped(column))
    if pa.types.is_timestamp(kind):
        return _quoted(label, *times(column))
    if pa.types.is_map(kind):
        return label + "{", _members(column), "}"
    if pa.types.is_string(kind):
        return _quoted(label, _escaped(column))
    return label, column.cast(pa.string()).fill_null("null"), ""


def _quoted(label: str, texts: pa.StringArray, end: str = "") -> tuple[str, pa.StringArray, str]:
    """Texts as JSON strings that end with the same text; the quotes stand outside if no value is null."""
    if not texts.null_count:
        return label + '"', texts, end + '"'
    quoted = pc.binary_join_element_wise(_text('"'), texts, _text(end + '"'), _text(""))
    return label, quoted.fill_null("null"), ""


def _escaped(texts: pa.StringArray) -> pa.StringArray:
    """Texts with the escapes of JSON."""
    # The backslash comes first: the other escapes begin with one.
    for code in sorted(set(_joined(texts).translate(None, _PLAIN)), key=lambda code: code != _BACKSLASH):
        texts = pc.replace_substring(texts, chr(code), json.dumps(chr(code))[1:-1])
    return texts


def _members(maps: pa.MapArray) -> pa.StringArray:
    """Maps from text to text as the members of a JSON object."""
    offsets = maps.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    names, values = (_escaped(part.slice(first, last - first)) for part in (maps.keys, maps.items))
    quote = _text('"')
    pairs = pc.binary_join_element_wise(quote, names, _text('":"'), values, quote, _text(""))
    starts = pc.subtract(offsets, pa.scalar(first, offsets.type))
    return pc.binary_join(pa.ListArray.from_arrays(starts, pairs), _text(","))


def _body(body: bytes | None) -> str:
    if body is None:
        return '"body":null'
    try:
        return '"body":' + orjson.dumps(body.decode()).decode()
    except UnicodeDecodeError:
        return f'"bodyBase64":"{base64.b64encode(body).decode("ascii")}"'
