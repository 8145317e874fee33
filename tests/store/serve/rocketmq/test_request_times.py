"""How long requests of RocketMQ's clients took, as a server counts them for its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from commitlog_store.engine.stats import Histogram
from commitlog_store.errors import InvalidValue
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.serve.connection_counts import ConnectionCounts, RequestTimes
from commitlog_store.serve.http.samples import summed
from commitlog_store.serve.rocketmq.broker import RocketMQBroker, RocketMQSettings
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.request_times import (
    CREATION_BUCKETS_MS,
    REQUEST_BUCKETS_MS,
    CreationTimes,
    RequestLatencies,
)
from commitlog_store.testing import waiting_calls
from tests.store.owner.owned_store import open_store
from tests.store.serve.rocketmq.brokers import creation_fields
from tests.store.serve.rocketmq.remoting_client import RemotingClient
from tests.support.waiting import wait_for

_PULL = "remoting", "pull_message"


def _counts(found: Mapping[tuple[str, ...], Histogram]) -> dict[tuple[str, ...], int]:
    return {labels: sum(one.counts) for labels, one in found.items()}


def test_requests_are_counted_by_their_codes_and_whether_they_waited_for_messages(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        broker = RocketMQBroker(store, RocketMQSettings.parse("127.0.0.1:0"))
        counts = ConnectionCounts()
        broker.count_in(counts)
        broker.start()
        try:
            with RemotingClient(broker.address) as client:
                assert client.send("orders", b"x").code == 0
                store.dispatch()
                assert client.pull("orders", 0, 0).code == 0
                held = client.start_pull("orders", 0, 1, hold_ms=60_000)
                assert client.pull("orders", 0, 1).code == ResponseCode.PULL_NOT_FOUND
                assert client.send("orders", b"x").code == 0
                assert client.answer(held).code == 0
                for code in (4_711, 4_712):
                    assert client.ask(code).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                client.start(RequestCode.SEND_MESSAGE_V2, one_way=True)
                assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, creation_fields()).code == 0
                assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, creation_fields(topic="TBW102")).code
                group = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
                assert client.ask(group, body=b'{"groupName": "billing"}').code == 0
                assert client.ask(group, body=b"{").code
                one_way = ("remoting", "send_message_v2", "system_error", "false", "oneway")
                wait_for(lambda: one_way in counts.request_times().requests)
            found = counts.request_times()
        finally:
            broker.stop(5.0)
    requests = _counts(found.requests)
    assert requests["remoting", "send_message_v2", "success", "false", "success"] == 2
    assert requests[*_PULL, "success", "false", "success"] == 1
    assert requests[*_PULL, "success", "true", "success"] == 1
    assert requests[*_PULL, "pull_not_found", "false", "success"] == 1
    assert requests["remoting", "(other)", "request_code_not_supported", "false", "success"] == 2
    assert requests["remoting", "update_and_create_topic", "success", "false", "success"] == 1
    assert requests[one_way] == 1
    held_for = found.requests[*_PULL, "success", "true", "success"]
    assert (held_for.upper_ends, held_for.total > 0) == (REQUEST_BUCKETS_MS, True)
    assert _counts(found.topics) == {("success", "false"): 1, ("failure", "true"): 1}
    assert _counts(found.groups) == {("success",): 1, ("failure",): 1}


def test_a_held_pull_whose_client_leaves_is_no_success(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        broker = RocketMQBroker(store, RocketMQSettings.parse("127.0.0.1:0"))
        counts = ConnectionCounts()
        broker.count_in(counts)
        broker.start()
        try:
            with RemotingClient(broker.address) as client:
                assert client.send("orders", b"x").code == 0
                store.dispatch()
                client.start_pull("orders", 0, 1, hold_ms=60_000)
                wait_for(lambda: waiting_calls(store) == 1)
            left = *_PULL, "pull_not_found", "true", "write_channel_failed"
            wait_for(lambda: _counts(counts.request_times().requests).get(left) == 1)
        finally:
            broker.stop(5.0)


def test_an_answer_that_finds_its_client_gone_is_no_success() -> None:
    latencies = RequestLatencies()
    request = RemotingCommand(code=RequestCode.PULL_MESSAGE, is_suspended=True)
    latencies.answered(request, ResponseCode.SUCCESS, "write_channel_failed", 0.0065)
    latencies.answered(request, 999, "success", 4.0)  # an answer of a client, handed on
    found = latencies.by_labels()
    assert found[*_PULL, "success", "true", "write_channel_failed"] == Histogram(
        REQUEST_BUCKETS_MS, (0, 0, 0, 1, 0, 0, 0, 0, 0, 0), 6.5
    )
    assert found[*_PULL, "(other)", "true", "success"].counts[-1] == 1


def test_codes_without_a_name_share_one_series() -> None:
    latencies = RequestLatencies()
    for code in range(10_000, 10_500):
        latencies.answered(RemotingCommand(code=code), code, "success", 0.001)
    assert _counts(latencies.by_labels()) == {("remoting", "(other)", "(other)", "false", "success"): 500}


def test_times_of_creation_are_in_rocketmqs_buckets() -> None:
    now = iter((1.0, 1.05, 2.0, 8.0))
    times = CreationTimes(lambda: next(now))
    with times.of_topic("orders"):
        pass
    with pytest.raises(InvalidValue), times.of_topic("orders"):
        raise InvalidValue("no")
    found = times.topics()
    assert {labels: one.counts for labels, one in found.items()} == {
        ("success", "false"): (0, 1, 0, 0, 0, 0),
        ("failure", "false"): (0, 0, 0, 0, 0, 1),
    }
    both = summed(found.values())
    assert both.upper_ends == CREATION_BUCKETS_MS
    assert both.counts == (0, 1, 0, 0, 0, 1)
    assert both.total == pytest.approx(6_050)


def test_a_server_without_rocketmqs_clients_has_no_times() -> None:
    assert ConnectionCounts().request_times() == RequestTimes({}, {}, {})
