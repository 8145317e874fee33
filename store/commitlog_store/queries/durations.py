"""Lengths of time as people read them: ``3 h 12 min``."""

from __future__ import annotations

_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


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
