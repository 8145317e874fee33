"""DispatchedLog: whether a broker has dispatched all that its log holds, found without asking each queue.

A broker appends a message to the log, and one thread of it adds the messages to their queues, in the log's order. So
when the last message is in its queue, all are, and no queue grows until the log does. Beside an owner of this package
``ConsistentReads.settled_state`` knows that, and more (docs/decisions/0031-idle-stores.md).
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from commitlog_store.batch.consistent_reads import BrokersChanges, ConsistentReads
from commitlog_store.errors import CommitLogError
from commitlog_store.files import disk
from commitlog_store.format.checkpoint import CHECKPOINT_SIZE, has_bytes_of_mark
from commitlog_store.format.properties import decode_utf8
from commitlog_store.format.record import RECORD_PREFIX_SIZE, own_position
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.store_checkpoint import read_mark
from commitlog_store.paths import CHECKPOINT
from commitlog_store.queue.fence import Fence, fence_at
from commitlog_store.queue.views import CatalogView

# After a look that did not reach the log's end, so many are left out: a log that grows faster than it is followed costs
# little, and a long one is reached all the same.
_LOOKS_LEFT_OUT = 4


class DispatchedState(NamedTuple):
    """``StoreReader.dispatched_state``: the log's last record, and where it ends."""

    last: Fence
    end: int
    by_brokers: BrokersChanges


class DispatchedLog:
    """The end of one store's log, followed from look to look."""

    def __init__(self, store_path: str, commit_log: CommitLog, catalog: CatalogView, reads: ConsistentReads) -> None:
        self._checkpoint = os.path.join(store_path, CHECKPOINT)
        self._commit_log = commit_log
        self._catalog = catalog
        self._reads = reads
        # The last record that a look has met, and the last one that was found in its queue.
        self._met: Fence | None = None
        self._dispatched: Fence | None = None
        self._left_out = 0

    def state(self, known: Fence, most_records: int) -> DispatchedState | None:
        """``StoreReader.dispatched_state``."""
        if self._left_out:
            self._left_out -= 1
            return None
        try:
            return None if self._has_mark() else self._state(known, most_records)
        except (CommitLogError, OSError):
            return None  # the caller that asks the queues gets the error

    def _has_mark(self) -> bool:
        """Whether an owner of this package has the store, or had it last: it dispatches in rounds, in another order.

        ``OSError`` for a checkpoint that cannot be read.
        """
        with contextlib.suppress(FileNotFoundError):
            # A store that only brokers wrote is spared the pauses of ``read_mark``.
            data = disk.read_file(self._checkpoint, CHECKPOINT_SIZE)
            return has_bytes_of_mark(data) and read_mark(self._checkpoint) is not None
        return False

    def _state(self, known: Fence, most_records: int) -> DispatchedState | None:
        self._commit_log.refresh()
        by_brokers = self._reads.by_brokers()
        newest = max(known, self._met or known)
        found = self._last_after(newest, most_records) or self._last_after(known, most_records)
        if found is None:
            return None
        self._met, end = found
        file = self._commit_log.find(end)
        if file is not None and any(file.read(end - file.base, RECORD_PREFIX_SIZE)):
            self._left_out = _LOOKS_LEFT_OUT
            return None  # more records, or one that is being written
        if self._met not in (known, self._dispatched):
            if not self._is_in_its_queue(self._met.physical_offset):
                return None
            self._dispatched = self._met
        return DispatchedState(self._met, end, by_brokers)

    def _last_after(self, known: Fence, most_records: int) -> tuple[Fence, int] | None:
        """The last record from a known one on, and where it ends; None where that is another record now."""
        if fence_at(self._commit_log, known.physical_offset) != known:
            return None
        begin = self._last_beginning(known.physical_offset)
        last, end = begin, begin
        for count, (at, size, head) in enumerate(self._commit_log.headers_from(end), 1):
            last, end = at if head else last, at + size
            if count > most_records:
                break
        fence = fence_at(self._commit_log, last)
        return None if fence is None or end == begin else (fence, end)

    def _last_beginning(self, known: int) -> int:
        """The last place at which a record is known to begin: that of a known one, or a later file's beginning.

        Files after the last record are allocated ahead.
        """
        for base in reversed(self._commit_log.bases):
            if base <= known:
                break
            head = self._commit_log.header(base)
            if head is not None and own_position(head) == base:
                return base
        return known

    def _is_in_its_queue(self, physical_offset: int) -> bool:
        """Whether a unit leads to the record. None does to a few kinds of records, such as ends of transactions."""
        record = self._commit_log.read_without_body(physical_offset)
        queue = self._catalog.queue(decode_utf8(record.topic), record.queue_id)
        queue.bounds()
        return queue.unit(record.queue_offset) == (physical_offset, record.total_size)
