"""Snapshot of a log: its consume queues, derived from all whole records, and the parts of the log that cannot be read.

A batch with which the log ends, and whose records are not all there, is left out, as recovery cuts it off. Which
batches are known to be committed is what the checkpoint says, as for recovery.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from dataclasses import dataclass

from commitlog_store.batch.frames import FoundFrame, FrameCheck, frames_in
from commitlog_store.columnar.dispatch import dispatch_requests
from commitlog_store.config import MessageStoreConfig
from commitlog_store.files import disk
from commitlog_store.format.record import Corrupt
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.past_damage import Gap, is_unwritten, lacks_sectors, walk_past_damage
from commitlog_store.log.store_checkpoint import read_mark
from commitlog_store.paths import ABORT, CHECKPOINT
from commitlog_store.queue.derived_queues import DerivedCatalog, QueueBuilder, Stray

_logger = logging.getLogger(__name__)

# Large enough that each of a thousand queues has several units in a block.
_BLOCK_SIZE = 32 << 20


@dataclass(frozen=True)
class LogSnapshot:
    """A log as it was. ``start`` and ``end`` are physical offsets: of the first record, and after the last one shown.

    ``gaps`` are the stretches that hold no whole record; zeros with which the log begins, as a kept piece does, are not
    among them. ``strays`` are whole records without a place in a queue.
    """

    catalog: DerivedCatalog
    start: int
    end: int
    records: int
    gaps: tuple[Gap, ...]
    strays: tuple[Stray, ...]

    @property
    def end_with_gaps(self) -> int:
        """The physical offset after the last record or gap."""
        return max([self.end, *(gap.stop for gap in self.gaps)])


def take_snapshot(
    store_path: str, commit_log: CommitLog, *, begin_at: int = 0, all_committed: bool = False
) -> LogSnapshot:
    """Walk the whole log once, with CRC, and derive its queues. Each gap and stray is logged as a warning.

    For a kept piece: ``begin_at`` is where the log was cut, and ``all_committed`` says that no batch in it was left
    unfinished by a crash.

    ``FileChanged`` when a file is truncated during the walk.
    """
    commit_log.refresh()
    low, high = commit_log.bounds()
    low = max(low, begin_at)
    builder = QueueBuilder()
    gaps: list[Gap] = []
    levels = MessageStoreConfig().delay_levels_ms
    last_frame: FoundFrame | None = None
    start, end, records = low, low, 0
    for part in walk_past_damage(commit_log, low, high, block_size=_BLOCK_SIZE):
        if isinstance(part, Gap):
            if part.start > low or not is_unwritten(commit_log, part):
                gaps.append(part)
            builder.add_gap(part.size)
            continue
        requests = dispatch_requests(part, levels)
        builder.add(requests)
        frames = frames_in(part)
        last_frame = frames[-1] if frames else last_frame
        if not records:
            start = part.physical_offset
        records += len(part)
        end = part.physical_offset + part.end
    unsure = last_frame is not None and last_frame.end >= end and not all_committed
    if unsure and last_frame is not None and not _is_committed(store_path, commit_log, last_frame):
        fault = Corrupt(f"Frame of {last_frame.frame.batch}", 0, f"{last_frame.frame.rows} records", "others, or fewer")
        gaps = [gap for gap in gaps if gap.stop <= last_frame.physical_offset]
        gaps.append(Gap(last_frame.physical_offset, max(end, last_frame.physical_offset), fault))
        end = last_frame.physical_offset
    queues = builder.finish(commit_log.path, end)
    _report(commit_log.path, gaps, builder.strays)
    catalog = DerivedCatalog(store_path, queues)
    return LogSnapshot(catalog, start, end, records, tuple(gaps), tuple(builder.strays))


def _report(path: str, gaps: list[Gap], strays: list[Stray]) -> None:
    for gap in gaps:
        where = f"physical offsets [{gap.start}, {gap.stop}), {gap.size} bytes"
        _logger.warning("%s: %s, hold no whole record: %s", path, where, gap.reason)
    records: Counter[tuple[str, int]] = Counter()
    for stray in strays:
        records[stray.topic, stray.queue_id] += stray.records
    for (topic, queue_id), count in records.items():
        why = "their queue offsets are other records', or far from their neighbours', or the topic is damaged"
        _logger.warning("%s: %d records have no place in queue %d of topic %r: %s", path, count, queue_id, topic, why)


def _is_committed(store_path: str, commit_log: CommitLog, frame: FoundFrame) -> bool:
    """Whether a batch that ends the log was synced, or has all its records."""
    if frame.end <= _flushed_offset(store_path):
        return True
    if not lacks_sectors(commit_log, frame.physical_offset, frame.end):
        return True  # damaged, and not left unfinished by a crash
    check, first = FrameCheck(frame), 1
    for part in walk_past_damage(commit_log, frame.physical_offset, frame.end, block_size=_BLOCK_SIZE):
        if isinstance(part, Gap):
            return False
        check.take(part, first)
        first = 0
    return check.whole


def _flushed_offset(store_path: str) -> int:
    """The physical offset up to which the log is known to have been flushed."""
    checkpoint = os.path.join(store_path, CHECKPOINT)
    if not disk.exists(checkpoint):
        return 0
    if not disk.exists(os.path.join(store_path, ABORT)):
        return MAX_LONG
    mark = read_mark(checkpoint)
    return 0 if mark is None else mark.flushed_offset
