"""Whatever a client sends is answered: no request ends a connection's handler with an error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commitlog_store import Message, MessageStore
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.serve.rocketmq import client_calls
from commitlog_store.serve.rocketmq.broker import GroupProcessors
from commitlog_store.serve.rocketmq.broker_identity import BrokerIdentity
from tests.store.serve.rocketmq.asking import AClient, ask

NAMES = [
    *("consumerGroup", "topic", "queueId", "commitOffset", "timestamp", "offset", "group", "delayLevel", "key"),
    *("maxReconsumeTimes", "clientId", "clientID", "msgId", "producerGroup", "commitLogOffset", "commitOrRollback"),
    *("tranStateTableOffset", "maxNum", "beginTimestamp", "endTimestamp", "perm", "readQueueNums", "writeQueueNums"),
    *("attributes", "isForce", "groupName", "cleanOffset", "topicList", "fromTransactionCheck", "boundaryType"),
]
VALUES = st.one_of(
    st.sampled_from(["billing", "orders", "0", "1", "8", "12", "true", "", "-1", "%RETRY%billing", "../x", str(2**63)]),
    st.integers(-(2**70), 2**70).map(str),
    st.text(max_size=20),
)
# Most fields at once, so that requests come far.
FIELDS = st.dictionaries(st.sampled_from(NAMES), VALUES, min_size=0, max_size=len(NAMES))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["clientID", "mqSet"]), inner),
    max_leaves=10,
)
BODIES = st.one_of(
    st.binary(max_size=50),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.sampled_from(
        [
            b'{"clientID":"c","consumerDataSet":[{"groupName":"billing","subscriptionDataSet":[{"topic":"orders"}]}]}',
            b'{"clientID":"c","producerDataSet":[{"groupName":"payments"}]}',
            b'{"clientId":"c","consumerGroup":"billing","mqSet":[{"brokerName":"b","queueId":0,"topic":"orders"}]}',
            b'{"groupName":"billing","retryMaxTimes":1}',
            b'{"groupName":"billing","retryMaxTimes":1e400}',
            b'{"subscriptionData":{"topic":"t","subString":"a >","expressionType":"SQL92"}}',
        ]
    ),
)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GroupProcessors]:
    path: Path = tmp_path_factory.mktemp("store")
    with MessageStore.open(path) as store:
        store.put_message(Message(topic="orders", body=b"x", keys=["k"]))
        with store.consumer("billing", ["orders"]) as consumer:
            consumer.poll(1, 5)
            consumer.commit()
        yield GroupProcessors(store, BrokerIdentity("127.0.0.1:1"), lambda _: asyncio.to_thread)


def test_no_two_processors_answer_one_code(parts: GroupProcessors) -> None:
    tables = [set(processor.handlers()) for processor in parts.processors]
    assert not any(one & other for one, other in combinations(tables, 2))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_request_gets_one_answer(
    parts: GroupProcessors, data: st.DataObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_calls, "ANSWER_TIMEOUT_S", 0.001)

    async def send_all() -> None:
        client = AClient()
        for processor in parts.processors:
            for code in processor.handlers():
                fields, body = data.draw(FIELDS, label=str(code)), data.draw(BODIES, label=str(code))
                answer = await ask(processor, code, fields, body, client=client)
                assert isinstance(answer, RemotingCommand)
                assert answer.encode()
        for processor in parts.processors:
            processor.connection_lost(client)

    asyncio.run(send_all())
