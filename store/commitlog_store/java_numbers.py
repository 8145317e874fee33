"""Java's largest int and long, the limits of numbers in RocketMQ's formats and settings; and what counts as a number.

``MAX_LONG`` also stands for an offset or a time after all others.
"""

from __future__ import annotations

from operator import index
from typing import SupportsIndex

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1


def integer(value: object) -> int | None:
    """The int that an argument is, also one of numpy; None for anything else, such as a bool, or an array of numpy."""
    if type(value) is int:
        return value
    # ``int`` first: asking for a protocol takes microseconds.
    if isinstance(value, bool) or not isinstance(value, int | SupportsIndex):
        return None
    try:
        return index(value)
    except TypeError:
        return None
