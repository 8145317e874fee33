"""Positions of groups, the list of their consumers, and the bounds of queues, as clients ask for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.groups.group_settings import SubscriptionGroupConfig
from commitlog_store.serve.rocketmq.clients import ClientRegistry, HeartbeatData
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.consumer_groups import ConsumerGroups
from commitlog_store.serve.rocketmq.processors import consumer_manage
from commitlog_store.serve.rocketmq.processors.consumer_manage import ConsumerManageProcessor
from commitlog_store.store import owned_by
from commitlog_store.testing import kill
from tests.store.serve.rocketmq.asking import AClient, ask, eventually, on_a_loop, readers_of, threads_of
from tests.store.serve.rocketmq.test_clients import heartbeat

QUERY, UPDATE = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path) as opened:
        opened.create_topic("orders", 2)
        yield opened


def processor_of(store: MessageStore, registry: ClientRegistry | None = None) -> ConsumerManageProcessor:
    readers = readers_of(store)
    groups = ConsumerGroups(owned_by(store), readers)
    clients = registry or ClientRegistry()
    return ConsumerManageProcessor(clients, groups, readers, lambda: store.physical_bounds()[1], threads_of)


def place(group: str = "billing", topic: str = "orders", queue_id: int = 0, **more: object) -> dict[str, object]:
    return {"consumerGroup": group, "topic": topic, "queueId": queue_id, **more}


@on_a_loop
async def test_a_position_is_the_one_that_consumers_of_the_store_have(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        for number in range(5):
            store.put_message(Message(topic="orders", body=b"%d" % number, queue_id=0))
        store.dispatch()
        with store.consumer("billing", ["orders"]) as consumer:
            assert len(consumer.poll(3, 5)) == 3
            consumer.commit()
        processor = processor_of(store)
        assert (await ask(processor, QUERY, place())).fields == {"offset": "3"}
        assert not (await ask(processor, UPDATE, place(commitOffset=1))).code
        assert (await ask(processor, QUERY, place())).fields == {"offset": "1"}
        with store.consumer("billing", ["orders"]) as consumer:
            assert [one.body for one in consumer.poll(9, 5)] == [b"1", b"2", b"3", b"4"]
    with StoreReader.open(tmp_path) as reader:
        assert reader.group_offsets("billing")["orders", 0] == 1


@on_a_loop
async def test_a_group_without_a_position_begins_at_0_while_that_is_in_memory(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = processor_of(store)
    # Nothing was put yet: whatever comes is for the group.
    assert (await ask(processor, QUERY, place())).fields == {"offset": "0"}
    store.put_message(Message(topic="orders", body=b"x" * 1000, queue_id=0))
    store.dispatch()
    assert (await ask(processor, QUERY, place())).fields == {"offset": "0"}
    assert (await ask(processor, QUERY, place(setZeroIfNotFound=False))).code == ResponseCode.QUERY_NOT_FOUND
    assert (await ask(processor, QUERY, place(queue_id=2))).code == ResponseCode.QUERY_NOT_FOUND
    assert (await ask(processor, QUERY, place(topic="none"))).code == ResponseCode.QUERY_NOT_FOUND
    monkeypatch.setattr(consumer_manage, "_IN_MEMORY_SIZE", 500)
    assert (await ask(processor, QUERY, place())).code == ResponseCode.QUERY_NOT_FOUND


@on_a_loop
async def test_a_position_of_a_group_or_queue_that_does_not_exist_is_refused(store: MessageStore) -> None:
    processor = processor_of(store)
    answer = await ask(processor, UPDATE, place("none", commitOffset=1))
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "none" in str(answer.remark)
    store.set_group_settings(SubscriptionGroupConfig(group_name="billing"))
    for wrong in (place(topic="none", commitOffset=1), place(queue_id=2, commitOffset=1)):
        assert (await ask(processor, UPDATE, wrong)).code == ResponseCode.TOPIC_NOT_EXIST
    assert not (await ask(processor, UPDATE, place(queue_id=1, commitOffset=1))).code
    for wrong in (place(commitOffset=-1), place(queue_id=-1, commitOffset=1)):
        answer = await ask(processor, UPDATE, wrong)
        assert answer.code in (ResponseCode.INVALID_PARAMETER, ResponseCode.TOPIC_NOT_EXIST)
    assert owned_by(store).groups.offsets.get("billing", "orders") == {1: 1}


@pytest.mark.parametrize(
    ("code", "fields", "named"),
    [
        (QUERY, {"topic": "orders", "queueId": 0}, "consumerGroup"),
        (QUERY, {"consumerGroup": "billing", "topic": "orders"}, "queueId"),
        (QUERY, place(queue_id="x"), "queueId"),  # type: ignore[arg-type]
        (UPDATE, place(), "commitOffset"),
        (UPDATE, place(commitOffset="12345678901234567890"), "commitOffset"),
        (UPDATE, place(queue_id=2**31, commitOffset=1), "queueId"),
        (UPDATE, {"consumerGroup": "billing", "queueId": 0, "commitOffset": 1}, "topic"),
        (RequestCode.GET_MAX_OFFSET, {"topic": "orders"}, "queueId"),
        (RequestCode.GET_MAX_OFFSET, {"queueId": 1}, "topic"),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"topic": "orders", "queueId": 0}, "timestamp"),
        (RequestCode.GET_CONSUMER_LIST_BY_GROUP, {}, "consumerGroup"),
    ],
)
def test_a_field_that_is_missing_or_no_number_is_named(
    store: MessageStore, code: int, fields: dict[str, object], named: str
) -> None:
    async def check() -> None:
        store.set_group_settings(SubscriptionGroupConfig(group_name="billing"))
        answer = await ask(processor_of(store), code, fields)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert f"<{named}>" in str(answer.remark)

    asyncio.run(check())


@on_a_loop
async def test_the_bounds_of_a_queue_and_a_place_by_time(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        for number in range(4):
            store.put_message(Message(topic="orders", body=b"%d" % number, queue_id=0))
        store.dispatch()
        with store.reader() as reader:
            first, last = reader.store_timestamp("orders", 0, 0), reader.store_timestamp("orders", 0, 3)
        processor = processor_of(store)
        queue = {"topic": "orders", "queueId": 0}
        assert (await ask(processor, RequestCode.GET_MAX_OFFSET, queue)).fields == {"offset": "4"}
        assert (await ask(processor, RequestCode.GET_MIN_OFFSET, queue)).fields == {"offset": "0"}
        search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        assert (await ask(processor, search, {**queue, "timestamp": first})).fields == {"offset": "0"}
        assert (await ask(processor, search, {**queue, "timestamp": last + 1})).fields == {"offset": "4"}
        assert (await ask(processor, search, {**queue, "timestamp": -1})).fields == {"offset": "4"}
        upper = {**queue, "timestamp": last + 1, "boundaryType": "UPPER"}
        assert (await ask(processor, search, upper)).fields == {"offset": "3"}
        earliest = RequestCode.GET_EARLIEST_MSG_STORETIME
        assert (await ask(processor, earliest, queue)).fields == {"timestamp": str(first)}


@on_a_loop
async def test_a_queue_without_messages_is_empty_and_no_error(store: MessageStore) -> None:
    processor = processor_of(store)
    for queue in ({"topic": "orders", "queueId": 1}, {"topic": "none", "queueId": 0}):
        for code in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET):
            assert (await ask(processor, code, queue)).fields == {"offset": "0"}
        search = {**queue, "timestamp": 1_700_000_000_000}
        assert (await ask(processor, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search)).fields == {"offset": "0"}
        assert (await ask(processor, RequestCode.GET_EARLIEST_MSG_STORETIME, queue)).fields == {"timestamp": "-1"}


@on_a_loop
async def test_the_consumers_of_a_group_are_listed_by_their_ids(store: MessageStore) -> None:
    registry = ClientRegistry()
    processor = processor_of(store, registry)
    for number, client_id in enumerate(("10.0.0.1@7", "10.0.0.2@9")):
        body = heartbeat(client=client_id, consumers={"billing": {"orders": "*"}})
        registry.heartbeat(AClient(number), msgspec.convert(body, HeartbeatData), "JAVA", 1)
    answer = await ask(processor, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "billing"})
    assert json.loads(answer.body) == {"consumerIdList": ["10.0.0.1@7", "10.0.0.2@9"]}
    answer = await ask(processor, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "shipping"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "shipping" in str(answer.remark)


@on_a_loop
async def test_a_store_that_is_closed_says_so(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        store.set_group_settings(SubscriptionGroupConfig(group_name="billing"))
        processor = processor_of(store)
    for code in (QUERY, RequestCode.GET_MAX_OFFSET):
        assert (await ask(processor, code, place())).code == ResponseCode.SERVICE_NOT_AVAILABLE


@on_a_loop
async def test_a_killed_owner_has_written_the_positions_of_the_last_interval(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path, MessageStoreConfig(flush_consumer_offset_interval=10))
    for _ in range(9):
        store.put_message(Message(topic="orders", body=b"x", queue_id=0))
    store.flush()
    store.set_group_settings(SubscriptionGroupConfig(group_name="billing"))
    assert not (await ask(processor_of(store), UPDATE, place(commitOffset=7))).code

    def written() -> bool:
        with StoreReader.open(tmp_path) as reader:
            return reader.group_offsets("billing") == {("orders", 0): 7}

    await eventually(written)
    kill(store)
    with MessageStore.open(tmp_path) as again:
        assert (await ask(processor_of(again), QUERY, place())).fields == {"offset": "7"}


@on_a_loop
async def test_readers_are_shared_and_closed(store: MessageStore) -> None:
    readers = readers_of(store)
    opened: set[StoreReader] = set()
    for _ in range(10):
        with readers.lent() as one, readers.lent() as other:
            assert one is not other
            opened |= {one, other}
    assert len(opened) == 2
    with readers.lent() as one:
        readers.close()
        assert one.topics() is not None
    for reader in opened:
        with pytest.raises(Exception, match="closed"):
            reader.topics()
