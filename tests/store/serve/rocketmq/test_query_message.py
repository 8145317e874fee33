"""Messages by key and by place, as their stored bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_store import Message, MessageStore
from commitlog_store.format.record import Record, decode_record
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.processors import query_message
from commitlog_store.serve.rocketmq.processors.query_message import QueryMessageProcessor
from tests.store.serve.rocketmq.asking import ask, on_a_loop, readers_of

LONG_MAX = 2**63 - 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path) as opened:
        for number in range(70):
            properties = {"UNIQ_KEY": f"U{number}"}
            opened.put_message(Message(topic="orders", body=b"%d" % number, keys=["k"], properties=properties))
        opened.dispatch()
        yield opened


def records(body: bytes) -> list[Record]:
    found = []
    while body:
        record = decode_record(body)
        assert isinstance(record, Record)
        found.append(record)
        body = body[record.total_size :]
    return found


async def query(store: MessageStore, key: str, count: int = 32, **fields: object) -> RemotingCommand:
    processor = QueryMessageProcessor(readers_of(store), asyncio.to_thread)
    header = {"topic": "orders", "key": key, "maxNum": count, "beginTimestamp": 0, "endTimestamp": LONG_MAX, **fields}
    return await ask(processor, RequestCode.QUERY_MESSAGE, header)


@on_a_loop
async def test_messages_with_a_key_are_their_stored_bytes_the_newest_ones(store: MessageStore) -> None:
    answer = await query(store, "k", 3)
    assert [record.body for record in records(answer.body)] == [b"67", b"68", b"69"]
    assert [record.queue_offset >= 0 and record.topic for record in records(answer.body)] == [b"orders"] * 3
    assert int(answer.fields["indexLastUpdateTimestamp"]) > 0
    assert int(answer.fields["indexLastUpdatePhyoffset"]) == records(answer.body)[-1].physical_offset
    assert len(records((await query(store, "k", 1000)).body)) == 64


@on_a_loop
async def test_a_unique_key_finds_its_message_whatever_number_is_asked_for(store: MessageStore) -> None:
    answer = await query(store, "U5", 0, _UNIQUE_KEY_QUERY="true")
    assert [record.body for record in records(answer.body)] == [b"5"]


@on_a_loop
async def test_a_time_range_counts_and_numbers_that_are_no_times_are_no_bounds(store: MessageStore) -> None:
    with store.reader() as reader:
        stored = reader.store_timestamp("orders", 0, 0)
    assert not (await query(store, "U0", beginTimestamp=stored, endTimestamp=stored)).code
    assert (await query(store, "U0", beginTimestamp=stored + 1)).code == ResponseCode.QUERY_NOT_FOUND
    assert not (await query(store, "U0", beginTimestamp=1_700_000_000)).code
    assert (await query(store, "U0", endTimestamp=1_700_000_000)).code == ResponseCode.QUERY_NOT_FOUND
    assert (await query(store, "U0", beginTimestamp=stored, endTimestamp=stored - 1)).code


@on_a_loop
async def test_a_key_without_messages_is_not_found(store: MessageStore) -> None:
    for answer in (await query(store, "none"), await query(store, "k", topic="none"), await query(store, "k", 0)):
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert answer.body == b""
    assert (await query(store, "two words")).code == ResponseCode.INVALID_PARAMETER


@on_a_loop
async def test_an_answer_has_no_more_than_a_frame_holds(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_message, "_MOST_SIZE", 500)
    body = (await query(store, "k", 64)).body
    assert len(body) <= 500
    assert records(body)[-1].body == b"69"


@on_a_loop
async def test_one_message_by_its_place_in_the_log(store: MessageStore) -> None:
    processor = QueryMessageProcessor(readers_of(store), asyncio.to_thread)
    put = store.put_message(Message(topic="orders", body=b"x" * 10_000))
    answer = await ask(processor, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": put.physical_offset})
    assert [record.body for record in records(answer.body)] == [b"x" * 10_000]
    for wrong in (put.physical_offset + 1, 10**15, -1):
        answer = await ask(processor, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": wrong})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark
