"""The frames of a store as a reader finds them: what the ledger is read from without being the owner."""

from __future__ import annotations

from commitlog.errors import CorruptRecord, MessageNotFound, QueueNotFound, TopicNotFound
from commitlog.log.batch_frames import FoundFrame, frame_of
from commitlog.log.commit_log import CommitLog
from commitlog.log.queue_catalog import QueueCatalog
from commitlog.paths import BATCH_TOPIC

__all__ = ["StoredFrames"]


class StoredFrames:
    """A ``LedgerSource`` on the files of a store."""

    def __init__(self, commit_log: CommitLog, catalog: QueueCatalog) -> None:
        self._commit_log = commit_log
        self._catalog = catalog

    def log_bounds(self) -> tuple[int, int]:
        return self._commit_log.bounds()

    def queue_end(self) -> int:
        try:
            return self._catalog.bounds(BATCH_TOPIC, 0)[1]
        except (TopicNotFound, QueueNotFound):
            return 0

    def place(self, queue_offset: int) -> int | None:
        try:
            unit = self._catalog.queue(BATCH_TOPIC, 0).unit(queue_offset)
        except (TopicNotFound, QueueNotFound):
            return None
        return None if unit is None else unit[0]

    def frame_at(self, physical_offset: int) -> FoundFrame | None:
        try:
            return frame_of(self._commit_log.read_record(physical_offset))
        except (CorruptRecord, MessageNotFound):
            return None
