"""Sends that one turn of the loop receives from several connections: put together, each answered by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from commitlog_store import MessageStore, MessageStoreConfig
from commitlog_store.config import FlushDiskType
from commitlog_store.engine.async_puts import Outcome
from commitlog_store.engine.produced_message import ProducedMessage
from commitlog_store.engine.put_message import EncodedMessage, PutMessageResult
from commitlog_store.serve.rocketmq.codes import RequestCode
from commitlog_store.serve.rocketmq.store_puts import StorePuts
from commitlog_store.store import owned_by
from tests.store.serve.rocketmq.asking import eventually, on_a_loop
from tests.store.serve.rocketmq.brokers import broker
from tests.store.serve.rocketmq.remoting_client import RemotingClient, send_fields

_MOST_TURNS = 1000
HOST = bytes([10, 0, 0, 1]), 4000


def _encoded(puts: StorePuts, body: bytes, topic: str = "orders") -> EncodedMessage:
    return puts.encode(ProducedMessage(topic, 0, body, {}, 0, 0, 1_700_000_000_000, HOST))


def _noted(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each call of the putter gets."""
    putter, sizes = owned_by(store).engine.putter, []
    put_at_once = putter.put_at_once

    def noting(messages: Sequence[EncodedMessage]) -> list[PutMessageResult]:
        sizes.append(len(messages))
        return put_at_once(messages)

    monkeypatch.setattr(putter, "put_at_once", noting)
    return sizes


@on_a_loop
@pytest.mark.parametrize("is_sync", [False, True])
async def test_they_are_stored_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_sync: bool) -> None:
    """Also from one on that has to wait: here the first message of a topic."""
    config = MessageStoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH if is_sync else FlushDiskType.ASYNC_FLUSH)
    with MessageStore.open(tmp_path / "s", config) as store:
        store.put("orders", b"first", queue_id=0)
        sizes = _noted(store, monkeypatch)
        puts = StorePuts(owned_by(store), asyncio.get_running_loop(), lambda: False)
        outcomes: list[tuple[int, Outcome]] = []
        for number in range(6):
            encoded = _encoded(puts, b"%d" % number, "others" if number == 3 else "orders")
            assert puts.put_at_once(encoded) is None
            puts.put_for(encoded, lambda outcome, number=number: outcomes.append((number, outcome)))  # type: ignore[misc]
        assert outcomes == []
        await eventually(lambda: len(outcomes) == 6)
        assert sizes == [6]
        assert [number for number, _ in outcomes] == list(range(6))
        assert [outcome.queue_offset for _, outcome in outcomes if isinstance(outcome, PutMessageResult)] == [
            *(1, 2, 3),
            0,
            *(4, 5),
        ]


@on_a_loop
async def test_one_that_comes_alone_is_put_at_once_unless_others_wait(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s") as store:
        store.put("orders", b"first", queue_id=0)
        puts = StorePuts(owned_by(store), asyncio.get_running_loop())
        result = puts.put_at_once(_encoded(puts, b"alone"))
        assert result is not None
        assert result.queue_offset == 1
        outcomes: list[Outcome] = []
        puts.put_for(_encoded(puts, b"waits"), outcomes.append)
        assert puts.put_at_once(_encoded(puts, b"after")) is None
        await eventually(lambda: outcomes)


@on_a_loop
async def test_each_gets_the_error_of_a_store_that_was_closed_before_the_end_of_the_turn(tmp_path: Path) -> None:
    outcomes: list[Outcome] = []
    with MessageStore.open(tmp_path / "s") as store:
        puts = StorePuts(owned_by(store), asyncio.get_running_loop())
        for body in (b"a", b"b"):
            puts.put_for(_encoded(puts, body), outcomes.append)
    await eventually(lambda: outcomes)
    assert [type(one).__name__ for one in outcomes] == ["StoreClosed"] * 2


def test_sends_of_many_connections_get_their_own_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with broker(tmp_path / "s") as served:
        served.store.put("orders", b"first", queue_id=0)
        sizes = _noted(served.store, monkeypatch)
        clients = [RemotingClient(served.address) for _ in range(8)]
        try:
            for turn in range(_MOST_TURNS):
                asked = [
                    [
                        client.start(
                            RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"%d-%d-%d" % (turn, number, at)
                        )
                        for at in range(2)
                    ]
                    for number, client in enumerate(clients)
                ]
                for client, opaques in zip(clients, asked, strict=True):
                    answers = [client.answer(opaque) for opaque in opaques]
                    assert [one.code for one in answers] == [0, 0]
                    first, second = (int(one.fields["queueOffset"]) for one in answers)
                    assert first < second
                if turn >= 49 and max(sizes) > 1:
                    break
        finally:
            for client in clients:
                client.close()
        served.store.dispatch()
        with served.store.reader() as reader:
            bodies = [body for batch in reader.read("orders", 0, 1) for body in batch["body"].to_pylist()]
        assert len(bodies) == len(set(bodies)) == (turn + 1) * 8 * 2
        assert max(sizes) > 1
