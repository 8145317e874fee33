"""Commands that a page shows with their output: how they are read from its blocks, and compared with what is printed.

In a shown output, ``...`` is any text, and a line of ``...`` any number of lines; ``# exit code 1`` after a command is
the exit code that is expected, else 0.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Step(NamedTuple):
    """A command, the exit code that is expected, and the lines of its output that the page shows."""

    command: str
    exit_code: int
    shown: list[str]


def steps_of(blocks: list[str]) -> list[Step]:
    """The commands of a page's ``console`` blocks, in order."""
    steps: list[Step] = []
    for line in "".join(blocks).splitlines():
        if line.startswith("$ "):
            command, _, code = line[2:].partition("  # exit code ")
            steps.append(Step(command, int(code or 0), []))
        else:
            steps[-1].shown.append(line)
    return steps


def matches(shown: list[str], printed: str) -> bool:
    """Whether a printed text is the shown one."""
    pattern = "".join(
        r"(?:.*\n)*" if line == "..." else ".*".join(map(re.escape, line.rstrip().split("..."))) + r" *\n"
        for line in shown
    )
    return re.fullmatch(pattern, printed) is not None
