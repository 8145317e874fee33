"""``BodyPattern``: messages whose body matches a regular expression, for searches."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from commitlog_store.errors import InvalidValue


@dataclass(frozen=True)
class BodyPattern:
    """The pattern that a body must match somewhere; None for all bodies."""

    pattern: re.Pattern[bytes] | None = None

    @classmethod
    def of(cls, grep: str | None) -> BodyPattern:
        """The pattern of a text; None for all bodies. ``InvalidValue``."""
        try:
            return cls(None if grep is None else re.compile(grep.encode()))
        except re.error as error:
            raise InvalidValue(f"{grep!r} is not a regular expression: {error}.") from None

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
