"""Recent bulk appends, kept in memory for dispatch, so that it need not read the log again.

docs/decisions/0009-dispatch-from-memory.md gives the reason, and why nothing depends on it.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from commitlog_store.columnar.dispatch import DispatchRequests
from commitlog_store.columnar.dispatch_keys import Hints, IndexEntries
from commitlog_store.format.arrays import Int64Array

# Fewer records are read from the log: an extra block costs dispatch more than reading them.
LEAST_ROWS = 1024
# Four million messages of a batch.
_MOST_BYTES = 128 << 20


class AppendedRecords(NamedTuple):
    """Consecutive records of the log, ``physical_offsets`` ascending to ``end``. Times are ms."""

    physical_offsets: Int64Array
    end: int
    queues: list[tuple[str, int]]
    queue_codes: npt.NDArray[np.int32]
    queue_offsets: Int64Array
    store_timestamp: int
    host_flags: int
    hints: Hints

    @property
    def start(self) -> int:
        """The physical offset of the first one."""
        return int(self.physical_offsets[0])

    @property
    def size(self) -> int:
        """Bytes of memory."""
        arrays = (self.physical_offsets, self.queue_codes, self.queue_offsets)
        return sum(array.nbytes for array in arrays) + self.hints.size

    def entries(self) -> IndexEntries:
        """The index entries that reading them from the log would give."""
        hashes, rows = self.hints.entries
        return IndexEntries(hashes, rows.astype(np.int64))

    def requests(self) -> DispatchRequests:
        """The requests that reading the log would give, except for bits of the system flag that dispatch ignores."""
        count = len(self.physical_offsets)
        topics = list(dict.fromkeys(topic for topic, _ in self.queues))
        code_of = {topic: code for code, topic in enumerate(topics)}
        topic_codes = np.array([code_of[topic] for topic, _ in self.queues], np.int32)
        queue_ids = np.array([queue_id for _, queue_id in self.queues], np.int32)
        return DispatchRequests(
            physical_offsets=self.physical_offsets,
            sizes=np.diff(self.physical_offsets, append=self.end).astype(np.int32),
            queue_ids=queue_ids[self.queue_codes],
            queue_offsets=self.queue_offsets,
            store_timestamps=np.full(count, self.store_timestamp, np.int64),
            sys_flags=np.full(count, self.host_flags, np.int32),
            topic_codes=topic_codes[self.queue_codes],
            tags_codes=self.hints.tags_codes.astype(np.int64),
            topics=topics,
        )


class RecentAppends:
    """Records on their way from puts to dispatch, in log order, as many as a bounded memory holds.

    Puts add under the put lock, mostly before readers may see what they add; one thread takes.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._held: deque[AppendedRecords] = deque()
        self._size = 0
        self._lock = threading.Lock()

    def add(self, records: AppendedRecords) -> None:
        """Keep the records if there is room; dispatch reads others from the log."""
        size = records.size
        with self._lock:
            if self._size + size <= self._most_bytes:
                self._held.append(records)
                self._size += size

    def drop_from(self, offset: int) -> None:
        """Forget records that begin at or after a physical offset: they will not be in the log."""
        with self._lock:
            while self._held and self._held[-1].start >= offset:
                self._size -= self._held.pop().size

    def take(self, offset: int, limit: int) -> AppendedRecords | None:
        """The records that begin at a physical offset and end by ``limit``. Earlier ones are released."""
        with self._lock:
            while self._held and self._held[0].start < offset:
                self._let_go()
            if not self._held or self._held[0].start != offset or self._held[0].end > limit:
                return None
            return self._let_go()

    def next_start(self, offset: int, limit: int) -> int:
        """Where the first records after a physical offset begin; ``limit`` when that is not before it."""
        with self._lock:
            starts = (records.start for records in self._held)
            return min(next((start for start in starts if start > offset), limit), limit)

    def _let_go(self) -> AppendedRecords:
        records = self._held.popleft()
        self._size -= records.size
        return records
