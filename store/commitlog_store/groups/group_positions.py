"""GroupPositions: brings the positions of consumer groups to agree with the log, before the open store takes messages.

A crash may leave positions in the log that ``consumerOffset.json`` lacks, and positions in the file that stand for
messages that the log lost. Both are corrected while no message can take the place of a lost one.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from commitlog_store.errors import CommitLogError
from commitlog_store.groups.corrected_positions import correct_positions
from commitlog_store.groups.flush_consumer_offset import FlushConsumerOffsetService
from commitlog_store.groups.restored_positions import restore_positions
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.paths import POSITIONS_TOPIC
from commitlog_store.queue.block_reader import BlockReader
from commitlog_store.queue.catalog import QueueCatalog
from commitlog_store.queue.log_blocks import BlockLimits, LogBlocks
from commitlog_store.recovery.open import OpenedLog
from commitlog_store.replication.replica_mark import read_mark

__all__ = ["GroupPositions"]

_LOG = logging.getLogger(__name__)


class GroupPositions:
    """The positions of one open store. On its job thread."""

    def __init__(self, path: str, log: OpenedLog, consumer_offsets: FlushConsumerOffsetService) -> None:
        self._path = path
        self._log = log
        self._consumer_offsets = consumer_offsets
        self._restored = False

    def restore_at_open(self) -> None:
        """``restore`` if there may be something to do. What keeps it from that does not keep the store from opening."""
        try:
            if self._may_lack_messages() or self._log.queues.highest_id(POSITIONS_TOPIC) >= 0:
                self.restore()
        except CommitLogError:
            _LOG.exception("Cannot restore positions of consumers; the next consumer tries it again")

    def restore(self, group: str | None = None) -> None:
        """Apply the positions in the log that consumerOffset.json lacks, and correct those after their queue's end.

        This group's, and once those of all groups if messages may be lost. ``CorruptConfig``, damage of the log.
        """
        offsets = self._consumer_offsets.offsets
        with contextlib.closing(_Queues(self._path, self._log.files.path)) as queues:
            if not self._restored:
                may_lack_messages = self._may_lack_messages()
                restore_positions(offsets, queues, log_may_be_short=may_lack_messages)
                if may_lack_messages:
                    correct_positions(offsets, queues, half_messages_again=self._log.lost_flushed)
                self._consumer_offsets.flush()
                self._restored = True
            if group is not None:
                correct_positions(offsets, queues, group)

    def _may_lack_messages(self) -> bool:
        """Whether the log may end before what groups have consumed: after a recovery, and in a mirror that was
        promoted, whose positions may have come sooner than the messages before them. ``CorruptConfig``."""
        if self._log.recovered is not None:
            return True
        mark = read_mark(self._path)
        return mark is not None and mark.state == "promoted"


class _Bounds(NamedTuple):
    min_offset: int
    max_offset: int


class _Queues:
    """The queues as they are written, batches that readers do not see yet among them."""

    def __init__(self, path: str, log_path: str) -> None:
        self._log = CommitLog(log_path)
        self._log.refresh()
        self._catalog = QueueCatalog(path, self._log)

    def queue_ids(self, topic: str) -> list[int]:
        return self._catalog.queue_ids(topic)

    def queue_info(self, topic: str, queue_id: int) -> _Bounds:
        return _Bounds(*self._catalog.bounds(topic, queue_id))

    def queue_infos(self, queues: Iterable[tuple[str, int]]) -> Sequence[_Bounds]:
        return [self.queue_info(*queue) for queue in queues]

    def read(
        self, topic: str, queue_id: int, start: int, stop: int, *, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        queue = self._catalog.queue(topic, queue_id)
        blocks = BlockReader(LogBlocks(self._log), queue, BlockLimits(), verify_crc=True)
        yield from blocks.batches(start, stop, columns)

    def close(self) -> None:
        self._log.close()
