"""Records that know their queues, and not yet their places: what is appended in bulk."""

from __future__ import annotations

from dataclasses import dataclass

from commitlog.format.arrays import Int64Array
from commitlog.format.dispatch_hints import Hints
from commitlog.format.record_encode import EncodedRecords

__all__ = ["QueuedRecords"]


@dataclass(frozen=True)
class QueuedRecords:
    """Records whose late fields are zero. ``queue_codes`` is each record's place in ``queues``: topic and queue id.

    ``hints`` spare dispatch the reading of them; None for records that it has to read.
    """

    records: EncodedRecords
    host_flags: int
    queues: list[tuple[str, int]]
    queue_codes: Int64Array
    hints: Hints | None

    def __len__(self) -> int:
        """How many records there are."""
        return len(self.queue_codes)
