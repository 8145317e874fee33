"""Admission: how much of each queue goes into the next batch, by ``maxOffsetsPerTrigger`` and ``maxBytesPerTrigger``.

Planning keeps no memory between triggers, and yet no queue may be starved. Age replaces memory: if not every queue can
have its turn, those whose next message is oldest (first in the CommitLog) go first. A message that had to wait is older
than all later ones, so its turn comes.

A consume queue holds the size of every message, so limits and cuts by bytes are exact without touching the CommitLog.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from commitlog_store import StoreReader
from commitlog_store.errors import FileMissing
from pyspark_commitlog.options.read import SourceOptions
from pyspark_commitlog.source.units_of_ranges import QueueRange, Sizes, Units, message_sizes, units_around_holes

_FIRST_CHUNK_UNITS = 256
_LARGEST_CHUNK_UNITS = 262_144


class SizeWalker:
    """Walks forward through a queue's messages and finds how many of them fit a budget.

    The pieces it reads, those of many walkers at once (``load``), grow with the messages taken, so a small budget costs
    little. At a missing file of the queue it ends, as if the queue did: messages after the hole are for the next batch.
    Other errors of the reader are not caught: ``OffsetOutOfRange`` when retention has just removed the queue's start.
    """

    def __init__(self, reader: StoreReader, topic: str, queue_id: int, start: int, stop: int) -> None:
        self.reader = reader
        self._queue = topic, queue_id
        self._read_to = start
        self._stop = stop
        self._chunk = _FIRST_CHUNK_UNITS
        # Running totals over the piece in memory, of which the first `_used` messages are taken.
        self._totals: Sizes = np.zeros(0, np.int64)
        self._used = 0
        self.position = start

    def take(self, budget: int) -> int:
        """Take messages while their sizes sum to at most ``budget``; ``position`` moves along. Returns their bytes."""
        taken = 0
        while self._has_next():
            taken += self.take_loaded(budget - taken)
            if self._used < len(self._totals):
                break
        return taken

    def take_loaded(self, budget: int) -> int:
        """``take`` of the piece in memory."""
        before = int(self._totals[self._used - 1]) if self._used else 0
        used = int(np.searchsorted(self._totals, before + budget, side="right"))
        if used <= self._used:
            return 0
        taken = int(self._totals[used - 1]) - before
        self.position += used - self._used
        self._used = used
        return taken

    def take_one(self) -> None:
        """Take the next message, however large."""
        if self._has_next():
            self.position += 1
            self._used += 1

    def next_size(self) -> int | None:
        """The next message's size; None at the end."""
        if not self._has_next():
            return None
        before = int(self._totals[self._used - 1]) if self._used else 0
        return int(self._totals[self._used]) - before

    def _has_next(self) -> bool:
        """Have at least one message in memory that is not taken; False at the end."""
        if self.wanted() is not None:
            load([self])
        return self._used < len(self._totals)

    def wanted(self) -> QueueRange | None:
        """The next piece to read, if all of the one in memory is taken; None at the end."""
        if self._used < len(self._totals) or self._read_to >= self._stop:
            return None
        return QueueRange(*self._queue, self._read_to, min(self._read_to + self._chunk, self._stop))

    def add(self, units: Units | FileMissing) -> None:
        """What was read of the piece that was wanted: some of its units, or that its file is missing."""
        if isinstance(units, FileMissing):
            self._stop = self._read_to
            return
        if self._used == len(self._totals):
            self._totals, self._used = self._totals[:0], 0
            self._chunk = min(self._chunk * 4, _LARGEST_CHUNK_UNITS)
        self._read_to += len(units)
        before = int(self._totals[-1]) if len(self._totals) else 0
        self._totals = np.append(self._totals, before + np.cumsum(message_sizes(units)))


def load(walkers: Sequence[SizeWalker]) -> None:
    """Read the next pieces of the walkers that want one, those of one reader with few questions."""
    wanted: dict[int, tuple[StoreReader, list[QueueRange], list[SizeWalker]]] = {}
    for walker in walkers:
        if (piece := walker.wanted()) is not None:
            _, pieces, those = wanted.setdefault(id(walker.reader), (walker.reader, [], []))
            pieces.append(piece)
            those.append(walker)
    for reader, pieces, those in wanted.values():
        by_piece = dict(zip(pieces, those, strict=True))
        for piece, units in units_around_holes(reader, pieces):
            by_piece[piece].add(units)


class WaitingQueue(NamedTuple):
    """The messages ``[start, stop)`` of a queue wait. ``head`` is its rank: queues with a smaller one go first."""

    reader: StoreReader
    topic: str
    queue_id: int
    start: int
    stop: int
    head: int


def admit(queues: Sequence[WaitingQueue], *, max_rows: int | None, max_bytes: int | None) -> list[int]:
    """Where the next batch ends in each queue; both limits hold."""
    heads = [one.head for one in queues]
    waiting = [one.stop - one.start for one in queues]
    if max_rows is not None:
        waiting = admit_rows(waiting, heads, max_rows)
    if max_bytes is None:
        return [one.start + count for one, count in zip(queues, waiting, strict=True)]
    walkers = [
        SizeWalker(one.reader, one.topic, one.queue_id, one.start, one.start + count)
        for one, count in zip(queues, waiting, strict=True)
    ]
    admit_bytes(walkers, waiting, heads, max_bytes)
    return [walker.position for walker in walkers]


def admit_rows(waiting: Sequence[int], heads: Sequence[int], limit: int) -> list[int]:
    """How many messages of each queue to read, ``limit`` in total or all.

    ``waiting`` is the number of messages of each queue, ``heads`` the physical offset of its next one. A queue gets at
    least one message if the limit suffices, and beyond that a share in proportion to its waiting messages; the rest
    from rounding, and a limit smaller than the number of queues, goes to the oldest first.
    """
    if sum(waiting) <= limit:
        return list(waiting)
    oldest_first = sorted((i for i, count in enumerate(waiting) if count), key=lambda i: (heads[i], i))
    admitted = [0] * len(waiting)
    for i in oldest_first[:limit]:
        admitted[i] = 1
    left = limit - sum(admitted)
    more = sum(waiting) - sum(admitted)
    for i in oldest_first if left else ():
        admitted[i] += left * (waiting[i] - 1) // more
    left = limit - sum(admitted)
    # Rounding leaves less than one message per queue, and for each a queue with more messages: one round is enough.
    for i in oldest_first:
        if left and admitted[i] < waiting[i]:
            admitted[i] += 1
            left -= 1
    return admitted


def admit_bytes(walkers: Sequence[SizeWalker], waiting: Sequence[int], heads: Sequence[int], limit: int) -> None:
    """Move each walker as far as the next batch goes, at most ``limit`` bytes in total.

    First one message of each queue, oldest first, as far as they fit; then the others in proportion to the waiting
    bytes; then the rest of the limit, oldest first. The oldest message of all is always admitted: if it alone is larger
    than the limit it goes alone, since it would block its queue indefinitely otherwise.
    """
    load(walkers)
    left = limit
    open_queues: list[int] = []
    for i in sorted((i for i, count in enumerate(waiting) if count), key=lambda i: (heads[i], i)):
        size = walkers[i].next_size()
        if size is None:
            continue
        if size > left:
            if not open_queues and left == limit:
                walkers[i].take_one()
                return
            continue
        walkers[i].take_one()
        left -= size
        open_queues.append(i)
    more = sum(waiting[i] - 1 for i in open_queues)
    share_of = {i: left * (waiting[i] - 1) // more for i in open_queues} if more else {}
    left -= _take_side_by_side(walkers, share_of)
    load([walkers[i] for i in share_of])
    for i in share_of:
        left -= walkers[i].take(left)


def _take_side_by_side(walkers: Sequence[SizeWalker], budgets: Mapping[int, int]) -> int:
    """``take`` of each walker's budget, and the bytes taken; the walkers read their pieces together."""
    left = dict(budgets)
    going = list(budgets)
    while going:
        load([walkers[i] for i in going])
        for i in going:
            left[i] -= walkers[i].take_loaded(left[i])
        going = [i for i in going if walkers[i].wanted() is not None]
    return sum(budgets.values()) - sum(left.values())


class TriggerLimits:
    """The limits of one run of one query; they hold over all its queues, and over all its stores."""

    def __init__(self, options: SourceOptions, clock: Callable[[], float]) -> None:
        self._options = options
        self._clock = clock
        # When the last batch with messages was planned, by the clock in seconds; None before the first of this run.
        self._last_batch_s: float | None = None

    def may_wait(self, rows: int, *, lost: bool) -> bool:
        """Whether the batch is delayed: by ``minOffsetsPerTrigger`` for less messages than that, at most for
        ``maxTriggerDelay`` since the batch before. Lost messages are reported at once.
        """
        least = self._options.min_offsets_per_trigger
        if least is None or not rows or lost or self._last_batch_s is None or rows >= least:
            return False
        return self._clock() - self._last_batch_s < self._options.max_trigger_delay_s

    def batch_planned(self) -> None:
        """A batch with messages was planned, and no attempt will be repeated: the next delay begins."""
        self._last_batch_s = self._clock()

    def bind(self, rows: int) -> bool:
        """Whether a batch may have to leave some of the ``rows`` for later."""
        most = self._options.max_offsets_per_trigger
        return self._options.max_bytes_per_trigger is not None or (most is not None and rows > most)

    def admit(self, queues: Sequence[WaitingQueue]) -> list[int]:
        """Where the next batch ends in each queue."""
        return admit(
            queues, max_rows=self._options.max_offsets_per_trigger, max_bytes=self._options.max_bytes_per_trigger
        )
