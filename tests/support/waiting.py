"""Waiting for what another thread or process does, with a limit that a busy machine keeps to as well."""

from __future__ import annotations

import time
from collections.abc import Callable

# No test measures by it: it only ends a wait for something that will never happen. pytest's own limit is 300 s.
WAIT_LIMIT_S = 200


def wait_for(condition: Callable[[], object], limit_s: float = WAIT_LIMIT_S) -> None:
    """Return as soon as the condition holds; asked again at once at first, then every 10 ms."""
    started = time.monotonic()
    while not condition():
        waited = time.monotonic() - started
        assert waited < limit_s, f"it did not happen within {limit_s} s"
        time.sleep(min(waited / 10, 0.01))
