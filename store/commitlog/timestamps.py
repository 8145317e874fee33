"""Check of times given by callers: milliseconds since the epoch, and not seconds; or datetimes. Seconds to wait.

Seconds of our time, read as milliseconds, lie in January to March 1970, before any store existed. They are refused,
since a query with them silently starts at the first message.
"""

from __future__ import annotations

from datetime import datetime, timezone
from operator import index
from typing import SupportsFloat, SupportsIndex

from commitlog.errors import InvalidValue

__all__ = ["LONGEST_WAIT_S", "checked_seconds", "checked_timestamp_ms", "milliseconds_of"]

# The longest wait for a lock on every platform: 46 days.
LONGEST_WAIT_S = 4_000_000.0

# The years 2000 to 2200 in seconds: as milliseconds, the 11th of January to the 26th of March 1970.
_SECONDS = range(946_684_800, 7_258_118_400)


def checked_timestamp_ms(value: int, name: str = "timestamp_ms") -> int:
    """The value, unless it is a time in seconds: ``InvalidValue`` with the value in milliseconds.

    >>> checked_timestamp_ms(1795250230000)
    1795250230000
    """
    # Of anything but an int, ``in`` would compare it with each number of the range.
    if value in _SECONDS:
        raise InvalidValue(f"{name} is in milliseconds, and {value} looks like seconds: give {value * 1000}.")
    return value


def milliseconds_of(value: int | datetime, name: str) -> int:
    """Milliseconds since the epoch of a datetime, rounded down, or of a number of them. ``InvalidValue``.

    A datetime without time zone is refused: it would mean another time on another machine.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidValue(f"{name} has no time zone: give {value!r} with tzinfo, such as timezone.utc.")
        since = value - datetime(1970, 1, 1, tzinfo=timezone.utc)
        return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise InvalidValue(f"{name} is a datetime or an int of milliseconds, not {value!r}.")
    return checked_timestamp_ms(index(value), name)


def checked_seconds(name: str, value: object) -> float:
    """Seconds to wait, at most the longest wait of every platform. ``InvalidValue`` if it is not a number."""
    if type(value) is float and 0.0 <= value <= LONGEST_WAIT_S:
        return value  # the quick way
    if isinstance(value, bool | str) or not isinstance(value, SupportsFloat) or value != value:
        raise InvalidValue(f"{name} is a number of seconds, not {value!r}.")
    return LONGEST_WAIT_S if value > LONGEST_WAIT_S else max(float(value), 0.0)  # type: ignore[operator]
