"""Durability: what puts and commits wait for: the device under SYNC_FLUSH, slaves under SYNC_MASTER, both at once.

The slaves' status comes before the flush's, as in RocketMQ. A sync that failed comes before both: nothing is known
about the message then.

Source: RocketMQ ``store/CommitLog.java`` (``handleDiskFlush``, ``handleHA``).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from commitlog_store.config import FlushDiskType, MessageStoreConfig
from commitlog_store.engine.flush import GroupCommitService
from commitlog_store.engine.group_transfer import GroupTransferService
from commitlog_store.engine.running_state import RunningState
from commitlog_store.errors import PutNotConfirmed, StoreIOError
from commitlog_store.put_status import OK_STATUS, PutMessageStatus

_MS = 1000.0


class Durability:
    """Waits until the log is safe up to an end. Any number of threads may wait."""

    def __init__(
        self,
        config: MessageStoreConfig,
        group_commit: GroupCommitService,
        replicas: GroupTransferService,
        state: RunningState,
        on_written: Callable[[], None],
    ) -> None:
        """``on_written`` is called before a wait for the device alone. Slaves get the bytes while the device works."""
        self._sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._timeout_s = config.sync_flush_timeout / _MS
        self._group_commit = group_commit
        self._replicas = replicas
        self._state = state
        self._on_written = on_written
        # Whether a put waits for anything.
        self.waits = self._sync or replicas.waits

    def wait(self, end: int) -> tuple[PutMessageStatus, str]:
        """Wait until the log is safe up to ``end``. Returns the status, and why it is not PUT_OK."""
        if not self._replicas.waits:
            self._on_written()
            return self._await_flush(end)
        self._replicas.offer(is_alone=not self._sync or self._group_commit.is_free(self._timeout_s))
        began = time.monotonic()
        refusal = self._replicas.refusal(end)
        flushed = self._await_flush(end) if self._sync else OK_STATUS
        if flushed[0] is PutMessageStatus.UNKNOWN_ERROR:
            return flushed
        replicated = self._noted(refusal or self._replicas.wait(end, began))
        return flushed if replicated[0] is PutMessageStatus.PUT_OK else replicated

    def confirm(self, end: int) -> None:
        """Wait until the slaves have a batch that is in the log up to ``end``; -1 for one that is gone.

        ``PutNotConfirmed`` when they do not in time: it is in this store, and may be lost with it.
        """
        if end < 0 or not self._replicas.waits:
            return
        began = time.monotonic()
        status, reason = self._noted(self._replicas.refusal(end) or self._replicas.wait(end, began))
        if status is not PutMessageStatus.PUT_OK:
            raise PutNotConfirmed(
                status, f"{reason} It is committed; to commit the same batch again waits for the slaves again."
            )

    def _noted(self, replicated: tuple[PutMessageStatus, str]) -> tuple[PutMessageStatus, str]:
        """What the slaves answered; the state has it, which logs when it changes."""
        status, reason = replicated
        if status is PutMessageStatus.PUT_OK:
            self._state.note_confirmed()
        else:
            self._state.note_unconfirmed(reason)
        return replicated

    def _await_flush(self, end: int) -> tuple[PutMessageStatus, str]:
        try:
            if self._group_commit.flush_to(end, self._timeout_s):
                return OK_STATUS
        except StoreIOError as error:
            self._state.halt(error)
            return PutMessageStatus.UNKNOWN_ERROR, str(error)
        if self._state.failure is not None:
            return PutMessageStatus.UNKNOWN_ERROR, str(self._state.failure)
        return (
            PutMessageStatus.FLUSH_DISK_TIMEOUT,
            f"The message is in the log, but was not on the device within {self._timeout_s:g} s (sync_flush_timeout).",
        )
