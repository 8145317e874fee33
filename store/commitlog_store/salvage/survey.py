"""Survey of a damaged log: the first of the two walks of a salvage. Finds all whole records, and changes nothing.

Its result says for each record whether it is taken, and what becomes of its queue offset: the second walk
(``salvage/taken_records.py``) reads the found stretches again, without their CRCs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from commitlog_store.batch.frames import FoundFrame, FrameCheck, frames_in
from commitlog_store.columnar.scan import RecordScan
from commitlog_store.format import sys_flag
from commitlog_store.format.arrays import Int64Array
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.log.past_damage import Gap, walk_past_damage
from commitlog_store.paths import BATCH_TOPIC
from commitlog_store.progress import Progress
from commitlog_store.salvage.log_source import LogSource
from commitlog_store.salvage.queue_chains import Chains

_BLOCK_SIZE = 16 << 20
_TYPES = {
    sys_flag.TRANSACTION_PREPARED_TYPE: "prepared",
    sys_flag.TRANSACTION_COMMIT_TYPE: "committed",
    sys_flag.TRANSACTION_ROLLBACK_TYPE: "rolledBack",
}


class Unreadable(NamedTuple):
    """A stretch ``[start, stop)`` of the log (physical offsets) that holds no whole record, and what is there."""

    start: int
    stop: int
    what: str


@dataclass(frozen=True)
class DamagedBatch:
    """A batch of which some records are damaged or missing. ``rows_found`` of ``frame.frame.rows`` are whole.

    ``committed``: the log continues after it, so it was committed. Else it is what a crash left of a commit.
    """

    frame: FoundFrame
    rows_found: int
    committed: bool


@dataclass
class Survey:
    """The whole records of a log. ``stretches`` are where they lie, in order; all positions are physical offsets."""

    log_start: int
    log_end: int
    stretches: list[tuple[int, int]] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    chains: Chains = field(default_factory=Chains)
    frames: list[FoundFrame] = field(default_factory=list)
    # The queue offset of each frame record, by its place.
    frame_offsets: dict[int, int] = field(default_factory=dict)
    damaged_batches: list[DamagedBatch] = field(default_factory=list)
    # Records without a queue offset, by topic and kind of transaction, and the messages that a commit made visible.
    transactions: Counter[tuple[str, str]] = field(default_factory=Counter)
    # Whole records that are not taken, by place: with a damaged queue place, and of batches that are not whole.
    left_out: list[int] = field(default_factory=list)
    records: int = 0
    last_place: int = -1

    def target_start(self, files: LogSource) -> int:
        """Where the log of a salvaged store begins: with the file of the first whole record."""
        base = files.base_at(self.stretches[0][0]) if self.stretches else None
        return self.log_start if base is None else base

    def holds(self, place: int) -> bool:
        """Whether a place is within the whole records."""
        return any(start <= place < stop for start, stop in self.stretches)

    @property
    def record_bytes(self) -> int:
        """Bytes of all whole records."""
        return sum(stop - start for start, stop in self.stretches)


def survey_log(
    files: LogSource,
    *,
    begin_at: int = 0,
    flushed_to: int = 0,
    uncommitted: bool = False,
    progress: Progress | None = None,
) -> Survey:
    """Walk a whole log, CRCs included.

    ``begin_at`` is where a kept piece begins: only zeros come before. Up to ``flushed_to`` the log is known to have
    been on the device. A batch that a crash left unfinished at the log's end is not taken unless ``uncommitted``.
    """
    survey = _surveyed(files, begin_at, MAX_LONG, progress)
    known_end = max(survey.last_place, flushed_to)
    damaged = [replace(one, committed=known_end >= one.frame.end) for one in survey.damaged_batches]
    if damaged and not damaged[-1].committed and not uncommitted:
        unreadable = survey.unreadable
        survey = _surveyed(files, begin_at, damaged[-1].frame.physical_offset, None)
        survey.unreadable = unreadable
    survey.damaged_batches = damaged
    survey.chains.settle(list(_lost(survey)), survey.log_start)
    for run, (topic, queue_id) in survey.chains.wrong:
        what = f"topic {topic!r}, queue {queue_id}, offset {run.start}: not that of the record's neighbours"
        survey.unreadable.append(Unreadable(run.first_place, run.end_place, what))
        survey.left_out.append(run.first_place)
    survey.unreadable.sort()
    _settle_batches(survey, known_end)
    survey.left_out.sort()
    # RocketMQ takes the blank units before a queue's first one for messages, since they name the offset 0, unless its
    # log begins after that; and skips what a consumer gets with them.
    survey.chains.number(from_zero=survey.target_start(files) == 0)
    return survey


def _lost(survey: Survey) -> Iterator[tuple[int, int]]:
    """The stretches in which messages may have been: unreadable ones, and all before the first record.

    A log that begins with zeros is the kept piece of another one.
    """
    first = survey.stretches[0][0] if survey.stretches else survey.log_start
    if first > survey.log_start:
        yield survey.log_start, first
    yield from ((one.start, one.stop) for one in survey.unreadable if one.start >= first)


def _settle_batches(survey: Survey, known_end: int) -> None:
    """Batches that lack a record are not frames any more: their frame records are left out, and no batch begins."""
    wrong = np.array(survey.left_out, np.int64)
    for frame in list(survey.frames):
        inside = int(((wrong > frame.physical_offset) & (wrong < frame.end)).sum())
        if inside:
            survey.frames.remove(frame)
            rows = frame.frame.rows - inside
            survey.damaged_batches.append(DamagedBatch(frame, rows, committed=known_end >= frame.end))
    chain = survey.chains.queues.get((BATCH_TOPIC, 0))
    for batch in survey.damaged_batches:
        place = batch.frame.physical_offset
        if chain is not None and place in survey.frame_offsets:
            chain.leave_out(survey.frame_offsets[place], place)
            survey.left_out.append(place)
    if chain is not None and not chain.runs:
        del survey.chains.queues[BATCH_TOPIC, 0]


def _surveyed(files: LogSource, begin_at: int, limit: int, progress: Progress | None) -> Survey:
    start = max(files.bases[0], begin_at)
    survey = Survey(log_start=files.bases[0], log_end=start)
    total = files.end() - start
    batches = _BatchWalk(survey)
    for part in walk_past_damage(files, start, limit, block_size=_BLOCK_SIZE):
        if isinstance(part, Gap):
            survey.unreadable.append(Unreadable(part.start, part.stop, part.reason))
            survey.log_end = part.stop
        else:
            _add(survey, part)
            batches.take(part)
        if progress is not None:
            progress(survey.log_end - start, total)
    batches.end()
    if progress is not None:
        progress(total, total)
    return survey


def _add(survey: Survey, scan: RecordScan) -> None:
    first, end = scan.physical_offset, scan.physical_offset + scan.end
    if survey.stretches and survey.stretches[-1][1] == first:
        survey.stretches[-1] = (survey.stretches[-1][0], end)
    else:
        survey.stretches.append((first, end))
    survey.records += len(scan)
    survey.last_place = int(scan.positions[-1]) + first
    survey.log_end = end
    flags = scan.field("sys_flag")
    codes, topics = scan.topics
    kinds = flags & sys_flag.TRANSACTION_ROLLBACK_TYPE
    if kinds.any():
        for kind, name in _TYPES.items():
            for code, count in enumerate(np.bincount(codes[kinds == kind], minlength=len(topics)).tolist()):
                survey.transactions[topics[code], name] += count
    for topic, queue_id, rows in queue_rows(scan):
        _add_rows(survey, scan, topic, queue_id, rows)


def queue_rows(scan: RecordScan) -> Iterator[tuple[str, int, Int64Array]]:
    """The rows of each queue, in log order: those that get a unit."""
    codes, topics = scan.topics
    rows = np.flatnonzero(sys_flag.has_queue_unit(scan.field("sys_flag")))
    if not len(rows):
        return
    ids = scan.field("queue_id")[rows]
    groups = codes[rows].astype(np.int64) << 32 | ids
    if (groups == groups[0]).all():
        yield topics[int(codes[rows[0]])], int(ids[0]), rows
        return
    distinct, places = np.unique(groups, return_inverse=True)
    # Of two bytes numpy's stable sort is a radix sort: several times faster than that of eight.
    order = np.argsort(places.astype(np.uint16) if len(distinct) <= 1 << 16 else places, kind="stable")
    bounds = np.cumsum(np.bincount(places, minlength=len(distinct)))
    for group, part in zip(distinct.tolist(), np.split(rows[order], bounds[:-1]), strict=True):
        yield topics[group >> 32], group & 0xFFFF_FFFF, part


def _add_rows(survey: Survey, scan: RecordScan, topic: str, queue_id: int, rows: Int64Array) -> None:
    offsets = scan.field("queue_offset")[rows] if len(rows) < len(scan) else scan.field("queue_offset")
    places = scan.positions[rows] + scan.physical_offset
    ends = places + scan.sizes[rows]
    chain = survey.chains.of(topic, queue_id)
    jumps = np.flatnonzero(np.diff(offsets) != 1) + 1
    for start, stop in pairwise([0, *jumps.tolist(), len(rows)]):
        chain.add(
            int(offsets[start]),
            int(offsets[stop - 1]) + 1,
            int(places[start]),
            int(places[stop - 1]),
            int(ends[stop - 1]),
        )


class _BatchWalk:
    """Finds the frames of batches, and which of them are whole."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._check: FrameCheck | None = None
        self._rows = 0

    def take(self, scan: RecordScan) -> None:
        frames = _frames(scan)
        row = 0
        while True:
            row = self._continue(scan, row)
            following = next((one for one in frames if one[0] >= row), None)
            if following is None:
                return
            row, frame = following
            self.end()
            self._check, self._rows = FrameCheck(frame), 0
            self._survey.frame_offsets[frame.physical_offset] = int(scan.field("queue_offset")[row])
            row += 1

    def _continue(self, scan: RecordScan, row: int) -> int:
        if self._check is None:
            return row
        after = self._check.take(scan, row)
        self._rows += after - row
        if after < len(scan):
            self.end()
        return after

    def end(self) -> None:
        """The frame that is being checked has no more records."""
        check, self._check = self._check, None
        if check is None:
            return
        if check.whole:
            self._survey.frames.append(check.found)
            return
        self._survey.damaged_batches.append(DamagedBatch(check.found, self._rows, committed=True))


def _frames(scan: RecordScan) -> list[tuple[int, FoundFrame]]:
    """The rows of a scan that are frame records."""
    if BATCH_TOPIC not in scan.topics[1]:
        return []
    found = frames_in(scan)
    places = scan.positions + scan.physical_offset
    rows = np.searchsorted(places, [frame.physical_offset for frame in found]).tolist()
    return list(zip(rows, found, strict=True))
