"""Slow steps: the time from which on a put, an append, a commit or a sync is reported, and the log of slow spells."""

from __future__ import annotations

import logging

# What takes longer is reported, as RocketMQ does.
SLOW_S = 0.5


class SlowSpell:
    """Logs when the steps of one kind begin to be slow, and when they are quick again; not each step between."""

    def __init__(self, log: logging.Logger, kind: str) -> None:
        """``kind`` begins the sentence: "A sync of the log of /data/store"."""
        self._log = log
        self._kind = kind
        self._count = 0
        self._longest_s = 0.0

    def note(self, elapsed_s: float) -> None:
        """A step took that long."""
        if elapsed_s > SLOW_S:
            self._count += 1
            self._longest_s = max(self._longest_s, elapsed_s)
            if self._count == 1:
                self._log.warning("%s took %.0f ms: the disk does not keep up.", self._kind, elapsed_s * 1000)
        elif self._count:
            self._log.warning(
                "%s took %.0f ms again; %d before took more than %.0f ms, the longest %.0f ms.",
                self._kind, elapsed_s * 1000, self._count, SLOW_S * 1000, self._longest_s * 1000,
            )  # fmt: skip
            self._count, self._longest_s = 0, 0.0
