"""The columns of messages that are read: names, Arrow types, and which are given by default.

All are nullable. ``timestamp[us, UTC]`` and ``binary`` are the types that Spark's Python data source takes; a reader
without Spark gets the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import pyarrow as pa

from commitlog_store.errors import InvalidValue

__all__ = [
    "ALL_COLUMNS",
    "BODY_COLUMN",
    "COLUMN_TYPES",
    "DEFAULT_COLUMNS",
    "METADATA_COLUMNS",
    "PROPERTIES_COLUMN",
    "arrow_schema",
    "column_type",
    "nearest_name",
    "nearest_names",
]

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
METADATA_COLUMNS: tuple[str, ...] = ALL_COLUMNS[ALL_COLUMNS.index("properties") + 1 :]


def column_type(name: str) -> pa.DataType:
    """The Arrow type of a column; ``InvalidValue`` with the nearest known name for one that does not exist.

    ::

        column_type("storeTimestamp")  # timestamp[us, tz=UTC]
    """
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
    if isinstance(columns, str):  # a text would count as the list of its characters
        raise InvalidValue(f"columns is a list of names, not the text {columns!r}.")
    return pa.schema([pa.field(name, column_type(name)) for name in columns])
