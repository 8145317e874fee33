"""The columns of messages: those that are read and those that are put, with their Arrow types.

Those that are read are all nullable. ``timestamp[us, UTC]`` and ``binary`` are the types that Spark's Python data
source takes; a reader without Spark gets the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from difflib import get_close_matches
from operator import index
from typing import Any, NamedTuple

import pyarrow as pa

from commitlog_store.errors import InvalidValue
from commitlog_store.java_numbers import MAX_LONG

# How similar a name must be to a known one to be suggested: 0 to 1.
_LEAST_SIMILAR = 0.5

_TIMESTAMP = pa.timestamp("us", tz="UTC")

COLUMN_TYPES: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "tags": pa.string(),
    "keys": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "body": pa.binary(),
    "bornTimestamp": _TIMESTAMP,
    "storeTimestamp": _TIMESTAMP,
    "properties": pa.map_(pa.string(), pa.string()),
    "msgId": pa.string(),
    "uniqKey": pa.string(),
    "bornHost": pa.string(),
    "storeHost": pa.string(),
    "physicalOffset": pa.int64(),
    "preparedTransactionOffset": pa.int64(),
    "storeSize": pa.int32(),
    "flag": pa.int32(),
    "sysFlag": pa.int32(),
    "bodyCrc": pa.int32(),
    "reconsumeTimes": pa.int32(),
}

ALL_COLUMNS: tuple[str, ...] = tuple(COLUMN_TYPES)
DEFAULT_COLUMNS: tuple[str, ...] = ALL_COLUMNS[: ALL_COLUMNS.index("properties")]
BODY_COLUMN = "body"
PROPERTIES_COLUMN = "properties"


def is_text(kind: pa.DataType) -> bool:
    """Whether it is text, or a dictionary of texts."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_body(kind: pa.DataType) -> bool:
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return is_text(kind) or bool(binary)


def is_list(kind: pa.DataType) -> bool:
    """Whether it is one of the two types of lists that keys may be."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_keys(kind: pa.DataType) -> bool:
    return is_text(kind) or (is_list(kind) and (is_text(kind.value_type) or pa.types.is_null(kind.value_type)))


def _is_map(kind: pa.DataType) -> bool:
    return bool(pa.types.is_map(kind)) and is_text(kind.key_type) and is_text(kind.item_type)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_int64(kind))


def _is_level(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_duration(kind)) or is_text(kind)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else memoryview(value).tobytes()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    value.encode()  # a lone surrogate is not a text
    return value


def _keys(value: Any) -> list[str]:
    return [_text(key) for key in (value.split(" ") if isinstance(value, str) else value)]


def _int(value: Any) -> int:
    number = index(value)
    if isinstance(value, bool) or not -MAX_LONG - 1 <= number <= MAX_LONG:
        raise TypeError(value)
    return number


def _level(value: Any) -> int | str:
    """The number of a level, or its time as a text."""
    if isinstance(value, timedelta):
        seconds, rest = divmod(value, timedelta(seconds=1))
        return str(value) if rest else f"{seconds}s"
    return _text(value) if isinstance(value, str) else _int(value)


def _pairs(value: Any) -> list[tuple[str, str]]:
    pairs: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, Mapping) else value
    # Of a name that is given twice, the last value counts, as in a dict.
    return list({_text(name): _text(text) for name, text in pairs}.items())


def _time(value: Any) -> int:
    """Milliseconds since the epoch of a number of them, or of a datetime (of UTC if it has no time zone)."""
    if not isinstance(value, datetime):
        return _int(value)
    aware = value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)
    since = aware - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


class PutColumn(NamedTuple):
    """Values of a column of messages that are put: the Arrow types of a table's, and those of dicts and ``Message``.

    ``convert`` makes the value of ``row_type`` of one in a dict, or raises; ``given`` says what it takes.
    """

    takes: Callable[[pa.DataType], bool]
    types: str
    row_type: pa.DataType
    convert: Callable[[Any], Any]
    given: str


_TEXT = PutColumn(is_text, "STRING", pa.string(), _text, "a text")
_INTEGER = PutColumn(pa.types.is_signed_integer, "a signed integer", pa.int64(), _int, "an int")
PUT_COLUMNS: dict[str, PutColumn] = {
    "body": PutColumn(_is_body, "BINARY or STRING", pa.large_binary(), _bytes, "bytes or a text"),
    "topic": _TEXT,
    "tags": _TEXT,
    "keys": PutColumn(_is_keys, "STRING or LIST<STRING>", pa.list_(pa.string()), _keys, "a list of texts, or a text"),
    "queueId": _INTEGER,
    "shardingKey": _TEXT,
    "properties": PutColumn(
        _is_map, "MAP<STRING,STRING>", pa.map_(pa.string(), pa.string()), _pairs, "a dict of texts to texts"
    ),
    "flag": _INTEGER,
    "bornTimestamp": PutColumn(
        _is_time, "TIMESTAMP, or int64 in milliseconds", pa.int64(), _time, "an int in milliseconds, or a datetime"
    ),
    "delayLevel": PutColumn(
        _is_level,
        "a signed integer, STRING or DURATION",
        pa.int64(),
        _level,
        "an int, a text such as '10s', or a timedelta",
    ),
}
MESSAGE_COLUMNS: tuple[str, ...] = tuple(PUT_COLUMNS)
ALIASES = {"value": "body", "key": "keys"}
# Columns of messages that were read whose values only a store gives.
ASSIGNED_COLUMNS = frozenset(ALL_COLUMNS) - frozenset(MESSAGE_COLUMNS)


def put_column(name: str) -> str:
    """The column of messages that are put with this name or alias. ``InvalidValue`` for another name."""
    column = ALIASES.get(name, name)
    if column not in PUT_COLUMNS:
        known = (*MESSAGE_COLUMNS, *ALIASES)
        hint = f" Did you mean {near!r}?" if (near := nearest_name(name, known)) else ""
        raise InvalidValue(f"Unknown column {name!r}.{hint} The columns of a message are: {', '.join(known)}.")
    return column


def column_type(name: str) -> pa.DataType:
    """The Arrow type of a column; ``InvalidValue`` with the nearest known name for one that does not exist.

    ::

        column_type("storeTimestamp")  # timestamp[us, tz=UTC]
    """
    if not isinstance(name, str):
        raise InvalidValue(f"A column is named by a text, not {name!r}.")
    try:
        return COLUMN_TYPES[name]
    except KeyError:
        near = nearest_name(name, ALL_COLUMNS)
        hint = f" Did you mean {near!r}?" if near else ""
        raise InvalidValue(f"Unknown column {name!r}.{hint} The columns are: {', '.join(ALL_COLUMNS)}.") from None


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most similar to an unknown one, ignoring case; None when none is near."""
    return next(iter(nearest_names(name, known, most=1)), None)


def nearest_names(name: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """The known names that are similar to an unknown one, ignoring case; the most similar first."""
    spelled = {one.lower(): one for one in known}
    return [spelled[near] for near in get_close_matches(name.lower(), spelled, n=most, cutoff=_LEAST_SIMILAR)]


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of the named columns, in the order given. ``InvalidValue``."""
    return pa.schema([pa.field(name, column_type(name)) for name in listed_columns(columns)])


def listed_columns(columns: Sequence[str]) -> Sequence[str]:
    """Names of columns. ``InvalidValue`` for what is not a list of something."""
    if isinstance(columns, str):  # a text would count as the list of its characters
        raise InvalidValue(f"columns is a list of names, not the text {columns!r}.")
    if not isinstance(columns, Iterable):
        raise InvalidValue(f"columns is a list of names, not {columns!r}.")
    return columns
