"""Columns of the sink: checks the frame's Spark types, and maps its column names to the store's.

This is the check of ``commitlog_store.columnar.input`` in Spark's terms, done on the driver before the first row.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from commitlog_store.columnar.columns import ALIASES, ALL_COLUMNS
from pyspark_commitlog.errors import SchemaError
from pyspark_commitlog.options.values import did_you_mean


def is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType | VarcharType | CharType)


def is_bytes(kind: DataType) -> bool:
    return isinstance(kind, BinaryType) or is_text(kind)


def _is_integer(kind: DataType) -> bool:
    return isinstance(kind, ByteType | ShortType | IntegerType | LongType)


class _Kind(NamedTuple):
    """The types that a column may have: a test, and their names."""

    takes: Callable[[DataType], bool]
    names: str


_TEXT = _Kind(is_text, "STRING")
_INTEGER = _Kind(_is_integer, "INT (or TINYINT, SMALLINT, BIGINT)")
_KINDS: Mapping[str, _Kind] = {
    "body": _Kind(is_bytes, "BINARY or STRING"),
    "topic": _TEXT,
    "tags": _TEXT,
    "keys": _Kind(
        lambda kind: is_text(kind) or (isinstance(kind, ArrayType) and _is_text_or_null(kind.elementType)),
        "STRING or ARRAY<STRING>",
    ),
    "queueId": _INTEGER,
    "shardingKey": _TEXT,
    "properties": _Kind(
        lambda kind: isinstance(kind, MapType) and _is_text_or_null(kind.keyType) and _is_text_or_null(kind.valueType),
        "MAP<STRING,STRING>",
    ),
    "flag": _INTEGER,
    "bornTimestamp": _Kind(lambda kind: isinstance(kind, TimestampType), "TIMESTAMP"),
    "delayLevel": _Kind(
        lambda kind: _is_integer(kind) or is_text(kind) or isinstance(kind, DayTimeIntervalType),
        "INT (or TINYINT, SMALLINT, BIGINT), STRING or INTERVAL DAY TO SECOND",
    ),
}
SINK_COLUMNS: tuple[str, ...] = tuple(_KINDS)

_SPELLING = {name.lower(): name for name in (*SINK_COLUMNS, *ALIASES)}
# Columns of Kafka's sink and source that a message has under another name.
_KAFKAS = {"headers": "properties", "partition": "queueId", "timestamp": "bornTimestamp"}
# Columns that the source gives and the sink cannot write: the store or its host decides these.
_READ_ONLY = {name.lower(): name for name in (*ALL_COLUMNS, "store") if name.lower() not in _SPELLING}


def _is_text_or_null(kind: DataType) -> bool:
    return is_text(kind) or isinstance(kind, NullType)


@dataclass(frozen=True)
class SinkColumns:
    """The columns of a frame. ``names`` are their names in the store, in the frame's order; ``shown`` has the frame's
    own names of these, for errors.
    """

    names: tuple[str, ...]
    shown: Mapping[str, str] = dataclass_field(default_factory=dict, kw_only=True)

    def fault(self, batch: pa.RecordBatch) -> tuple[int, str] | None:
        """The first row that cannot be renamed, and what is wrong with it; all else is left to the store."""
        del batch
        return None

    def rename(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch under the store's names, its data shared."""
        columns = [pa.nulls(len(column)) if _says_nothing(column.type) else column for column in batch.columns]
        return pa.RecordBatch.from_arrays(columns, names=list(self.names))


def _says_nothing(kind: pa.DataType) -> bool:
    """Whether it is the type of ``map()`` or ``map('a', null)``: no properties, or only ones that are left out."""
    return bool(pa.types.is_map(kind)) and (pa.types.is_null(kind.key_type) or pa.types.is_null(kind.item_type))


def check_sink_schema(schema: StructType, *, topic: str | None) -> SinkColumns:
    """Check that each column is known, has its type, and occurs once; ``topic`` is the option's. ``SchemaError``.

    Names are compared without regard to case, as Spark's SQL does.
    """
    _refuse_read_only(schema)
    found: dict[str, str] = {}
    for field in schema.fields:
        name = _known_column(field.name)
        if name in found:
            both = f"columns {found[name]} and {field.name}"
            raise SchemaError(f"The {both} both give a message's {name}; keep one of them.", column=name)
        kind = _KINDS[name]
        # A column of nothing but nulls counts as missing.
        if not kind.takes(field.dataType) and (name == "body" or not isinstance(field.dataType, NullType)):
            found_type = field.dataType.simpleString().upper()
            raise SchemaError(
                f"Column {field.name} is {found_type}; expected {kind.names}{_how_to_cast(name, field)}.", column=name
            )
        found[name] = field.name
    if "body" not in found:
        raise SchemaError(
            "The column body (or value) is missing; it holds the messages' contents: BINARY or STRING.", column="body"
        )
    require_topic(found, topic)
    return SinkColumns(tuple(found), shown=found)


def require_topic(columns: Container[str], topic: str | None) -> None:
    """``SchemaError`` for rows with neither a column topic nor the option."""
    if "topic" not in columns and topic is None:
        raise SchemaError(
            'The rows have no topic: add a column topic, or give one to all with .option("topic", ...).', column="topic"
        )


def _how_to_cast(name: str, field: StructField) -> str:
    """How to cast bytes, such as Kafka's keys, to text, text to a number, and the usual types of times to a timestamp.

    A cast of a number to a timestamp would take it for seconds.
    """
    if _KINDS[name].takes(StringType()) and isinstance(field.dataType, BinaryType):
        return f", as cast({field.name} as string) makes of UTF-8 bytes"
    if _KINDS[name] is _INTEGER and isinstance(field.dataType, StringType):
        return f", as cast({field.name} as int) makes of it"
    if name != "bornTimestamp":
        return ""
    if isinstance(field.dataType, LongType):
        return f", as timestamp_millis({field.name}) makes of milliseconds since 1970 (timestamp_seconds of seconds)"
    if isinstance(field.dataType, TimestampNTZType | DateType | StringType):
        # Not "as timestamp", which is this very type under spark.sql.timestampType=TIMESTAMP_NTZ.
        return f", as cast({field.name} as timestamp_ltz) makes of it"
    return ""


def _known_column(name: str) -> str:
    known = _SPELLING.get(name.lower())
    if known is None:
        kafkas = _KAFKAS.get(name.lower())
        hint = did_you_mean(name, _SPELLING)
        if kafkas is not None:
            hint = f" Kafka's column of that name is {kafkas} here, {_KINDS[kafkas].names}."
        raise SchemaError(
            f"Unknown column {name!r}.{hint} The columns of a message are: {', '.join(_SPELLING.values())}.",
            column=name,
        )
    return ALIASES.get(known, known)


def _refuse_read_only(schema: StructType) -> None:
    """Frames that were read from a store have such columns, so all are reported together, with the remedy."""
    names = [field.name for field in schema.fields if field.name.lower() in _READ_ONLY]
    if names:
        listed = ", ".join(names)
        dropped = ", ".join(f'"{name}"' for name in names)
        raise SchemaError(
            f"These columns can be read but not written, since the store gives them: {listed}. Leave them out, as in "
            f".drop({dropped}).",
            column=names[0],
        )
