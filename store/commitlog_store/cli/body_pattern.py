"""``BodyPattern``: messages whose body matches a regular expression, for the commands that print messages."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import typer


@dataclass(frozen=True)
class BodyPattern:
    """The pattern that a body must match somewhere; None for all bodies."""

    pattern: re.Pattern[bytes] | None = None

    @classmethod
    def of(cls, grep: str | None) -> BodyPattern:
        """The pattern of an option. ``BadParameter``."""
        try:
            return cls(None if grep is None else re.compile(grep.encode()))
        except re.error as error:
            raise typer.BadParameter(f"{grep!r} is not a regular expression: {error}.", param_hint="--grep") from None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it looks at."""
        return () if self.pattern is None else ("body",)

    def apply(self, table: pa.Table) -> pa.Table:
        """The rows that match."""
        if self.pattern is None:
            return table
        search = self.pattern.search
        bodies = table.column("body").to_pylist()
        return table.filter(pa.array([body is not None and search(body) is not None for body in bodies], pa.bool_()))
