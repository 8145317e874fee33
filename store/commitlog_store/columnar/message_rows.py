"""Messages as callers give them, as an Arrow table: data frames, Arrow streams, lists of dicts or of ``Message``.

=======================================  ===============================================================================
given                                    taken as
=======================================  ===============================================================================
a pyarrow Table or RecordBatch           itself
anything with ``__arrow_c_stream__``     all of its batches: data frames of polars and pandas (2.2), results of DuckDB
a list of dicts                          a row for each; the keys are the columns of ``input.py``
a list of ``Message``                    a row for each, with all of its fields
=======================================  ===============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import chain
from operator import attrgetter
from types import NoneType
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from commitlog_store.columnar.columns import ASSIGNED_COLUMNS, PUT_COLUMNS, put_column
from commitlog_store.columnar.input import Rows
from commitlog_store.errors import InvalidValue
from commitlog_store.format import arrow_compute as pc
from commitlog_store.format.message_rules import shown, type_fault
from commitlog_store.format.timer_messages import given_properties
from commitlog_store.message import Message, MessageExtBrokerInner


class ArrowStream(Protocol):
    """Anything that gives its rows as a stream of Arrow batches."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


MessageRows: TypeAlias = "Rows | ArrowStream | Sequence[Mapping[str, Any]] | Sequence[Message]"

# The columns that pandas adds for an index that is not the row's number.
_PANDAS_INDEX = "__index_level_"
# The fields of ``Message``, in the order of the columns.
_FIELD_NAMES = (
    *("body", "topic", "tags", "keys", "queue_id", "sharding_key", "properties"),
    *("flag", "born_timestamp", "delay_level"),
)
_FIELDS = attrgetter(*_FIELD_NAMES)
# Those that every message keeps; a message keeps the others only when they were given.
_USUAL = vars(Message(topic="", body=b"")).keys()
_USUAL_FIELDS = len(_USUAL)
_TEXTS: frozenset[type] = frozenset({str, NoneType})
_INTEGERS: frozenset[type] = frozenset({int, NoneType})
_USUAL_TYPES: dict[str, frozenset[type]] = {
    "body": frozenset({bytes}),
    "topic": frozenset({str}),
    "keys": frozenset({tuple, list}),
    "properties": frozenset({dict}),
    **dict.fromkeys(("tags", "sharding_key"), _TEXTS),
    **dict.fromkeys(("queue_id", "flag", "born_timestamp", "delay_level"), _INTEGERS),
}
_NESTED = frozenset({"keys", "properties"})


def message_rows(given: MessageRows) -> Rows:
    """The rows as a table or record batch. ``InvalidValue`` for anything else than the module's docstring lists."""
    if isinstance(given, pa.Table | pa.RecordBatch):
        return _without_views(given)
    if hasattr(given, "__arrow_c_stream__"):
        return _without_views(_all_batches(given))
    if isinstance(given, list | tuple):
        plain = _table_of_plain(given)
        return _table(given) if plain is None else plain
    raise InvalidValue(
        "Messages are an Arrow table, anything with __arrow_c_stream__ (a data frame of polars or pandas, a result of "
        f"DuckDB), a list of dicts, or a list of Message: not {shown(given)}."
    )


def _all_batches(stream: ArrowStream) -> pa.Table:
    try:
        table = pa.RecordBatchReader.from_stream(stream).read_all()
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidValue(
            f"The {type(stream).__name__} cannot be read as a stream of Arrow batches: {error}"
        ) from error
    return table.drop_columns([name for name in table.schema.names if name.startswith(_PANDAS_INDEX)])


def _without_views(rows: Rows) -> Rows:
    """The rows with views (polars has them for texts) as plain texts and bytes, numbers without sign as others, and
    lists of pairs as maps."""
    schema = pa.schema([field.with_type(_plain_type(field.type)) for field in rows.schema])
    plain = rows if schema.types == rows.schema.types else rows.cast(schema)
    for place, field in enumerate(schema):
        if _is_pairs(field.type):
            chunks = plain.column(place).chunks if isinstance(plain, pa.Table) else [plain.column(place)]
            maps = [_map_of(chunk) for chunk in chunks]
            kind = pa.map_(field.type.value_type.field(0).type, field.type.value_type.field(1).type)
            column = pa.chunked_array(maps, kind) if isinstance(plain, pa.Table) else maps[0]
            plain = plain.set_column(place, field.name, column)
    return plain


def _is_pairs(kind: pa.DataType) -> bool:
    """A list of structs of ``key`` and ``value``: what polars makes of a map, and has instead of one."""
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        return False
    return [field.name for field in kind.value_type] == ["key", "value"]


def _map_of(lists: pa.Array) -> pa.MapArray:
    counts = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)  # a null row has no entries
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    names, values = lists.flatten().flatten()
    if names.null_count:
        raise InvalidValue("A list of pairs stands for properties, and a 'key' in it is null: leave such pairs out.")
    return pa.MapArray.from_arrays(offsets, names, values, mask=lists.is_null() if lists.null_count else None)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _plain_type(kind.value_type), kind.ordered)
    if pa.types.is_unsigned_integer(kind) and kind.bit_width < 64:
        return pa.int64()
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(_plain_type(kind.value_type))
    return kind


def _table_of_plain(given: Sequence[Any]) -> pa.Table | None:
    """The table of messages whose values have the usual types, made a column at a time: a tenth of ``_table``'s time.

    None for anything else: ``_table`` looks at each value, and names the row of one that it refuses.
    """
    if not given or set(map(type, given)) != {Message}:
        return None
    columns = dict(zip(PUT_COLUMNS, _FIELD_NAMES, strict=True))
    if set(map(len, map(vars, given))) == {_USUAL_FIELDS}:
        columns = {name: field for name, field in columns.items() if field in _USUAL}
    elif any("deliver_at" in fields for fields in map(vars, given)):
        return None  # it becomes a property
    arrays = {}
    try:
        for name, field in columns.items():
            values = list(map(attrgetter(field), given))
            kinds = set(map(type, values))
            if kinds == {NoneType}:
                continue
            if not kinds <= _USUAL_TYPES[field]:
                return None
            if field in _NESTED:
                if not any(values):
                    continue
                if _are_unusual(field, values):
                    return None
            if field == "properties":
                values = [list(pairs.items()) for pairs in values]
            arrays[name] = pa.array(values, PUT_COLUMNS[name].row_type)
    except (pa.ArrowException, UnicodeEncodeError, OverflowError):
        return None
    return pa.table(arrays)


def _are_unusual(field: str, values: Sequence[Any]) -> bool:
    """Whether anything but texts is in the values of ``keys`` or ``properties``."""
    texts = chain.from_iterable(values)
    if field == "properties":
        texts = chain(texts, chain.from_iterable(map(dict.values, values)))
    return not set(map(type, texts)) <= {str}


def _table(given: Sequence[object]) -> pa.Table:
    columns: dict[str, list[Any]] = {}
    for row, message in enumerate(given):
        for name, value in _values(row, message).items():
            column = columns.setdefault(name, [])
            column.extend([None] * (row - len(column)))
            column.append(value)
    arrays = {}
    # Rows without a topic get that of the call; a list without rows has all columns that it needs.
    for name in ("body", *(name for name in columns if name != "body")):
        values = columns.get(name, [])
        values.extend([None] * (len(given) - len(values)))
        arrays[name] = _array(name, values)
    if not given:
        arrays["topic"] = pa.array([], pa.string())
    return pa.table(arrays)


def _values(row: int, given: object) -> Mapping[str, Any]:
    """The values of a row by their columns."""
    if isinstance(given, Message) and not isinstance(given, MessageExtBrokerInner):
        texts: tuple[object, ...] = given.body, given.keys, given.delay_level
        # A dict may have texts (and a timedelta) there; a Message may not, in put_message either.
        if any(isinstance(one, str | timedelta) for one in texts) and (fault := type_fault(given)):
            raise InvalidValue(f"Row {row}: {fault}")
        values = zip(PUT_COLUMNS, _FIELDS(given), strict=True)
        found: dict[str, Any] = {name: value for name, value in values if value is not None}
        if given.deliver_at is not None:
            found["properties"] = given_properties(given)
        return found
    if not isinstance(given, Mapping):
        what = "a MessageExtBrokerInner, which put_message takes" if isinstance(given, Message) else shown(given)
        raise InvalidValue(f"A row of a list of messages is a dict or a Message; row {row} is {what}.")
    found = {}
    for key, value in given.items():
        if key in ASSIGNED_COLUMNS:
            found[key] = None  # only its name counts: the rows were read
            continue
        if not isinstance(key, str):
            raise InvalidValue(f"The keys of a dict are names of columns; row {row} has {shown(key)}.")
        name = put_column(key)
        if name in found:
            raise InvalidValue(f"Row {row} has {name!r} twice, by two names that mean the same; keep one.")
        found[name] = value
    return found


def _array(name: str, values: list[Any]) -> pa.Array:
    if name in ASSIGNED_COLUMNS:
        return pa.nulls(len(values))
    column = PUT_COLUMNS[name]
    converted = []
    for row, value in enumerate(values):
        try:
            converted.append(None if value is None else column.convert(value))
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InvalidValue(f"The {name!r} of row {row} is {column.given}, not {shown(value)}.") from error
    if name == "delayLevel" and any(isinstance(value, str) for value in converted):
        return pa.array([None if value is None else str(value) for value in converted], pa.string())
    return pa.array(converted, column.row_type)
