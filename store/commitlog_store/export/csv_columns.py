"""Columns of messages as columns of CSV, which are texts.

CSV has no bytes: a body that is UTF-8 text is in ``body``, any other as base64 in ``bodyBase64``. Times are ISO 8601
with milliseconds, and nothing where a calendar has no such year. Properties are a JSON object.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from commitlog_store.export.json_lines import TimeTexts, utc_texts

_BODY, _BODY_BASE64 = "body", "bodyBase64"
_TEXT = pa.string()


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


def csv_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of the CSV columns of these columns of messages: a body has two, all others one."""
    names: list[tuple[str, pa.DataType]] = []
    for name in columns:
        names += [(_BODY, _TEXT), (_BODY_BASE64, _TEXT)] if name == _BODY else [(name, _TEXT)]
    return pa.schema(names)


def csv_batch(batch: pa.RecordBatch, times: TimeTexts = utc_texts) -> pa.RecordBatch:
    """The rows as texts, with the columns of ``csv_schema``."""
    columns: list[pa.Array] = []
    for name in batch.schema.names:
        column = batch.column(name)
        if name == _BODY:
            bodies = _body_texts(column)
            columns += [pa.array(bodies, _TEXT), pa.array(_encoded_bodies(column, bodies), _TEXT)]
        elif pa.types.is_timestamp(column.type):
            texts, end = times(column)
            columns.append(pc.binary_join_element_wise(texts, pa.scalar(end, _TEXT), pa.scalar("", _TEXT)))
        elif pa.types.is_map(column.type):
            rows = (None if row is None else orjson.dumps(dict(row)).decode() for row in column.to_pylist())
            columns.append(pa.array(rows, _TEXT))
        else:
            columns.append(column.cast(_TEXT))
    return pa.RecordBatch.from_arrays(columns, schema=csv_schema(batch.schema.names))
