"""Values as people read them: counted things, lengths of time, times in UTC, and text without control characters."""

from __future__ import annotations

import re
from datetime import datetime, timezone

_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
# Runs of characters beside the plain ones of ASCII: only these are looked at one by one.
_NOT_PLAIN = re.compile(r"[^\x20-\x7e]+")


def counted(number: int, what: str, ending: str = "s", *, none: str = "0") -> str:
    """A number of things, the noun in the plural unless it is one; ``none`` is the word for 0."""
    return f"{number or none} {what}{'' if number == 1 else ending}"


def duration_text(milliseconds: int) -> str:
    """The two largest units, the last one rounded down: ``5 d 3 h``, ``12 min 5 s``, ``42 s``."""
    left = max(milliseconds, 0) // 1000
    if not left:
        return "< 1 s" if milliseconds > 0 else "0 s"
    parts: list[str] = []
    for unit, seconds in _UNITS:
        count, left = divmod(left, seconds)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(filter(None, parts[:2]))


def utc_text(milliseconds: int) -> str:
    """``2026-11-21 09:30:00.000``; the number itself of a time that no calendar has."""
    try:
        when = datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)
    return when.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def printable_text(text: str) -> str:
    """Text without control characters, which must not reach the terminal."""
    return text if text.isprintable() else _NOT_PLAIN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    # A lone surrogate, of a file name that is not UTF-8, is not printable either.
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in found[0])
