"""What one thread waits for and others bring about, while signal handlers may raise in any of them."""

from __future__ import annotations

import contextlib
import queue

__all__ = ["Wakeup"]


class Wakeup:
    """Ends a wait, or the next one if nobody waits; of several who wait, one.

    The events and conditions of ``threading`` are written in Python, with a lock: what interrupts one of them half-way,
    as Ctrl-C does, may leave that lock behind, and then everybody waits for ever. A queue of C's is used in one step.
    """

    def __init__(self) -> None:
        self._tokens: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        if self._tokens.empty():
            self._tokens.put(None)

    def wait(self, seconds: float) -> None:
        """Return when it is set, or so many seconds are over."""
        with contextlib.suppress(queue.Empty):
            self._tokens.get(timeout=seconds)
