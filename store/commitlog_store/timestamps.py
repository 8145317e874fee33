"""Times as callers give them, in Python and on the command line: milliseconds since the epoch, datetimes, texts such as
``2h``, timedeltas. Seconds to wait.

Seconds of our time, read as milliseconds, lie in January to March 1970, before any store existed. They are refused,
since a query with them silently starts at the first message.
"""

from __future__ import annotations

import contextlib
import re
from datetime import datetime, timedelta, timezone, tzinfo
from typing import SupportsFloat, TypeAlias

from commitlog_store.errors import InvalidValue
from commitlog_store.java_numbers import integer

# Milliseconds since the epoch, a datetime with a time zone, a time before now, or a text as ``parse_time`` takes it.
GivenTime: TypeAlias = int | datetime | timedelta | str

# The longest wait for a lock on every platform: 46 days.
LONGEST_WAIT_S = 4_000_000.0

# The years 2000 to 2200 in seconds: as milliseconds, the 11th of January to the 26th of March 1970.
_SECONDS = range(946_684_800, 7_258_118_400)

_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"([0-9]{1,12})\s*(ms|min|[smhdw])")
_LENGTH = re.compile(rf"(?:{_PART.pattern}\s*)+")
# More than any time has, and fewer than Python refuses to read.
_MOST_DIGITS = 100


def checked_timestamp_ms(value: int, name: str = "timestamp_ms") -> int:
    """The value, unless it is a time in seconds: ``InvalidValue`` with the value in milliseconds.

    >>> checked_timestamp_ms(1795250230000)
    1795250230000
    """
    # Of anything but an int, ``in`` would compare it with each number of the range.
    if value in _SECONDS:
        raise InvalidValue(f"{name} is in milliseconds, and {value} looks like seconds: give {value * 1000}.")
    return value


def milliseconds_of(value: GivenTime, name: str) -> int:
    """Milliseconds since the epoch: of a datetime, rounded down, of a number of them, of a ``timedelta`` before now, or
    of a text as ``parse_time`` takes it. ``InvalidValue``.

    A datetime without time zone is refused: it would mean another time on another machine. A text without one is UTC,
    as on the command line.
    """
    if isinstance(value, str):
        return parse_time(value, name=name)
    if isinstance(value, timedelta):
        try:
            value = datetime.now(timezone.utc) - abs(value)
        except OverflowError:
            raise InvalidValue(f"{name} is before the year 1: {value} before now.") from None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidValue(f"{name} has no time zone: give {value!r} with tzinfo, such as timezone.utc.")
        since = value - datetime(1970, 1, 1, tzinfo=timezone.utc)
        return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    number = integer(value)
    if number is None:
        raise InvalidValue(
            f"{name} is a datetime, a timedelta before now, a text such as '2h', or an int of milliseconds, not "
            f"{value!r}."
        )
    return checked_timestamp_ms(number, name)


def parse_time(text: str, zone: tzinfo = timezone.utc, now: datetime | None = None, *, name: str = "") -> int:
    """Milliseconds since the epoch of ISO 8601, of milliseconds, or of a relative time; today and yesterday too.

    A relative time, with or without a minus, lies before now; today and yesterday are the starts of these days. A time
    without a zone is one of ``zone``. ``InvalidValue`` for another text, and for seconds.

    >>> parse_time("2026-11-21T09:30:00")
    1795253400000
    """
    if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS:
        return checked_timestamp_ms(int(text), name or "A time")
    now = datetime.now(zone) if now is None else now.astimezone(zone)
    try:
        when = _relative(text.strip().lower(), now) or datetime.fromisoformat(text)
        return round((when if when.tzinfo else when.replace(tzinfo=zone)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise InvalidValue(
            f"{f'{name} ' if name else ''}{text!r} is not a time: give ISO 8601 (2026-11-21T09:30:00, UTC without a "
            "zone), milliseconds, or a time before now such as 2h, 90s, 1d12h, today, yesterday."
        ) from None


def is_relative_time(text: str) -> bool:
    """Whether it is a length of time before now, such as ``2h`` or ``-1d12h``."""
    return length_of_time_ms(text.removeprefix("-")) is not None


def length_of_time_ms(text: str) -> int | None:
    """Milliseconds of numbers with ms, s, m (min), h, d or w, such as ``90s`` or ``1d12h``; None for another text.

    >>> length_of_time_ms("1h30m")
    5400000
    """
    lower = text.strip().lower()
    if _LENGTH.fullmatch(lower) is None:
        return None
    return sum(int(count) * _UNIT_MS[unit] for count, unit in _PART.findall(lower))


def _relative(text: str, now: datetime) -> datetime | None:
    if text == "now":
        return now
    if text in ("today", "yesterday"):
        day = now.date() - timedelta(days=text == "yesterday")
        return datetime(day.year, day.month, day.day, tzinfo=now.tzinfo)
    length = length_of_time_ms(text.removeprefix("-"))
    return None if length is None else now - timedelta(milliseconds=length)


def checked_seconds(name: str, value: object) -> float:
    """Seconds to wait, at most the longest wait of every platform. ``InvalidValue`` if it is not a number."""
    if type(value) is float and 0.0 <= value <= LONGEST_WAIT_S:
        return value  # the quick way
    if not isinstance(value, bool | str) and isinstance(value, SupportsFloat):
        with contextlib.suppress(TypeError, ValueError):  # of an array of numpy
            if value == value:  # not NaN
                return LONGEST_WAIT_S if value > LONGEST_WAIT_S else max(float(value), 0.0)  # type: ignore[operator]
    raise InvalidValue(f"{name} is a number of seconds, not {value!r}.")
