"""Text from messages and files as it may be shown: without characters that drive a terminal or hide others."""

from __future__ import annotations

import re

# Runs of characters beside the plain ones of ASCII: only these are looked at one by one.
_NOT_PLAIN = re.compile(r"[^\x20-\x7e]+")


def printable_text(text: str) -> str:
    """Text without control characters, which must not reach the terminal."""
    return text if text.isprintable() else _NOT_PLAIN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    # A lone surrogate, of a file name that is not UTF-8, is not printable either.
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in found[0])
