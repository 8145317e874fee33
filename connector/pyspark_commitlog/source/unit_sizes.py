"""Message sizes out of consume queues, read in pieces and never more of them than needed.

A consume queue holds the size of every message, so limits and cuts by bytes are exact without touching the CommitLog.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from commitlog import FILLER_SIZE, StoreReader
from commitlog.errors import FileMissing

__all__ = ["SizeWalker", "Sizes", "message_sizes"]

Sizes: TypeAlias = npt.NDArray[np.int64]

_FIRST_CHUNK_UNITS = 256
_LARGEST_CHUNK_UNITS = 262_144


def message_sizes(units: npt.NDArray[Any]) -> Sizes:
    """Bytes of each unit's message in the CommitLog; 0 for a filler, which stands for no message."""
    sizes = units["size"].astype(np.int64)
    sizes[sizes == FILLER_SIZE] = 0
    return sizes


class SizeWalker:
    """Goes forward through one queue's messages and says how many of them fit a budget.

    The pieces it reads grow with what is taken, so asking for little costs little. Where a file of the queue is missing
    it ends, as if the queue did: what is behind the hole is for the next batch. What else the reader raises passes
    through: ``OffsetOutOfRange`` when retention has just taken the queue's start.
    """

    def __init__(self, reader: StoreReader, topic: str, queue_id: int, start: int, stop: int) -> None:
        self._reader = reader
        self._topic = topic
        self._queue_id = queue_id
        self._read_to = start
        self._stop = stop
        self._chunk = _FIRST_CHUNK_UNITS
        # Running totals over the piece in memory, of which the first `_used` messages are taken.
        self._totals: Sizes = np.zeros(0, np.int64)
        self._used = 0
        self.position = start
        self.head_physical_offset = -1

    def take(self, budget: int) -> int:
        """Take messages while their sizes add up to at most ``budget``; the bytes taken. ``position`` moves along."""
        taken = 0
        while self._load():
            before = int(self._totals[self._used - 1]) if self._used else 0
            used = int(np.searchsorted(self._totals, before + budget - taken, side="right"))
            if used == self._used:
                break
            taken += int(self._totals[used - 1]) - before
            self.position += used - self._used
            self._used = used
            if used < len(self._totals):
                break
        return taken

    def take_one(self) -> None:
        """Take the next message, however large."""
        if self._load():
            self.position += 1
            self._used += 1

    def next_size(self) -> int | None:
        """The next message's size; None at the end."""
        if not self._load():
            return None
        before = int(self._totals[self._used - 1]) if self._used else 0
        return int(self._totals[self._used]) - before

    def _load(self) -> bool:
        """Have at least one message in memory that is not taken; False at the end."""
        if self._used < len(self._totals):
            return True
        if self._read_to >= self._stop:
            return False
        until = min(self._read_to + self._chunk, self._stop)
        try:
            units = next(self._reader.units(self._topic, self._queue_id, self._read_to, until, chunk=self._chunk))
        except FileMissing:
            self._stop = self._read_to
            return False
        if self.head_physical_offset < 0:
            self.head_physical_offset = int(units["physical_offset"][0])
        self._read_to += len(units)
        self._chunk = min(self._chunk * 4, _LARGEST_CHUNK_UNITS)
        self._totals = np.cumsum(message_sizes(units))
        self._used = 0
        return True
