"""The columns in which messages are handed over in bulk: which there may be, their types, and what a row of them means.

==================  ==============================  ===================================================================
column              type                            meaning; null or no column
==================  ==============================  ===================================================================
body (or value)     BINARY or STRING                required; a null is refused
topic               STRING                          the default topic
tags                STRING                          property TAGS; none
keys (or key)       STRING or LIST<STRING>          property KEYS, separated by spaces; none
queueId             an integer                      the store chooses a queue
shardingKey         STRING                          property __SHARDINGKEY; none
properties          MAP<STRING,STRING>              further properties; none
flag                an integer of 32 bits           0
bornTimestamp       TIMESTAMP, or int64 in ms       the time that the caller gives
delayLevel          an integer                      delivered at once (as with 0)
==================  ==============================  ===================================================================

The columns are what RocketMQ's ``Message`` holds. An empty text says the same as null. A property of ``properties``
that has a column of its own counts where that column says nothing. STRING may be large, or a dictionary of strings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from commitlog.columnar.columns import nearest_name
from commitlog.columnar.input_properties import (
    PropertyMap,
    blank_to_null,
    illegible_rows,
    join_keys,
    property_of,
    separator_rows,
)
from commitlog.columnar.records import binary_parts, large_binary_of
from commitlog.errors import InvalidValue
from commitlog.format.arrays import BoolArray, Int64Array
from commitlog.format.message_rules import MessageLimits, Refusal, RefusalKind, parse_delay_level
from commitlog.format.properties import DELAY, KEYS, SHARDING_KEY, TAGS
from commitlog.paths import validate_new_topic

__all__ = [
    "MESSAGE_COLUMNS",
    "MessageColumns",
    "QueueColumns",
    "Refusals",
    "Rows",
    "check_message_rows",
    "message_columns",
    "queue_columns",
]

Rows: TypeAlias = "pa.RecordBatch | pa.Table"

_MAX_INT = 2**31 - 1
_ALIASES = {"value": "body", "key": "keys"}
# The properties of text that have a column.
_COLUMN_OF = {KEYS: "keys", SHARDING_KEY: "shardingKey", TAGS: "tags"}
# Milliseconds in a unit, or units in a millisecond when that is negative.
_MS_OF_UNIT = {"s": 1000, "ms": 1, "us": -1000, "ns": -1_000_000}


class _Kind(NamedTuple):
    """A column's types: a test, and their names."""

    takes: Callable[[pa.DataType], bool]
    names: str


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_body(kind: pa.DataType) -> bool:
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return _is_text(kind) or bool(binary)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_keys(kind: pa.DataType) -> bool:
    return _is_text(kind) or (_is_list(kind) and (_is_text(kind.value_type) or pa.types.is_null(kind.value_type)))


def _is_map(kind: pa.DataType) -> bool:
    return bool(pa.types.is_map(kind)) and _is_text(kind.key_type) and _is_text(kind.item_type)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_int64(kind))


_TEXT = _Kind(_is_text, "STRING")
_INTEGER = _Kind(pa.types.is_signed_integer, "a signed integer")
_KINDS = {
    "body": _Kind(_is_body, "BINARY or STRING"),
    "topic": _TEXT,
    "tags": _TEXT,
    "keys": _Kind(_is_keys, "STRING or LIST<STRING>"),
    "queueId": _INTEGER,
    "shardingKey": _TEXT,
    "properties": _Kind(_is_map, "MAP<STRING,STRING>"),
    "flag": _INTEGER,
    "bornTimestamp": _Kind(_is_time, "TIMESTAMP, or int64 in milliseconds"),
    "delayLevel": _INTEGER,
}
MESSAGE_COLUMNS: tuple[str, ...] = tuple(_KINDS)


def check_message_rows(rows: Rows, *, topic: str | None) -> None:
    """``InvalidValue`` for columns that messages cannot be made of; ``topic`` is that of rows without one.

    That is: no table, unknown columns, repeated ones, one beside its alias, wrong types, no body, and no topic.
    """
    if not isinstance(rows, pa.Table | pa.RecordBatch):
        raise InvalidValue(f"Messages are the rows of a pyarrow Table or RecordBatch, not of a {type(rows).__name__}.")
    if topic is not None:
        validate_new_topic(topic)
    found: dict[str, str] = {}
    for column in rows.schema:
        name = _ALIASES.get(column.name, column.name)
        if name not in _KINDS:
            raise InvalidValue(_unknown(column.name))
        if name in found:
            both = f"both {found[name]!r} and {column.name!r}, which mean the same; keep one"
            raise InvalidValue(f"The column {name!r} is there twice: {both}.")
        found[name] = column.name
        # A column of nothing but nulls may have Arrow's null type; it says nothing.
        if not _KINDS[name].takes(column.type) and (name == "body" or not pa.types.is_null(column.type)):
            raise InvalidValue(f"The column {column.name!r} has the type {column.type}; it is {_KINDS[name].names}.")
    if "body" not in found:
        raise InvalidValue("There is no column 'body' (or 'value'): it holds what the messages say.")
    if "topic" not in found and topic is None:
        raise InvalidValue("The messages have no topic: add a column 'topic', or give one topic for all.")


def _unknown(name: str) -> str:
    known = (*MESSAGE_COLUMNS, *_ALIASES)
    hint = f" Did you mean {near!r}?" if (near := nearest_name(name, known)) else ""
    return f"Unknown column {name!r}.{hint} The columns of a message are: {', '.join(known)}."


@dataclass
class Refusals:
    """Which rows are refused, and why; of several reasons the first one found counts."""

    kept: BoolArray
    found: list[Refusal] = field(default_factory=list)
    # The row's topic and queue, for people.
    context: Callable[[int], str] = "".format

    def add(self, wrong: BoolArray, why: Callable[[int], str], kind: RefusalKind = RefusalKind.MESSAGE_ILLEGAL) -> None:
        """Refuse the rows where ``wrong`` is set; ``why`` gives the end of a sentence for a row."""
        if not wrong.any():
            return
        for row in np.flatnonzero(wrong & self.kept).tolist():
            self.found.append(Refusal(row, kind, self.context(row), why(row)))
        self.kept &= ~wrong


@dataclass(frozen=True, kw_only=True)
class MessageColumns:
    """Rows in the form that encoding wants. Texts are UTF-8 bytes with nulls for none; -1 stands for no number."""

    bodies: pa.LargeBinaryArray
    topics: list[str]
    topic_codes: npt.NDArray[np.int32]
    keys: pa.LargeBinaryArray | None
    sharding_keys: pa.LargeBinaryArray | None
    tags: pa.LargeBinaryArray | None
    # All properties without a column of their own, as stored, each with its separator; nothing null.
    others: pa.LargeBinaryArray | None
    queue_ids: npt.NDArray[np.int32]
    flags: npt.NDArray[np.int32]
    born_timestamps: Int64Array
    delay_levels: npt.NDArray[np.int32]
    refusals: Refusals


def message_columns(
    table: Rows,
    *,
    topic: str | None,
    born_timestamp_ms: int,
    limits: MessageLimits,
    queue_ids: npt.NDArray[np.int32] | None = None,
) -> MessageColumns:
    """The rows' values; those that no store takes are noted in ``refusals``, and their values mean nothing.

    ``queue_ids`` replaces the column ``queueId``. ``InvalidValue`` as ``check_message_rows`` gives it.
    """
    check_message_rows(table, topic=topic)
    count = table.num_rows
    refusals = Refusals(np.ones(count, np.bool_))
    names, codes = _topics(_column(table, "topic"), topic, count)
    chosen = _numbers(table, "queueId", -1, count)
    given_ids = chosen.values if queue_ids is None else queue_ids
    is_given = np.zeros(count, np.bool_) if chosen.given is None else chosen.given
    # People look for the queue that they gave, also where another was chosen instead.
    told = np.where(is_given, chosen.values, given_ids)
    refusals.context = lambda row: _context(
        names[codes[row]] if codes[row] >= 0 else None, int(told[row]) if is_given[row] or told[row] >= 0 else None
    )
    _refuse_topics(names, codes, refusals)
    bodies = large_binary_of(table.column(_spelling(table, "body")))
    _refuse_bodies(bodies, limits, refusals)
    _refuse_numbers(chosen, 0, refusals)
    flags = _numbers(table, "flag", 0, count)
    _refuse_numbers(flags, -_MAX_INT - 1, refusals)
    properties = PropertyMap.of(_column(table, "properties"), refusals.add)
    levels = _delay_levels(_numbers(table, "delayLevel", -1, count), properties.own.get(DELAY), limits, refusals)
    keys = _keys(_column(table, "keys"), refusals)
    texts = {KEYS: keys, SHARDING_KEY: _text(table, "shardingKey"), TAGS: _text(table, "tags")}
    for name, text in texts.items():
        if text is not None:
            column = f"its column {_spelling(table, _COLUMN_OF[name])}"
            refusals.add(separator_rows(text), f"{column} holds '\\x01' or '\\x02', which separate properties".format)
            refusals.add(illegible_rows(text), f"{column} is no UTF-8 text".format)
    own = {name: _first_given(text, properties.own.get(name)) for name, text in texts.items()}
    return MessageColumns(
        bodies=bodies,
        topics=names,
        topic_codes=codes,
        keys=own[KEYS],
        sharding_keys=own[SHARDING_KEY],
        tags=own[TAGS],
        others=properties.others,
        queue_ids=np.where(refusals.kept, given_ids, -1).astype(np.int32),
        flags=flags.values.astype(np.int32),
        born_timestamps=_born_timestamps(_column(table, "bornTimestamp"), born_timestamp_ms, count, refusals),
        delay_levels=levels,
        refusals=refusals,
    )


class QueueColumns(NamedTuple):
    """What decides about a message's queue; see ``MessageColumns``. An illegal ``queueId`` is -1 as well."""

    topics: list[str]
    topic_codes: npt.NDArray[np.int32]
    queue_ids: npt.NDArray[np.int32]
    sharding_keys: pa.LargeBinaryArray | None


def queue_columns(table: Rows, *, topic: str | None) -> QueueColumns:
    """The part of ``message_columns`` that choosing queues takes. ``InvalidValue`` as ``check_message_rows``."""
    check_message_rows(table, topic=topic)
    names, codes = _topics(_column(table, "topic"), topic, table.num_rows)
    given = _numbers(table, "queueId", -1, table.num_rows).values
    queue_ids = np.where((given >= 0) & (given <= _MAX_INT), given, -1).astype(np.int32)
    properties = _column(table, "properties")
    stored = None if properties is None else property_of(properties, SHARDING_KEY)
    return QueueColumns(names, codes, queue_ids, _first_given(_text(table, "shardingKey"), stored))


def _spelling(table: Rows, name: str) -> str:
    """The name that the column has in the table."""
    names: list[str] = table.schema.names
    return next(column for column in names if _ALIASES.get(column, column) == name)


def _column(table: Rows, name: str) -> pa.Array | None:
    """The column in one piece; None when it is not there or can only be null."""
    if not any(_ALIASES.get(column, column) == name for column in table.schema.names):
        return None
    column = table.column(_spelling(table, name))
    if pa.types.is_null(column.type):
        return None
    if _is_text(column.type):
        return large_binary_of(column)
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def _context(topic: str | None, queue_id: int | None) -> str:
    queue = "no queue given" if queue_id is None else f"queue {queue_id}"
    return f"{'no topic' if topic is None else f'topic {topic!r}'}, {queue}"


def _topics(column: pa.Array | None, default: str | None, count: int) -> tuple[list[str], npt.NDArray[np.int32]]:
    """The distinct topics, and each row's place among them; -1 for none."""
    if column is None:
        assert default is not None, "the schema was checked"
        return [default], np.zeros(count, np.int32)
    coded = column.dictionary_encode()
    # Bytes that are no UTF-8 become a name that no topic may have, and are refused by that.
    names = [name.decode("utf-8", "surrogateescape") for name in coded.dictionary.to_pylist()]
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    if default is not None and column.null_count:
        if default not in names:
            names.append(default)
        codes[codes < 0] = names.index(default)
    return names, codes


def _refuse_topics(names: list[str], codes: npt.NDArray[np.int32], refusals: Refusals) -> None:
    refusals.add(codes < 0, lambda _: "its topic is null, and no topic is given for such rows")
    for code, name in enumerate(names):
        try:
            validate_new_topic(name)
        except InvalidValue as error:
            fault = str(error).removesuffix(".")
            refusals.add(codes == code, lambda _, fault=fault: fault)  # type: ignore[misc]


def _refuse_bodies(bodies: pa.LargeBinaryArray, limits: MessageLimits, refusals: Refusals) -> None:
    if bodies.null_count:
        refusals.add(bodies.is_null().to_numpy(zero_copy_only=False), lambda _: "its body is null")
    sizes, most = np.diff(binary_parts(bodies)[0]), limits.max_message_size
    refusals.add(
        sizes > most, lambda row: f"its body has {int(sizes[row])} bytes, the limit (maxMessageSize) is {most}"
    )


class _Numbers(NamedTuple):
    """An integer column: its name, values, and which rows have one."""

    name: str
    values: Int64Array
    given: BoolArray | None


def _numbers(table: Rows, name: str, default: int, count: int) -> _Numbers:
    column = _column(table, name)
    if column is None:
        return _Numbers(name, np.full(count, default, np.int64), None)
    values = column.cast(pa.int64()).fill_null(default).to_numpy(zero_copy_only=False)
    return _Numbers(name, values, column.is_valid().to_numpy(zero_copy_only=False))


def _refuse_numbers(numbers: _Numbers, least: int, refusals: Refusals) -> None:
    if numbers.given is not None:
        values = numbers.values
        refusals.add(
            numbers.given & ((values < least) | (values > _MAX_INT)),
            lambda row: f"its {numbers.name} is {int(values[row])}; {least} to {_MAX_INT} may be",
        )


def _delay_levels(
    numbers: _Numbers, texts: pa.LargeBinaryArray | None, limits: MessageLimits, refusals: Refusals
) -> npt.NDArray[np.int32]:
    _refuse_numbers(numbers, 0, refusals)
    levels = numbers.values
    if texts is not None:
        coded = texts.dictionary_encode()
        words = [word.decode("utf-8", "surrogateescape") for word in coded.dictionary.to_pylist()]
        parsed = [parse_delay_level(word) for word in words]
        codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        used = (codes >= 0) if numbers.given is None else (codes >= 0) & ~numbers.given
        of_text = np.array([*(-1 if level is None else level for level in parsed), 0], np.int64)[codes]
        refusals.add(
            used & (of_text < 0), lambda row: f"its property {DELAY} is {words[codes[row]]!r}; 0 to {_MAX_INT} may be"
        )
        levels = np.where(used, of_text, levels)
    return np.clip(levels, 0, limits.max_delay_level).astype(np.int32)


def _born_timestamps(column: pa.Array | None, default: int, count: int, refusals: Refusals) -> Int64Array:
    if column is None:
        return np.full(count, default, np.int64)
    factor = _MS_OF_UNIT[column.type.unit] if pa.types.is_timestamp(column.type) else 1
    values: Int64Array = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    if factor > 1:
        most = (2**63 - 1) // factor
        refusals.add((values > most) | (values < -most), lambda _: "its bornTimestamp is too far for milliseconds")
        values = values * factor
    elif factor < 0:
        values = values // -factor
    return np.where(column.is_null().to_numpy(zero_copy_only=False), default, values) if column.null_count else values


def _text(table: Rows, name: str) -> pa.LargeBinaryArray | None:
    column = _column(table, name)
    return None if column is None else blank_to_null(column)


def _keys(column: pa.Array | None, refusals: Refusals) -> pa.LargeBinaryArray | None:
    if column is None:
        return None
    return join_keys(column, refusals.add) if _is_list(column.type) else blank_to_null(column)


def _first_given(column: pa.LargeBinaryArray | None, other: pa.LargeBinaryArray | None) -> pa.LargeBinaryArray | None:
    if column is None or other is None:
        return other if column is None else column
    return pc.coalesce(column, other)
