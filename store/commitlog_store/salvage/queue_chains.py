"""Chains of queue offsets in a damaged log: which are missing, which are wrong, and those in a salvaged store.

The messages of a queue have consecutive offsets in the order of the log. A *run* is a stretch of them; a queue whose
log is whole has one. Between two runs, offsets are missing or start again.

A record whose offset does not fit (a damaged QUEUEOFFSET, which no CRC covers) is a run of its own. So is one that came
into a queue by a damaged TOPIC or QUEUEID. Offsets can be missing only where bytes of the log are unreadable, at least
as many as the smallest records take: that is the means to distinguish them.

The consume queues of a store cannot have a gap: RocketMQ and this package put the unit of the next message right after
the last one, whatever its QUEUEOFFSET says. So in a salvaged store the runs of a queue follow each other. The last one
keeps its offsets, and those before it move up: a consumer then finds at its position the message that it would have
got, or one before it, and never one after it. In a log that begins at 0, queues begin at 0 too, and runs move down.
docs/decisions/0013-salvage.md has the argument.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from commitlog_store.format.arrays import Int64Array
from commitlog_store.format.record import MIN_RECORD_SIZE
from commitlog_store.queue.offset_hole import OffsetHole

Queue = tuple[str, int]
# A last message so many offsets after the one before it is taken for right.
_NEAR = 1000


class Run(NamedTuple):
    """Messages with the queue offsets ``[start, stop)``, and where the first begins and the last begins and ends."""

    start: int
    stop: int
    first_place: int
    last_place: int
    end_place: int

    @property
    def is_single(self) -> bool:
        return self.stop - self.start == 1


class Stretches:
    """Stretches of the log in ascending order, to be asked for the bytes between two places."""

    def __init__(self, stretches: Iterable[tuple[int, int]]) -> None:
        self.stretches = list(stretches)
        self._starts = [start for start, _ in self.stretches]
        self._stops = [stop for _, stop in self.stretches]
        sizes = [stop - start for start, stop in self.stretches]
        self._before = np.cumsum([0, *sizes]).tolist()

    def between(self, start: int, stop: int) -> int:
        """The bytes of all stretches that lie within ``[start, stop)``."""
        first, last = bisect_left(self._starts, start), bisect_right(self._stops, stop)
        return int(self._before[last] - self._before[first]) if first < last else 0


@dataclass
class QueueChain:
    """The runs of one queue in the order of the log, and for a salvaged store where each run begins there."""

    topic: str
    queue_id: int
    runs: list[Run] = field(default_factory=list)
    new_starts: list[int] = field(default_factory=list)
    # Where each run begins in the log, and how far its offsets move; once it is numbered.
    _places: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    _shifts: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, start: int, stop: int, first_place: int, last_place: int, end_place: int) -> None:
        """Messages with consecutive offsets, later in the log than all before."""
        last = self.runs[-1] if self.runs else None
        if last is not None and last.stop == start:
            self.runs[-1] = last._replace(stop=stop, last_place=last_place, end_place=end_place)
        else:
            self.runs.append(Run(start, stop, first_place, last_place, end_place))

    def leave_out(self, offset: int, place: int) -> None:
        """Take one message out of its run, which becomes two."""
        runs: list[Run] = []
        for run in self.runs:
            if run.first_place <= place <= run.last_place and run.start <= offset < run.stop:
                runs.append(run._replace(stop=offset, last_place=place - 1))
                runs.append(run._replace(start=offset + 1, first_place=place + 1))
            else:
                runs.append(run)
        self.runs = [run for run in runs if run.start < run.stop]

    @property
    def found(self) -> int:
        """The number of messages."""
        return sum(run.stop - run.start for run in self.runs)

    def missing(self) -> list[tuple[int, int]]:
        """The offsets missing between runs, as ranges."""
        pairs = zip(self.runs, self.runs[1:], strict=False)
        return [(one.stop, other.start) for one, other in pairs if one.stop < other.start]

    def number(self, *, from_zero: bool = False) -> None:
        """Set ``new_starts``: the runs follow each other, and the last one keeps its offsets if there is room.

        With ``from_zero`` the first one begins at 0.
        """
        at = max(self.runs[-1].stop - self.found, 0) if self.runs and not from_zero else 0
        self.new_starts = []
        for run in self.runs:
            self.new_starts.append(at)
            at += run.stop - run.start
        self._places = np.array([run.first_place for run in self.runs], np.int64)
        self._shifts = np.array(self.new_starts, np.int64) - np.array([run.start for run in self.runs], np.int64)

    @property
    def is_moved(self) -> bool:
        """Whether any message gets another offset."""
        return bool(self._shifts.any())

    @property
    def new_end(self) -> int:
        """The offset after the last message in the salvaged store."""
        return self.new_starts[-1] + self.runs[-1].stop - self.runs[-1].start

    def new_position(self, offset: int) -> int:
        """The position in the salvaged store of a consumer that would have got the message at ``offset`` next.

        That is the place of this message, or of the first one found after it. Of a queue whose offsets began again,
        consumers stand in the last part.
        """
        following: tuple[Run, int] | None = None
        for run, new_start in zip(reversed(self.runs), reversed(self.new_starts), strict=True):
            if following is None and offset >= run.stop:
                return new_start + offset - run.start
            if following is not None and (offset >= run.stop or run.start >= following[0].start):
                break
            following = run, new_start
        return offset if following is None else following[1] + max(offset - following[0].start, 0)

    def new_offsets(self, places: Int64Array, offsets: Int64Array) -> Int64Array:
        """The offsets that messages at these places (ascending) get in the salvaged store."""
        return offsets + self._shifts[np.searchsorted(self._places, places, side="right") - 1]


class Chains:
    """The chains of all queues of a log."""

    def __init__(self) -> None:
        self.queues: dict[Queue, QueueChain] = {}
        # Records whose topic, queue id or queue offset is damaged, and the queue that each claims to be in.
        self.wrong: list[tuple[Run, Queue]] = []

    def of(self, topic: str, queue_id: int) -> QueueChain:
        """The chain of a queue."""
        queue = (topic, queue_id)
        if queue not in self.queues:
            self.queues[queue] = QueueChain(topic, queue_id)
        return self.queues[queue]

    def settle(self, lost: Iterable[tuple[int, int]], log_start: int) -> None:
        """Take the records that do not fit out of the chains, into ``wrong``.

        ``lost`` are the unreadable stretches. What a queue had before ``log_start`` has expired, unless that is 0.
        """
        rules = _Rules(Stretches(lost), log_start)
        doubtful = [chain for chain in self.queues.values() if not all(rules.fitting(chain.runs))]
        if not doubtful:
            return
        self._take_out_strays(doubtful, rules)
        found = [(run.first_place, run.end_place) for run, _ in self.wrong]
        rules = _Rules(Stretches(sorted([*rules.lost.stretches, *found])), log_start)
        for chain in doubtful:
            self._take_out_misfits(chain, rules)
        self.queues = {queue: chain for queue, chain in self.queues.items() if chain.runs}

    def _take_out_strays(self, doubtful: list[QueueChain], rules: _Rules) -> None:
        """Single records that do not fit into their queue, and into a hole of another one that no bytes explain."""
        pairs = [pair for chain in doubtful for pair in zip(chain.runs, chain.runs[1:], strict=False)]
        holes = [
            OffsetHole(one.stop, other.start, one.last_place, other.first_place)
            for one, other in pairs
            if one.stop < other.start and not rules.follows(one, other)
        ]
        for chain in self.queues.values() if holes else ():
            fits = list(rules.fitting(chain.runs))
            for place, run in reversed(list(enumerate(chain.runs))):
                begins = place == 0 and run.start > 0
                misfits = run.is_single and (begins or not fits[place])
                if misfits and any(hole.is_filled_by(run.start, run.first_place) for hole in holes):
                    del chain.runs[place]
                    self.wrong.append((run, (chain.topic, chain.queue_id)))

    def _take_out_misfits(self, chain: QueueChain, rules: _Rules) -> None:
        kept: list[Run] = []
        wrong: list[Run] = []
        for place, run in enumerate(chain.runs):
            before = kept[-1] if kept else None
            if rules.follows(before, run):
                kept.append(run)
                continue
            following = chain.runs[place + 1] if place + 1 < len(chain.runs) else None
            fits_without = rules.is_far(before, run) if following is None else rules.follows(before, following, run)
            if run.is_single and fits_without:
                wrong.append(run)
                continue
            if before is not None and before.is_single and rules.follows(kept[-2] if kept[1:] else None, run, before):
                wrong.append(kept.pop())
            kept.append(run)
        chain.runs = kept
        self.wrong += [(run, (chain.topic, chain.queue_id)) for run in wrong]

    def number(self, *, from_zero: bool = False) -> None:
        """Number all chains for a salvaged store."""
        for chain in self.queues.values():
            chain.number(from_zero=from_zero)


@dataclass(frozen=True)
class _Rules:
    """Which run can come after which, given the stretches that are lost."""

    lost: Stretches
    log_start: int

    def follows(self, before: Run | None, run: Run, without: Run | None = None) -> bool:
        """Whether a run can come after another one (None: first in its queue), if the one ``without`` is wrong."""
        if before is None and self.log_start:
            return True
        stop, since = (0, 0) if before is None else (before.stop, before.end_place)
        missing = run.start - stop
        if missing < 0:
            return run.start == 0 and not run.is_single  # the topic was deleted, and made again
        room = self.lost.between(since, run.first_place)
        if without is not None:
            room += without.end_place - without.first_place
        return missing * MIN_RECORD_SIZE <= room

    def is_far(self, before: Run | None, run: Run) -> bool:
        """Whether a queue's last run is rather a damaged offset than one after a message that shows nowhere."""
        return not 0 <= run.start - (0 if before is None else before.stop) <= _NEAR

    def fitting(self, runs: Sequence[Run]) -> Iterable[bool]:
        """For each run, whether it can come after the one before it."""
        return (self.follows(before, run) for before, run in zip([None, *runs], runs, strict=False))
