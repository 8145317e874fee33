"""The hint in messages about a name that is not known."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

__all__ = ["did_you_mean"]

_LEAST_SIMILAR = 0.5


def did_you_mean(name: str, known: Mapping[str, str]) -> str:
    """`` Did you mean ...?`` with the known name nearest to ``name``, or nothing when none is near.

    ``known`` are the names in lower case and as they are written.
    """
    near = get_close_matches(name.lower(), known, n=1, cutoff=_LEAST_SIMILAR)
    return f" Did you mean {known[near[0]]}?" if near else ""
