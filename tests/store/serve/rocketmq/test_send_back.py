"""Messages that a consumer gives back: again later, or dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_store import Message, MessageExtBrokerInner, MessageStore
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.groups.group_settings import SubscriptionGroupConfig
from commitlog_store.message import MessageExt
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.consumer_groups import ConsumerGroups
from commitlog_store.serve.rocketmq.processors.send_back import SendBackProcessor
from commitlog_store.store import owned_by
from tests.store.serve.rocketmq.asking import ask, on_a_loop, readers_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path) as opened:
        opened.set_group_settings(SubscriptionGroupConfig(group_name="billing"))
        yield opened


def processor_of(store: MessageStore) -> SendBackProcessor:
    readers = readers_of(store)
    owned = owned_by(store)
    return SendBackProcessor(owned, ConsumerGroups(owned, readers), readers, asyncio.to_thread)


async def give_back(store: MessageStore, offset: int, *, version: int = 409, **fields: object) -> RemotingCommand:
    """As a client of 4.9.8 does."""
    header = {"offset": offset, "group": "billing", "delayLevel": 0, "originTopic": "orders", **fields}
    return await ask(processor_of(store), RequestCode.CONSUMER_SEND_MSG_BACK, header, version=version)


def stored(store: MessageStore, topic: str, queue_id: int = 0) -> list[MessageExt]:
    store.dispatch()
    with store.reader() as reader:
        return list(reader.get_message(topic, queue_id, 0, 100).messages)


def consumed(store: MessageStore, times: int) -> int:
    """The place of a message that was consumed again so many times."""
    message = MessageExtBrokerInner(topic="orders", body=b"x", tags="t", keys=["k"], reconsume_times=times)
    return store.put_message(message).raise_for_status().physical_offset


@on_a_loop
async def test_the_first_time_it_waits_on_level_3_for_the_groups_retry_topic(store: MessageStore) -> None:
    put = store.put_message(Message(topic="orders", body=b"x", tags="t", keys=["k"], properties={"a": "1"}))
    assert not (await give_back(store, put.physical_offset)).code
    (copy,) = stored(store, "SCHEDULE_TOPIC_XXXX", 2)
    assert copy.body == b"x"
    assert copy.reconsume_times == 1
    expected = {"REAL_TOPIC": "%RETRY%billing", "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": put.message_id}
    assert expected.items() | {"TAGS": "t", "KEYS": "k", "a": "1"}.items() <= copy.properties.items()


@on_a_loop
async def test_each_further_time_waits_on_the_next_level_and_a_given_level_counts(store: MessageStore) -> None:
    assert not (await give_back(store, consumed(store, 4))).code
    assert len(stored(store, "SCHEDULE_TOPIC_XXXX", 6)) == 1
    assert not (await give_back(store, consumed(store, 4), delayLevel=1)).code
    assert len(stored(store, "SCHEDULE_TOPIC_XXXX", 0)) == 1
    # RocketMQ has 18 levels, and more than the last one is the last one.
    assert not (await give_back(store, consumed(store, 40), maxReconsumeTimes=100)).code
    assert len(stored(store, "SCHEDULE_TOPIC_XXXX", 17)) == 1


@pytest.mark.parametrize(
    ("times", "fields", "is_dead"),
    [
        (15, {}, False),
        (16, {}, True),
        (0, {"delayLevel": -1}, True),
        (2, {"maxReconsumeTimes": 2}, True),
        (2, {"maxReconsumeTimes": 3}, False),
        (20, {"maxReconsumeTimes": 30}, False),
        # A client before 3.4.9: the group's setting counts.
        (2, {"maxReconsumeTimes": 2, "version": 120}, False),
    ],
)
def test_after_the_last_time_it_is_a_dead_letter(
    store: MessageStore, times: int, fields: dict[str, int], is_dead: bool
) -> None:
    @on_a_loop
    async def check() -> None:
        assert not (await give_back(store, consumed(store, times), **fields)).code
        found = stored(store, "%DLQ%billing")
        assert len(found) == is_dead
        if is_dead:
            assert found[0].reconsume_times == times + 1
            assert found[0].original_topic == "orders"

    check()


@on_a_loop
async def test_a_group_without_retry_queues_drops_it_and_an_unknown_group_is_refused(store: MessageStore) -> None:
    store.set_group_settings(SubscriptionGroupConfig(group_name="billing", retry_queue_nums=0))
    offset = consumed(store, 0)
    assert not (await give_back(store, offset)).code
    assert not stored(store, "SCHEDULE_TOPIC_XXXX", 2)
    answer = await give_back(store, offset, group="none")
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


@on_a_loop
async def test_a_place_without_a_message_and_fields_that_cannot_be_are_answered(store: MessageStore) -> None:
    offset = consumed(store, 0)
    for wrong in (10_000_000, -1):
        answer = await give_back(store, wrong)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert str(wrong) in str(answer.remark)
    assert (await give_back(store, offset + 1)).code == ResponseCode.SYSTEM_ERROR
    answer = await give_back(store, offset, delayLevel="soon")
    assert "<delayLevel>" in str(answer.remark)


@on_a_loop
async def test_a_retry_topic_that_is_closed_takes_nothing(store: MessageStore) -> None:
    owned = owned_by(store)
    owned.engine.run(lambda: owned.engine.topics.create_topic("%RETRY%billing", 1, perm=4))
    answer = await give_back(store, consumed(store, 0))
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "%RETRY%billing" in str(answer.remark)
