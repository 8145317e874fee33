"""Delay levels of ``message_delay_level``: the delays that it names, and the level of a delay.

Source: RocketMQ ``broker/schedule/ScheduleMessageService.java`` (``parseDelayLevel``).
"""

from __future__ import annotations

import re
from datetime import timedelta

from commitlog_store.errors import InvalidValue
from commitlog_store.java_numbers import integer
from commitlog_store.timestamps import length_of_time_ms

# A hundred years: every system can still show such a time of delivery.
_LONGEST_DELAY_MS = 36_500 * 86_400_000
# More digits than any delay needs, and fewer than Python refuses to read.
_MOST_DIGITS = 18
_LEVEL = re.compile(rf"([0-9]{{1,{_MOST_DIGITS}}})([smhd])")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """``"1s 5s 2h"`` as milliseconds, one for each level from 1 on. ``InvalidValue``."""
    levels = []
    for part in text.split():
        match = _LEVEL.fullmatch(part)
        if match is None:
            raise _no_level("a number of up to 18 digits and s, m, h or d", part)
        delay = int(match[1]) * _UNIT_MS[match[2]]
        if delay > _LONGEST_DELAY_MS:
            raise _no_level("0s to 36500d", part)
        levels.append(delay)
    if not levels:
        raise InvalidValue(
            "message_delay_level names no level.", settings=("message_delay_level",), expected="at least one level"
        )
    return tuple(levels)


def delay_level(delay: object, message_delay_level: str) -> int | None:
    """The level of a delay: the number of a level, or the time of one as a text such as ``"10s"`` or a ``timedelta``.

    None stays None, and 0 is no delay. A text of digits is a level's number. ``InvalidValue`` for a delay that no level
    of ``message_delay_level`` has, and for other types.

    >>> delay_level("10s", "1s 5s 10s"), delay_level(timedelta(seconds=5), "1s 5s 10s")
    (3, 2)
    """
    if delay is None:
        return None
    levels = parse_delay_levels(message_delay_level)
    if (number := integer(delay)) is not None:
        level = number
    elif isinstance(delay, str) and delay.isascii() and delay.isdigit():
        level = int(delay) if len(delay) <= _MOST_DIGITS else -1
    elif isinstance(delay, str | timedelta):
        wanted = delay // timedelta(milliseconds=1) if isinstance(delay, timedelta) else _level_ms(delay)
        exact = not isinstance(delay, timedelta) or delay == timedelta(milliseconds=wanted)
        level = levels.index(wanted) + 1 if exact and wanted in levels else -1
    else:
        raise InvalidValue(
            f"delay is the number of a level, or its time as a text such as '10s' or as a timedelta, not {delay!r}."
        )
    if not 0 <= level <= len(levels):
        shown = str(delay) if isinstance(delay, timedelta) else repr(delay)
        raise InvalidValue(f"delay is one of {shown_delay_levels(message_delay_level)}, not {shown}.")
    return level


def delay_or_level(delay: object, message_delay_level: str) -> tuple[int | None, int]:
    """The level of a delay, as ``delay_level``; or, for a time that no level has, None and its milliseconds.

    Such a time is a ``timedelta``, or a text such as ``"90s"`` or ``"1d12h"``. ``InvalidValue``.

    >>> delay_or_level("10s", "1s 5s 10s"), delay_or_level("90s", "1s 5s 10s")
    ((3, 0), (None, 90000))
    """
    ms = length_of_time_ms(delay) if isinstance(delay, str) else None
    if isinstance(delay, timedelta):
        ms = delay // timedelta(milliseconds=1)
        if delay != timedelta(milliseconds=ms) or ms < 0:
            raise InvalidValue(f"delay is a time of whole milliseconds, 0 or more, not {delay!r}.")
    if not ms or ms in parse_delay_levels(message_delay_level):
        return (0, 0) if ms == 0 else (delay_level(delay, message_delay_level), 0)
    return None, ms


def shown_delay_levels(message_delay_level: str) -> str:
    """The levels with their delays, for errors: ``1 (1s), 2 (5s)``."""
    levels = ", ".join(f"{level} ({delay})" for level, delay in enumerate(message_delay_level.split(), 1))
    return f"the levels {levels}"


def _level_ms(text: str) -> int:
    match = _LEVEL.fullmatch(text)
    return int(match[1]) * _UNIT_MS[match[2]] if match else -1


def _no_level(expected: str, found: str) -> InvalidValue:
    return InvalidValue(
        f"A level of message_delay_level is {expected}, not {found[:40]!r}.",
        settings=("message_delay_level",),
        expected=f"levels of {expected}",
    )
