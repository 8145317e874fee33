"""The hint in messages about a name that is not known."""

from __future__ import annotations

from collections.abc import Mapping

from commitlog.columnar.columns import nearest_name

__all__ = ["did_you_mean"]


def did_you_mean(name: str, known: Mapping[str, str]) -> str:
    """`` Did you mean ...?`` with the known name nearest to ``name``, or nothing when none is near.

    ``known`` are the names in lower case and as they are written.
    """
    near = nearest_name(name, known.values())
    return f" Did you mean {near}?" if near else ""
