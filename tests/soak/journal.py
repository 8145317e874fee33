"""A program's own file of what it intended and what was answered: a JSON object a line, synced before it returns."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class Journal:
    """Appended to by one program at a time. The last line of one that was killed may be torn: it is cut off."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+b")
        self._file.seek(0)
        whole = self._file.read().rpartition(b"\n")
        self._file.truncate(len(whole[0]) + len(whole[1]))

    def write(self, *lines: Line) -> None:
        self._file.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        self._file.flush()
        os.fsync(self._file.fileno())


def lines_of(path: Path) -> Iterator[Line]:
    """The whole lines."""
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield json.loads(line)


def last_number(path: Path) -> int:
    """The number of the newest intent, 0 without one."""
    return max((line["n"] for line in lines_of(path)), default=0)


def tally(path: Path) -> dict[str, int]:
    """How many lines say each thing."""
    said = Counter(name for line in lines_of(path) for name in line)
    return {name: said[name] for name in sorted(said) if name not in ("n", "t", "topic", "queue", "offset", "handle")}
