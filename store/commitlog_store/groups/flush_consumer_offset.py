"""FlushConsumerOffsetService: writes the positions of consumer groups at an interval, and when the store is closed.

Source: RocketMQ ``broker/BrokerController.java`` (``consumerOffsetManager.persist``, ``flushConsumerOffsetInterval``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping

from commitlog_store.config import FlushDiskType, MessageStoreConfig
from commitlog_store.config_files.consumer_offset import ConsumerOffsets
from commitlog_store.errors import CommitLogError
from commitlog_store.paths import POSITIONS_GROUP, POSITIONS_TOPIC

__all__ = ["FlushConsumerOffsetService"]

_LOG = logging.getLogger(__name__)
_MS = 1000.0


class FlushConsumerOffsetService:
    """The positions of an open store. Their file is read when they are first asked for: a damaged one must not keep
    the store from being opened."""

    def __init__(self, store_path: str, config: MessageStoreConfig, flush_log: Callable[[], None]) -> None:
        """``flush_log`` brings to the device what positions stand for: consumed messages, copies for a retry, and
        output of transactions. After a crash of the machine, a queue that is shorter than a position in it would grow
        again, and the group would pass over its new messages. Under SYNC_FLUSH only flushed messages are consumed."""
        self._store_path = store_path
        self._flush_log = None if config.flush_disk_type is FlushDiskType.SYNC_FLUSH else flush_log
        self._interval = config.flush_consumer_offset_interval / _MS
        self._lock = threading.Lock()
        self._offsets: ConsumerOffsets | None = None
        # The failure that the log has already.
        self._waits_for = ""

    @property
    def offsets(self) -> ConsumerOffsets:
        """The one object that changes positions. ``CorruptConfig``, ``ReadFailed``."""
        with self._lock:
            if self._offsets is None:
                self._offsets = ConsumerOffsets(self._store_path, self._flush_log)
            return self._offsets

    def apply(self, positions: Iterable[tuple[str, Mapping[tuple[str, int], int]]], next_of_topic: int) -> None:
        """Take over all positions that are in the log with a batch, by group; ``next_of_topic`` is the offset after
        their messages."""
        for group, offsets in positions:
            self.offsets.commit(group, offsets)
        # Last: should the file be written in between, the message is read again, and says the same.
        self.offsets.commit(POSITIONS_GROUP, {(POSITIONS_TOPIC, 0): next_of_topic})

    def run_once(self) -> float:
        try:
            self.flush()
        except CommitLogError as error:
            # The log has not failed, and the positions are written the next time; until then they are older.
            if str(error) != self._waits_for:
                self._waits_for = str(error)
                _LOG.warning("The positions of consumers are not written yet: %s", error)
        else:
            self._waits_for = ""
        return self._interval

    def flush(self) -> None:
        """Write the positions if they have changed. ``StoreIOError``, ``StoreAccessDenied``."""
        if self._offsets is not None:
            self._offsets.flush()
