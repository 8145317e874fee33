"""GroupTransferService: what a put under SYNC_MASTER waits for: slaves that have acknowledged the log up to its end.

Source: RocketMQ ``store/ha/GroupTransferService.java`` (5.x; in ``HAService.java`` before), ``store/CommitLog.java``
(``submitReplicaRequest``, ``handleHA``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from commitlog_store.config import BrokerRole, MessageStoreConfig
from commitlog_store.put_status import OK_STATUS, PutMessageStatus
from commitlog_store.threads.wakeup import Wakeup


class Slave(Protocol):
    """A connected slave."""

    @property
    def ack_offset(self) -> int:
        """The slave has everything before it."""

    @property
    def follows(self) -> bool:
        """Whether it has asked for the log, and can be sent what it lacks."""

    def offer(self, *, at_once: bool) -> None:
        """Have it sent what the log has grown by, ``at_once`` by the calling thread if that does not wait."""


class _Request:
    """A put that waits until the slaves have the log up to ``end``."""

    __slots__ = ("end", "wakeup")

    def __init__(self, end: int) -> None:
        self.end = end
        self.wakeup = Wakeup()


class GroupTransferService:
    """Lets puts wait for ``in_sync_replicas`` copies, the master's own included."""

    def __init__(self, config: MessageStoreConfig, slaves: Callable[[], Sequence[Slave]]) -> None:
        is_master = config.broker_role is BrokerRole.SYNC_MASTER
        # How many slaves a put waits for.
        self._wanted = config.in_sync_replicas - 1 if is_master else 0
        self._timeout_s = config.slave_timeout_ms / 1000
        self._fallbehind_max = config.ha_slave_fallbehind_max
        self._slaves = slaves
        # So far the log is with as many slaves. It never goes back: what a slave had when it left, it has.
        self.replicated_where = 0
        self._lock = threading.Lock()
        self._requests: dict[_Request, None] = {}

    @property
    def waits(self) -> bool:
        """Whether puts wait for slaves at all."""
        return self._wanted > 0

    @property
    def waiting(self) -> int:
        """How many puts wait."""
        return len(self._requests)

    def acknowledged(self) -> None:
        """A slave has acknowledged more of the log: wake the puts that waited for that. For any thread."""
        if not self._wanted:
            return
        with self._lock:
            offsets = sorted((slave.ack_offset for slave in self._slaves()), reverse=True)
            if len(offsets) < self._wanted:
                return
            self.replicated_where = max(self.replicated_where, offsets[self._wanted - 1])
            where = self.replicated_where
        for request in list(self._requests):
            if request.end <= where:
                request.wakeup.set()

    def offer(self, *, is_alone: bool) -> None:
        """Before ``wait``: have the slaves sent what was appended.

        The thread of a put that is alone sends by itself, which spares it a change of threads. The bytes of several
        puts are sent together, by the threads of the connections.
        """
        at_once = is_alone and not self._requests
        for slave in self._slaves():
            slave.offer(at_once=at_once)

    def refusal(self, end: int) -> tuple[PutMessageStatus, str] | None:
        """SLAVE_NOT_AVAILABLE if too few slaves are connected, and near enough to ``end``, to be waited for."""
        if self.replicated_where >= end:
            return None
        following = [slave for slave in self._slaves() if slave.follows]
        near = sum(end - slave.ack_offset < self._fallbehind_max for slave in following)
        if near >= self._wanted:
            return None
        reason = (
            f"The message is in the log of this store alone: of {self._wanted} slave(s) to wait for, {len(following)} "
            f"are connected, {near} of them less than {self._fallbehind_max} bytes behind (in_sync_replicas, "
            "ha_slave_fallbehind_max)."
        )
        return PutMessageStatus.SLAVE_NOT_AVAILABLE, reason

    def wait(self, end: int, since: float) -> tuple[PutMessageStatus, str]:
        """Wait until the slaves have the log up to ``end``, for ``slave_timeout_ms`` since ``since`` (monotonic)."""
        request = _Request(end)
        self._requests[request] = None
        try:
            if self.replicated_where < end:
                request.wakeup.wait(since + self._timeout_s - time.monotonic())
        finally:
            self._requests.pop(request, None)
        if self.replicated_where >= end:
            return OK_STATUS
        reason = (
            f"The message is in the log of this store, and not acknowledged by {self._wanted} slave(s) within "
            f"{self._timeout_s:g} s (in_sync_replicas, slave_timeout_ms)."
        )
        return PutMessageStatus.FLUSH_SLAVE_TIMEOUT, reason
