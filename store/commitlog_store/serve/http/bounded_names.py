"""BoundedNames: which topics or groups have series of their own. The rest is one series, so that labels are bounded."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

# No name of a topic or group: these have no parentheses.
REST = "(other)"

_K = TypeVar("_K", bound=Hashable)


class BoundedNames(Generic[_K]):
    """The first ``most`` names, the largest first, keep their series; counters would go back if a name lost its own."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._named: set[_K] = set()

    def admit(self, values: Mapping[_K, float]) -> None:
        """Give names their own series while there is room."""
        room = self._most - len(self._named)
        new = [name for name in values if name not in self._named] if room > 0 else []
        if len(new) > room:
            new = sorted(new, key=lambda name: -values[name])[:room]
        self._named.update(new)

    def __contains__(self, name: object) -> bool:
        return name in self._named

    def split(self, values: Mapping[_K, float]) -> tuple[dict[_K, float], float | None]:
        """The values of names with a series of their own, and the sum of the others; None without others."""
        own = {name: value for name, value in values.items() if name in self._named}
        rest = None if len(own) == len(values) else sum(values.values()) - sum(own.values())
        return own, rest
