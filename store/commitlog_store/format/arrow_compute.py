"""``pyarrow.compute``, imported when a function of it is first used: 50 ms that planning a read does without."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # The next use finds it in this module.
    found = globals()[name] = getattr(import_module("pyarrow.compute"), name)
    return found
