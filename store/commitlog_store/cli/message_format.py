r"""Format strings for messages, as kcat has them: ``-f '%t/%q@%o %k %s\n'``.

A letter after a percent sign stands for a field; ``\n``, ``\t``, ``\r``, ``\0``, ``\\`` and ``\xNN`` for a byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import typer

from commitlog_store.cli.times import Clock

# Letter: the column it is made of, and what it stands for in the help.
LETTERS: dict[str, tuple[str, str]] = {
    "t": ("topic", "topic"),
    "q": ("queueId", "queue id"),
    "p": ("queueId", "queue id (kcat's partition)"),
    "o": ("queueOffset", "queue offset"),
    "O": ("physicalOffset", "physical offset"),
    "i": ("msgId", "message id"),
    "u": ("uniqKey", "unique key"),
    "k": ("keys", "keys"),
    "g": ("tags", "tags"),
    "s": ("body", "body"),
    "S": ("body", "size of the body in bytes"),
    "h": ("properties", "properties, as a=b,c=d"),
    "T": ("storeTimestamp", "store time in milliseconds"),
    "d": ("storeTimestamp", "store time as ISO 8601"),
    "B": ("bornTimestamp", "born time in milliseconds"),
}
FORMAT_HELP = "%" + ", %".join(f"{letter} {words}" for letter, (_, words) in LETTERS.items()) + ", %% a percent sign"

_PART = re.compile(r"%(.?)|\\(x[0-9A-Fa-f]{2}|.?)", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


class MessageFormat:
    """A format string, made into a function from a row to bytes. ``BadParameter`` for an unknown letter."""

    def __init__(self, text: str, clock: Clock) -> None:
        self._clock = clock
        self._parts: list[bytes | Callable[[dict[str, Any]], bytes]] = []
        self.columns: list[str] = []
        at = 0
        for found in _PART.finditer(text):
            self._parts.append(text[at : found.start()].encode())
            self._parts.append(self._field(found[1]) if found[1] is not None else _escape(found[2]))
            at = found.end()
        self._parts.append(text[at:].encode())
        self._parts = [part for part in self._parts if part != b""]

    def _field(self, letter: str) -> bytes | Callable[[dict[str, Any]], bytes]:
        if letter == "%":
            return b"%"
        if letter not in LETTERS:
            raise typer.BadParameter(f"%{letter} is not known. {FORMAT_HELP}.", param_hint="--format")
        name = LETTERS[letter][0]
        self.columns.append(name)
        match letter:
            case "s":
                return lambda row: row["body"] or b""
            case "S":
                return lambda row: str(len(row["body"] or b"")).encode()
            case "h":
                return lambda row: ",".join(f"{key}={value}" for key, value in row["properties"].items()).encode()
            case "d":
                return lambda row: (self._clock.iso(row[name]) or "").encode()
            case _:
                return lambda row: b"" if row[name] is None else str(row[name]).encode()

    def bytes_of(self, row: dict[str, Any]) -> bytes:
        """A message in this format."""
        return b"".join(part if isinstance(part, bytes) else part(row) for part in self._parts)


def _escape(text: str) -> bytes:
    if text.startswith("x") and len(text) == 3:
        return bytes.fromhex(text[1:])
    if text not in _ESCAPES:
        raise typer.BadParameter(rf"\{text} is not known: \n, \t, \r, \0, \\, \xNN.", param_hint="--format")
    return _ESCAPES[text]
