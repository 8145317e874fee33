"""Filter of messages by tag, key and body, for the commands that print messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import typer

__all__ = ["MessageFilter"]


@dataclass(frozen=True, kw_only=True)
class MessageFilter:
    """What a message must have to be printed: one of the tags, one of the keys, and a body that the pattern matches."""

    tags: frozenset[str]
    keys: frozenset[str]
    pattern: re.Pattern[bytes] | None

    @classmethod
    def of(cls, tags: Sequence[str], keys: Sequence[str], grep: str | None) -> MessageFilter:
        """The filter of options. A tag may be several, as in a subscription: ``A || B``. ``BadParameter``."""
        names = [name.strip() for one in tags for name in one.split("||")]
        try:
            pattern = None if grep is None else re.compile(grep.encode())
        except re.error as error:
            raise typer.BadParameter(f"{grep!r} is not a regular expression: {error}.", param_hint="--grep") from None
        return cls(tags=frozenset(name for name in names if name), keys=frozenset(keys), pattern=pattern)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it looks at."""
        return (
            *(["tags"] if self.tags else []),
            *(["keys", "uniqKey"] if self.keys else []),
            *(["body"] if self.pattern else []),
        )

    def apply(self, table: pa.Table) -> pa.Table:
        """The rows that match."""
        if self.tags:
            table = table.filter(pc.is_in(table.column("tags"), pa.array(sorted(self.tags))))
        if self.keys:
            table = table.filter(pa.array(self._with_key(table)))
        if self.pattern is not None:
            search = self.pattern.search
            bodies = table.column("body").to_pylist()
            table = table.filter(
                pa.array([body is not None and search(body) is not None for body in bodies], pa.bool_())
            )
        return table

    def _with_key(self, table: pa.Table) -> npt.NDArray[np.bool_]:
        keys, unique = table.column("keys").to_pylist(), table.column("uniqKey").to_pylist()
        wanted = self.keys
        found = [
            one in wanted or (text is not None and not wanted.isdisjoint(text.split()))
            for text, one in zip(keys, unique, strict=True)
        ]
        return np.array(found, np.bool_)
