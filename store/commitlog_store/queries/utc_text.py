"""Times in a sentence: UTC with milliseconds, without the zone."""

from __future__ import annotations

from datetime import datetime, timezone


def utc_text(milliseconds: int) -> str:
    """``2026-11-21 09:30:00.000``; the number itself of a time that no calendar has."""
    try:
        when = datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)
    return when.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
