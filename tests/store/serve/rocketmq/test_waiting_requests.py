"""Requests that wait for a thread are counted until one begins with them, or their client disconnects."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest

from commitlog_store import MessageStore
from commitlog_store.engine.put_message import EncodedMessage, PutMessageResult
from commitlog_store.serve.connection_counts import ConnectionCounts
from commitlog_store.serve.listen import ListenSettings
from commitlog_store.serve.rocketmq.answering import WaitingRequests
from commitlog_store.serve.rocketmq.broker import RocketMQBroker, RocketMQSettings
from commitlog_store.serve.rocketmq.codes import RequestCode
from commitlog_store.store import owned_by
from tests.store.serve.http.test_metrics import GOLDEN
from tests.store.serve.rocketmq.remoting_client import RemotingClient, pull_fields, send_fields
from tests.store.serve.rocketmq.test_clients import heartbeat
from tests.support.waiting import WAIT_LIMIT_S, wait_for

_PLACE = {"consumerGroup": "billing", "topic": "orders", "queueId": 0, "timestamp": 1}
# With fields that a request needs to get as far as its thread.
_REQUESTS: dict[str, list[tuple[RequestCode, dict[str, object]]]] = {
    "send": [(RequestCode.CONSUMER_SEND_MSG_BACK, {})],
    "pull": [(RequestCode.PULL_MESSAGE, pull_fields("orders", 0, 0))],
    "lite_pull": [(RequestCode.LITE_PULL_MESSAGE, pull_fields("orders", 0, 0)) for _ in range(2)],
    "query_message": [(RequestCode.QUERY_MESSAGE, {}), (RequestCode.VIEW_MESSAGE_BY_ID, {})],
    "client_manager": [(RequestCode.CHECK_CLIENT_CONFIG, {})],
    "heartbeat": [(RequestCode.HEART_BEAT, {})],
    "consumer_manager": [(RequestCode.QUERY_CONSUMER_OFFSET, _PLACE), (RequestCode.UPDATE_CONSUMER_OFFSET, _PLACE)],
    "transaction": [(RequestCode.END_TRANSACTION, {})],
    "admin": [
        (RequestCode.GET_MAX_OFFSET, _PLACE),
        (RequestCode.GET_MIN_OFFSET, _PLACE),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, _PLACE),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, _PLACE),
        (RequestCode.GET_ALL_TOPIC_CONFIG, {}),
    ],
}


@contextlib.contextmanager
def _broker(store: MessageStore, threads: ThreadPoolExecutor) -> Iterator[tuple[RocketMQBroker, ConnectionCounts]]:
    """A broker with these threads, and its counts."""
    served = RocketMQBroker(store, RocketMQSettings(listen=ListenSettings.parse("127.0.0.1:0")))
    served._server.loop.set_default_executor(threads)
    counts = ConnectionCounts()
    served.count_in(counts)
    served.start()
    try:
        yield served, counts
    finally:
        served.stop(5.0)


def _numbers_in(counts: ConnectionCounts) -> Mapping[str, int]:
    """Of the processors with requests that wait."""
    return {processor: number for processor, number in counts.waiting_requests().items() if number}


def test_a_request_waits_under_the_name_that_a_broker_counts_it_under(tmp_path: Path) -> None:
    done = threading.Event()
    threads = ThreadPoolExecutor(1)
    with MessageStore.open(tmp_path) as store:
        store.create_topic("orders", 1)
        with _broker(store, threads) as (served, counts), RemotingClient(served.address) as client:
            threads.submit(done.wait, WAIT_LIMIT_S)
            try:
                for requests in _REQUESTS.values():
                    for code, fields in requests:
                        is_heartbeat = code is RequestCode.HEART_BEAT
                        body = orjson.dumps(heartbeat(consumers={"audit": {"orders": "*"}})) if is_heartbeat else b""
                        client.start(code, fields, body)
                expected = {processor: len(requests) for processor, requests in _REQUESTS.items()}
                wait_for(lambda: sum(_numbers_in(counts).values()) == sum(expected.values()))
                assert _numbers_in(counts) == expected
            finally:
                done.set()
            wait_for(lambda: not _numbers_in(counts))
            names = set(counts.waiting_requests())
    brokers = set(re.findall(r'rocketmq_processor_watermark\{.*processor="(\w+)"', GOLDEN.read_text()))
    assert brokers - names == {"ack", "async_put", "reply"}, "docs/metrics.md names them"
    assert names < brokers


def test_messages_that_wait_to_be_put_together_are_sends_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, done = threading.Event(), threading.Event()
    with MessageStore.open(tmp_path) as store:
        store.create_topic("orders", 1)
        putter = owned_by(store).engine.putter
        put_together = putter.put_together

        def put_later(messages: Sequence[EncodedMessage]) -> list[PutMessageResult | Exception]:
            began.set()
            done.wait(WAIT_LIMIT_S)
            return put_together(messages)

        monkeypatch.setattr(putter, "put_at_once", lambda _: [])
        monkeypatch.setattr(putter, "put_together", put_later)
        with _broker(store, ThreadPoolExecutor(1)) as (served, counts), RemotingClient(served.address) as client:
            try:
                sent = [client.start(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"first")]
                assert began.wait(WAIT_LIMIT_S)
                assert _numbers_in(counts) == {}
                sent += [client.start(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"later") for _ in range(2)]
                wait_for(lambda: _numbers_in(counts) == {"send": 2})
            finally:
                done.set()
            assert [client.answer(one).code for one in sent] == [0, 0, 0]
            assert _numbers_in(counts) == {}


def test_requests_wait_until_a_thread_begins_with_them_or_they_are_cancelled() -> None:
    began, done = threading.Event(), threading.Event()

    def hold() -> str:
        began.set()
        done.wait(WAIT_LIMIT_S)
        return "held"

    async def ask() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        waiting = WaitingRequests(loop)
        pull, send = waiting.threads_of("pull"), waiting.threads_of("send")
        assert waiting.counts() == {"pull": 0, "send": 0}
        first = asyncio.ensure_future(pull(hold))
        while not began.is_set():
            await asyncio.sleep(0)
        assert waiting.counts() == {"pull": 0, "send": 0}
        others = [asyncio.ensure_future(pull(lambda: "later")) for _ in range(2)]
        sent = asyncio.ensure_future(send(lambda: "sent"))
        assert waiting.counts() == {"pull": 2, "send": 1}
        others[0].cancel()
        await asyncio.wait(others[:1])
        await asyncio.sleep(0)
        assert waiting.counts() == {"pull": 1, "send": 1}
        done.set()
        assert tuple(await asyncio.gather(first, others[1], sent)) == ("held", "later", "sent")
        assert waiting.counts() == {"pull": 0, "send": 0}

    try:
        asyncio.run(ask())
    finally:
        done.set()


def test_a_request_that_gets_no_thread_since_the_server_stops_does_not_wait() -> None:
    async def ask() -> None:
        loop = asyncio.get_running_loop()
        threads = ThreadPoolExecutor(1)
        loop.set_default_executor(threads)
        threads.shutdown()
        waiting = WaitingRequests(loop)
        with pytest.raises(RuntimeError):
            await waiting.threads_of("pull")(lambda: "later")
        assert waiting.counts() == {"pull": 0}

    asyncio.run(ask())
