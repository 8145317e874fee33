"""Locks of queues by which consumers read in order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.processors import rebalance_lock
from commitlog_store.serve.rocketmq.processors.rebalance_lock import RebalanceLockProcessor
from tests.store.serve.rocketmq.asking import AClient, ask, on_a_loop

LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def batch(client: str, *queue_ids: int, group: str = "billing") -> dict[str, Any]:
    queues = [{"brokerName": "broker-a", "queueId": queue_id, "topic": "orders"} for queue_id in queue_ids]
    return {"clientId": client, "consumerGroup": group, "mqSet": queues, "onlyThisBroker": False}


async def locked(processor: RebalanceLockProcessor, client: str, *queue_ids: int, group: str = "billing") -> list[int]:
    answer = await ask(processor, LOCK, body=batch(client, *queue_ids, group=group))
    assert answer.code == ResponseCode.SUCCESS
    found = json.loads(answer.body)["lockOKMQSet"]
    assert all(one["brokerName"] == "broker-a" and one["topic"] == "orders" for one in found)
    return sorted(one["queueId"] for one in found)


@on_a_loop
async def test_a_queue_is_locked_by_one_client_of_a_group_at_a_time() -> None:
    processor = RebalanceLockProcessor()
    assert await locked(processor, "a", 0, 1) == [0, 1]
    assert await locked(processor, "b", 1, 2) == [2]
    assert await locked(processor, "a", 0, 1, 2) == [0, 1]
    assert await locked(processor, "b", 0, 1, group="shipping") == [0, 1]


@on_a_loop
async def test_a_lock_ends_60_seconds_after_its_client_took_it_last() -> None:
    clock = Clock()
    processor = RebalanceLockProcessor(clock)
    assert await locked(processor, "a", 0) == [0]
    clock.now = 50.0
    assert await locked(processor, "a", 0) == [0]
    clock.now = 110.0
    assert await locked(processor, "b", 0) == []
    clock.now = 110.1
    assert await locked(processor, "b", 0) == [0]
    assert await locked(processor, "a", 0) == []


@on_a_loop
async def test_who_has_locked_a_queue_is_known_until_the_lock_ends() -> None:
    clock = Clock()
    processor = RebalanceLockProcessor(clock)
    await locked(processor, "a", 0, 1)
    await locked(processor, "b", 2, group="shipping")
    queues = [("orders", queue_id) for queue_id in range(3)]
    clock.now = 60.0
    assert processor.locked_by("billing", "broker-a", queues) == {("orders", 0): "a", ("orders", 1): "a"}
    assert processor.locked_by("shipping", "broker-a", queues) == {("orders", 2): "b"}
    assert processor.locked_by("billing", "broker-b", queues) == {}
    clock.now = 60.1
    assert processor.locked_by("billing", "broker-a", queues) == {}


@on_a_loop
async def test_only_the_client_that_has_a_lock_unlocks_it_and_a_lost_connection_does_not() -> None:
    processor = RebalanceLockProcessor()
    client = AClient()
    assert await locked(processor, "a", 0) == [0]
    await ask(processor, UNLOCK, body=batch("b", 0))
    processor.connection_lost(client)
    assert await locked(processor, "b", 0) == []
    await ask(processor, UNLOCK, body=batch("a", 0, 7))
    assert await locked(processor, "b", 0) == [0]


@on_a_loop
async def test_locks_are_bounded_and_those_that_ended_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalance_lock, "MOST_LOCKS", 3)
    clock = Clock()
    processor = RebalanceLockProcessor(clock)
    assert await locked(processor, "a", 0, 1, 2) == [0, 1, 2]
    full = await ask(processor, LOCK, body=batch("b", 3))
    assert full.code == ResponseCode.SYSTEM_BUSY
    assert await locked(processor, "a", 0) == [0]
    clock.now = 61.0
    assert await locked(processor, "b", 3) == [3]


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"clientId":"a"}', b'{"clientId":"a","consumerGroup":"' + b"g" * 300 + b'","mqSet":[]}']
)
def test_a_body_that_cannot_be_is_answered_with_what_is_wrong(body: bytes) -> None:
    @on_a_loop
    async def check() -> None:
        for code in (LOCK, UNLOCK):
            answer = await ask(RebalanceLockProcessor(), code, body=body)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "body of this request" in str(answer.remark)

    check()
