"""FlushConsumerOffsetService: writes the positions of consumer groups at an interval, and when the store is closed.

Source: RocketMQ ``broker/BrokerController.java`` (``consumerOffsetManager.persist``, ``flushConsumerOffsetInterval``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from commitlog.config_files.consumer_offset import ConsumerOffsets
from commitlog.errors import CommitLogError
from commitlog.paths import POSITIONS_GROUP, POSITIONS_TOPIC

__all__ = ["FlushConsumerOffsetService"]

_LOG = logging.getLogger(__name__)
_MS = 1000.0


class FlushConsumerOffsetService:
    """The positions of an open store. Their file is read when they are first asked for: a damaged one must not keep
    the store from being opened."""

    def __init__(self, store_path: str, interval_ms: int) -> None:
        self._store_path = store_path
        self._interval = interval_ms / _MS
        self._lock = threading.Lock()
        self._offsets: ConsumerOffsets | None = None

    @property
    def offsets(self) -> ConsumerOffsets:
        """The one object that changes positions. ``CorruptConfig``, ``ReadFailed``."""
        with self._lock:
            if self._offsets is None:
                self._offsets = ConsumerOffsets(self._store_path)
            return self._offsets

    def apply(self, group: str, positions: Mapping[tuple[str, int], int], next_of_topic: int) -> None:
        """Take over positions that are in the log with a batch; ``next_of_topic`` is the offset after their message."""
        self.offsets.commit(group, positions)
        # Last: should the file be written in between, the message is read again, and says the same.
        self.offsets.commit(POSITIONS_GROUP, {(POSITIONS_TOPIC, 0): next_of_topic})

    def run_once(self) -> float:
        try:
            self.flush()
        except CommitLogError:
            # The log has not failed, and the positions are written the next time; until then they are older.
            _LOG.exception("Cannot write the positions of consumers")
        return self._interval

    def flush(self) -> None:
        """Write the positions if they have changed. ``StoreIOError``, ``StoreAccessDenied``."""
        if self._offsets is not None:
            self._offsets.flush()
