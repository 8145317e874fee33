"""Sizes as people write them, in settings, on the command line and in Spark's options: ``64m``, ``128MB``, ``1.5 GiB``.

A suffix stands for a power of 1024 everywhere, with or without B or iB, as in RocketMQ's settings and Spark's.
"""

from __future__ import annotations

import re
from decimal import Decimal

_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(?:([kmgtp])(?:i?b)?|b)?", re.IGNORECASE)
_UNITS_OF_TEXT = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


def parse_size(text: str) -> int | None:
    """Bytes; None for a text that is not a size, or not one of whole bytes.

    >>> parse_size("64m"), parse_size("1.5 KiB"), parse_size("1 mile")
    (67108864, 1536, None)
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    size = Decimal(found[1]) * 1024 ** _POWERS[(found[2] or "").lower()]
    return int(size) if size == int(size) else None


def size_text(size: int) -> str:
    """A number of bytes as people read it.

    >>> size_text(512), size_text(1536)
    ('512 B', '1.5 KiB')
    """
    left, place = float(size), 0
    while left >= 1024 and place < len(_UNITS_OF_TEXT) - 1:
        left, place = left / 1024, place + 1
    return f"{size} B" if place == 0 else f"{left:.1f} {_UNITS_OF_TEXT[place]}"
