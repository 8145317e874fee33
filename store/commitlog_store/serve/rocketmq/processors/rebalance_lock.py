"""RebalanceLockProcessor: the locks of queues by which consumers read in order.

A consumer that reads in order locks its queues every 20 seconds. A lock holds for 60 seconds; without it, the queue
passes to another consumer of the group only then. A consumer that ends unlocks its queues.

Source: RocketMQ ``broker/client/rebalance/RebalanceLockManager.java``,
``remoting/protocol/body/LockBatchRequestBody.java``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.serve.rocketmq.answering import RequestFault, answered_here, system_error
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.fastjson import decode_body, encode_body
from commitlog_store.serve.rocketmq.processor import Connection, Handler, Processor

LOCK_S = 60.0
MOST_LOCKS = 100_000
# Some ten thousand queues.
_MOST_BODY = 1 << 20
_LONGEST_NAME = 255


class _Queue(msgspec.Struct, frozen=True, rename="camel"):
    """RocketMQ's MessageQueue; its members in a body are in this order."""

    broker_name: str
    queue_id: int
    topic: str


class _LockBatch(msgspec.Struct, rename="camel"):
    consumer_group: str
    client_id: str
    mq_set: list[_Queue] | None = None


class _Lock(NamedTuple):
    client_id: str
    until: float


_Place: TypeAlias = tuple[str, _Queue]


class RebalanceLockProcessor(Processor):
    """LOCK_BATCH_MQ, UNLOCK_BATCH_MQ. Locks outlive a connection: a client that comes back has its own still."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` returns seconds."""
        self._clock = clock
        # By group and queue.
        self._locks: dict[_Place, _Lock] = {}

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.LOCK_BATCH_MQ: answered_here(self._lock),
            RequestCode.UNLOCK_BATCH_MQ: answered_here(self._unlock),
        }

    def has_locks(self, group: str) -> bool:
        """Whether a consumer of the group has a queue locked, as those do that consume in order."""
        now = self._clock()
        return any(place[0] == group and now <= lock.until for place, lock in self._locks.items())

    def locked_by(self, group: str, broker: str, queues: Iterable[tuple[str, int]]) -> dict[tuple[str, int], str]:
        """The ids of the clients of the group that have these queues of the broker locked. In any thread."""
        now = self._clock()
        locks = {(topic, id_): self._locks.get((group, _Queue(broker, id_, topic))) for topic, id_ in queues}
        return {queue: lock.client_id for queue, lock in locks.items() if lock is not None and now <= lock.until}

    def _lock(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        wanted = _decoded(request)
        now = self._clock()
        locked = []
        for queue in wanted.mq_set or ():
            place = wanted.consumer_group, queue
            found = self._locks.get(place)
            if found is None:
                self._refuse_when_full(now)
            elif found.client_id != wanted.client_id and now <= found.until:
                continue
            self._locks[place] = _Lock(wanted.client_id, now + LOCK_S)
            locked.append(msgspec.to_builtins(queue))
        return request.answer(ResponseCode.SUCCESS, body=encode_body({"lockOKMQSet": locked}))

    def _unlock(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        wanted = _decoded(request)
        for queue in wanted.mq_set or ():
            found = self._locks.get((wanted.consumer_group, queue))
            if found is not None and found.client_id == wanted.client_id:
                del self._locks[wanted.consumer_group, queue]
        return request.answer(ResponseCode.SUCCESS)

    def _refuse_when_full(self, now: float) -> None:
        if len(self._locks) >= MOST_LOCKS:
            self._locks = {place: lock for place, lock in self._locks.items() if now <= lock.until}
        if len(self._locks) >= MOST_LOCKS:
            raise RequestFault(ResponseCode.SYSTEM_BUSY, f"{MOST_LOCKS} queues are locked, and no more can be")


def _decoded(request: RemotingCommand) -> _LockBatch:
    found = decode_body(request.body, _LockBatch, most=_MOST_BODY)
    names = [found.consumer_group, found.client_id, *(queue.topic for queue in found.mq_set or ())]
    names += [queue.broker_name for queue in found.mq_set or ()]
    if max(map(len, names)) > _LONGEST_NAME:
        raise system_error(f"names in the body of this request have at most {_LONGEST_NAME} characters")
    return found
