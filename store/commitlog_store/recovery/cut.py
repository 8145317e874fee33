"""What is cut off a log after its end: whole records are found, reported and kept before anything is cut.

docs/decisions/0010-repair.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from commitlog_store.columnar.dispatch import DispatchRequests, dispatch_requests
from commitlog_store.columnar.scan import RecordScan
from commitlog_store.errors import DiskFull, InvalidValue
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.log.past_damage import Gap, describe_fault, is_unwritten, walk_past_damage
from commitlog_store.log.scan import SECTOR_SIZE, LogFileList, find_record
from commitlog_store.recovery.kept import CutOff, KeptPiece, LostMessages, keep_piece, refuse_keeping
from commitlog_store.recovery.log_end import FoundEnd

OnCut = Literal["keep", "refuse"]
_ZERO_END = 2


class _Lost:
    """Counts whole records by queue."""

    def __init__(self) -> None:
        self.messages = self.end = 0
        self._found: dict[tuple[str, int], LostMessages] = {}

    def add(self, scan: RecordScan, delay_levels_ms: Sequence[int]) -> None:
        requests = dispatch_requests(scan, delay_levels_ms)
        self.messages += len(scan)
        self.end = scan.physical_offset + scan.end
        for one in _by_queue(requests):
            queue = one.topic, one.queue_id
            seen = self._found.get(queue)
            self._found[queue] = one if seen is None else _together(seen, one)

    def by_queue(self) -> list[LostMessages]:
        return [lost for _, lost in sorted(self._found.items())]


def _together(one: LostMessages, other: LostMessages) -> LostMessages:
    messages = one.messages + other.messages
    placed = [part for part in (one, other) if part.start < part.stop]
    start = min((part.start for part in placed), default=0)
    stop = max((part.stop for part in placed), default=0)
    return one._replace(start=start, stop=stop, messages=messages)


def _by_queue(requests: DispatchRequests) -> list[LostMessages]:
    own = np.stack((requests.topic_codes, requests.queue_ids))
    found = []
    for code, queue_id in np.unique(own, axis=1).T.tolist():
        rows = (requests.topic_codes == code) & (requests.queue_ids == queue_id)
        offsets = requests.queue_offsets[rows & requests.has_unit]
        start, stop = (int(offsets.min()), int(offsets.max()) + 1) if len(offsets) else (0, 0)
        found.append(LostMessages(requests.topics[code], queue_id, start, stop, int(np.count_nonzero(rows))))
    return found


def whole_records_from(files: LogFileList, start: int, reason: str, delay_levels_ms: Sequence[int]) -> CutOff | None:
    """All whole records that begin at a physical offset or after it, wherever they lie; None without any."""
    lost = _Lost()
    for part in walk_past_damage(files, start, MAX_LONG):
        if isinstance(part, RecordScan):
            lost.add(part, delay_levels_ms)
    if not lost.messages:
        return None
    size = lost.end - start
    return CutOff(start=start, size=size, messages=lost.messages, reason=reason, lost=lost.by_queue())


def cut_off_after(files: LogFileList, found: FoundEnd, delay_levels_ms: Sequence[int]) -> CutOff | None:
    """What opening cuts off after the log's end; None when that holds no whole record."""
    if found.nothing_follows or find_record(files, found.end, MAX_LONG) is None:
        return None  # as after most crashes, and quicker found than by the walk
    reason = describe_fault(found.stop)
    cut = whole_records_from(files, found.end, reason, delay_levels_ms)
    frame = found.uncommitted
    if cut is not None and frame is not None and cut.start + cut.size <= frame.end:
        return CutOff(**{**vars(cut), "uncommitted": str(frame.frame.batch)})
    if cut is not None and _was_being_written(files, cut):
        return CutOff(**{**vars(cut), "uncommitted": "a batch that was being written"})
    return cut


def _was_being_written(files: LogFileList, cut: CutOff) -> bool:
    """Whether only a batch follows whose frame record, which is written last, is not there yet.

    In its place there are zeros, up to a record that begins within a sector: a sector that a device has lost would take
    that record's beginning with it. All records after it are of one time.
    """
    parts = iter(walk_past_damage(files, cut.start, cut.start + cut.size))
    hole = next(parts, None)
    if not isinstance(hole, Gap) or hole.start != cut.start or not is_unwritten(files, hole):
        return False
    file = files.find(hole.start)
    # A record may end with the two zero bytes of a properties length.
    if file is None or (hole.stop - file.base) % SECTOR_SIZE <= _ZERO_END:
        return False
    times: set[int] = set()
    for part in parts:
        if isinstance(part, Gap):
            return False
        times.update(np.unique(part.field("store_timestamp")).tolist())
    return len(times) == 1


def keep(store_path: str, files: LogFileList, cut: CutOff) -> KeptPiece | None:
    """Keep what is about to be cut off. None for an uncommitted batch that the disk has no space for.

    ``DiskFull``, ``InvalidValue``, ``StoreIOError``; then nothing was written.
    """
    try:
        return keep_piece(store_path, files.files, cut)
    except DiskFull:
        if not cut.uncommitted:
            raise
        return None  # its writer has it still, and an owner must be able to open the store to free space


def why_not_kept(store_path: str, files: LogFileList, cut: CutOff) -> DiskFull | InvalidValue | None:
    """The error of ``keep``, as far as a look can tell; None when a piece is kept, or need not be. ``OSError``."""
    try:
        refuse_keeping(store_path, files.files, cut)
    except (DiskFull, InvalidValue) as error:
        return None if cut.uncommitted and isinstance(error, DiskFull) else error
    return None
