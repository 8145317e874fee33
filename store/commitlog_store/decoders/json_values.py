"""Decoded values as JSON, bounded: what JSON lacks becomes text."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import json
import math
import uuid
from collections.abc import Mapping

MOST_VALUES = 100_000
MOST_LEVELS = 64
MOST_CHARACTERS = 1 << 20


def json_of(value: object) -> str:
    """One line of JSON. ``ValueError`` for what has too many values, levels or characters, and for another type.

    Bytes are texts in hexadecimal, times ISO 8601, numbers that JSON lacks their names, and keys that are not text
    their JSON.
    """
    text = json.dumps(_Plain().of(value, 0), ensure_ascii=False)
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"it has {len(text):,} characters as JSON, of at most {MOST_CHARACTERS:,}")
    return text


class _Plain:
    """Counts the values of one body."""

    def __init__(self) -> None:
        self._count = 0

    def of(self, value: object, level: int) -> object:
        self._count += 1
        if self._count > MOST_VALUES:
            raise ValueError(f"it has more than {MOST_VALUES:,} values")
        if level > MOST_LEVELS:
            raise ValueError(f"it has more than {MOST_LEVELS} levels")
        if isinstance(value, enum.Enum):
            return value.name
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if isinstance(value, Mapping):
            return self._object(value, level)
        if isinstance(value, list | tuple | set | frozenset):
            return [self.of(one, level + 1) for one in value]
        return _text(value)

    def _object(self, value: Mapping[object, object], level: int) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, one in value.items():
            name = key if isinstance(key, str) else self._key(key, level)
            if name in found:
                raise ValueError(f"two keys of a map are {name[:100]!r} as text")
            found[name] = self.of(one, level + 1)
        return found

    def _key(self, key: object, level: int) -> str:
        plain = self.of(key, level + 1)
        return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _text(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID | dt.timedelta):
        return str(value)
    raise ValueError(f"a value of it has the type {type(value).__name__}, which has no JSON")
