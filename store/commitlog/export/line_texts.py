"""Columns of messages as lines of JSON and as columns of CSV.

A JSON line is what ``commitlog cat --json`` prints. JSON and CSV have no bytes: a body that is UTF-8 text is written as
``body``, any other as base64 under the name ``bodyBase64``. Times are ISO 8601 in UTC with milliseconds, and null where
a calendar has no such year. In CSV, properties are a JSON object.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["csv_batch", "csv_schema", "json_lines"]

_BODY, _BODY_BASE64 = "body", "bodyBase64"
_TEXT = pa.string()
# Years 1 to 9999, which ISO 8601 can name, in milliseconds.
_LEAST_MS, _MOST_MS = -62_135_596_800_000, 253_402_300_799_999


def json_lines(batch: pa.RecordBatch) -> bytes:
    """A JSON object and a line end for each row."""
    names = batch.schema.names
    columns = [_json_values(batch.column(name), is_body=name == _BODY) for name in names]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if _BODY in names:
        texts = columns[names.index(_BODY)]
        for place, encoded in enumerate(_encoded_bodies(batch.column(_BODY), texts)):
            if encoded is not None:
                del rows[place][_BODY]
                rows[place][_BODY_BASE64] = encoded
    dumps, option = orjson.dumps, orjson.OPT_APPEND_NEWLINE
    return b"".join([dumps(row, option=option) for row in rows])


def _json_values(column: pa.Array, *, is_body: bool) -> list[Any]:
    if is_body:
        return _body_texts(column)
    if pa.types.is_timestamp(column.type):
        return list(_times(column).to_pylist())
    if pa.types.is_map(column.type):
        return [None if row is None else dict(row) for row in column.to_pylist()]
    return list(column.to_pylist())


def _body_texts(bodies: pa.Array) -> list[str | None]:
    """The bodies as text; None for one that is not UTF-8."""
    try:
        return list(bodies.cast(_TEXT).to_pylist())
    except pa.ArrowInvalid:
        return [None if body is None else _text_or_none(body) for body in bodies.to_pylist()]


def _encoded_bodies(bodies: pa.Array, texts: Sequence[str | None]) -> list[str | None]:
    """The bodies that are not text, as base64; None for the others."""
    if None not in texts:
        return [None] * len(texts)
    pairs = zip(bodies.to_pylist(), texts, strict=True)
    return [None if body is None or text is not None else base64.b64encode(body).decode() for body, text in pairs]


def _text_or_none(body: bytes) -> str | None:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _times(column: pa.Array) -> pa.StringArray:
    milliseconds = pc.divide(column.cast(pa.int64()), 1000)
    within = pc.and_(pc.greater_equal(milliseconds, _LEAST_MS), pc.less_equal(milliseconds, _MOST_MS))
    known = pc.if_else(within, milliseconds, pa.scalar(None, pa.int64())).cast(pa.timestamp("ms"))
    return pc.strftime(known, format="%Y-%m-%dT%H:%M:%S+00:00")


def csv_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of the CSV columns of these columns of messages: a body has two, all others one."""
    names: list[tuple[str, pa.DataType]] = []
    for name in columns:
        names += [(_BODY, _TEXT), (_BODY_BASE64, _TEXT)] if name == _BODY else [(name, _TEXT)]
    return pa.schema(names)


def csv_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows as texts, with the columns of ``csv_schema``."""
    columns: list[pa.Array] = []
    for name in batch.schema.names:
        column = batch.column(name)
        if name == _BODY:
            texts = _body_texts(column)
            columns += [pa.array(texts, _TEXT), pa.array(_encoded_bodies(column, texts), _TEXT)]
        elif pa.types.is_timestamp(column.type):
            columns.append(_times(column))
        elif pa.types.is_map(column.type):
            rows = (None if row is None else orjson.dumps(dict(row)).decode() for row in column.to_pylist())
            columns.append(pa.array(rows, _TEXT))
        else:
            columns.append(column.cast(_TEXT))
    return pa.RecordBatch.from_arrays(columns, schema=csv_schema(batch.schema.names))
