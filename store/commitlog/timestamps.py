"""Check of times given by callers: milliseconds since the epoch, and not seconds.

Seconds of our time, read as milliseconds, lie in January to March 1970, before any store existed. They are refused,
since a query with them silently starts at the first message.
"""

from __future__ import annotations

from commitlog.errors import InvalidValue

__all__ = ["checked_timestamp_ms"]

# The years 2000 to 2200 in seconds: as milliseconds, the 11th of January to the 26th of March 1970.
_SECONDS = range(946_684_800, 7_258_118_400)


def checked_timestamp_ms(value: int, name: str = "timestamp_ms") -> int:
    """The value, unless it is a time in seconds: ``InvalidValue`` with the value in milliseconds.

    >>> checked_timestamp_ms(1795250230000)
    1795250230000
    """
    if value in _SECONDS:
        raise InvalidValue(f"{name} is in milliseconds, and {value} looks like seconds: give {value * 1000}.")
    return value
