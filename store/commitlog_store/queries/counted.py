"""Numbers of things in a sentence: ``1 message``, ``2 messages``."""

from __future__ import annotations


def counted(number: int, what: str, ending: str = "s", *, none: str = "0") -> str:
    """A number of things, the noun in the plural unless it is one; ``none`` is the word for 0."""
    return f"{number or none} {what}{'' if number == 1 else ending}"
