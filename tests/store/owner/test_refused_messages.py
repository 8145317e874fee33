"""Messages that no reader could read, or that a broker would act upon: refused in every way of putting them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import Message, MessageExtBrokerInner, MessageStore, PutMessageStatus
from commitlog_store.batch_id import BatchId
from commitlog_store.errors import PutRefused
from commitlog_store.format.message_rules import NO_PRODUCERS_TOPICS
from commitlog_store.format.sys_flag import INNER_BATCH_FLAG
from commitlog_store.format.timestamps import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from commitlog_store.stager import BatchStager
from tests.store.owner.owned_store import open_store, put_ok, rows
from tests.support.clean_store import assert_clean

Put = Callable[[MessageStore, str, dict[str, str]], tuple[PutMessageStatus, str]]
_MAP = pa.map_(pa.string(), pa.string())
_BROKERS_TOPICS = sorted(NO_PRODUCERS_TOPICS | {"rmq_sys_REVIVE_LOG_DefaultCluster"})


def _single(store: MessageStore, topic: str, properties: dict[str, str]) -> tuple[PutMessageStatus, str]:
    result = store.put_message(Message(queue_id=0, topic=topic, body=b"bad", properties=properties))
    return result.status, result.reason


def _batch(store: MessageStore, topic: str, properties: dict[str, str]) -> tuple[PutMessageStatus, str]:
    result = store.put_message_batch([Message(queue_id=0, topic=topic, body=b"bad", properties=properties)] * 2)
    return result.status, result.reason


def _rows(topic: str, properties: dict[str, str]) -> pa.Table:
    return pa.table(
        {"body": [b"bad"], "topic": [topic], "properties": pa.array([list(properties.items())], _MAP)},
    )


def _table(store: MessageStore, topic: str, properties: dict[str, str]) -> tuple[PutMessageStatus, str]:
    result = store.put_messages(_rows(topic, properties))
    assert result.message_num == 0
    return result.status, result.reason


def _transaction(store: MessageStore, topic: str, properties: dict[str, str]) -> tuple[PutMessageStatus, str]:
    with pytest.raises(PutRefused) as raised, store.transaction("app", 1) as batch:
        batch.put_messages(_rows(topic, properties))
    return raised.value.status, raised.value.reason


def _staged(store: MessageStore, topic: str, properties: dict[str, str]) -> tuple[PutMessageStatus, str]:
    """As the sink does it."""
    with pytest.raises(PutRefused) as raised:
        _stage_and_commit(store, _rows(topic, properties))
    return raised.value.status, raised.value.reason


def _stage_and_commit(store: MessageStore, table: pa.Table) -> None:
    """A task stages, the driver commits."""
    batch = BatchId("app", 1, "")
    with BatchStager(store.path, batch, queue_counts={}, topic="orders") as stager:
        stager.put(table)
        staged = stager.finish()
    assert staged is not None
    store.commit_batch(batch, [staged])


WAYS = pytest.mark.parametrize("put", [_single, _batch, _table, _transaction, _staged])


def _put_inner(store: MessageStore, **fields: Any) -> None:
    store.put_message(MessageExtBrokerInner(**{"topic": "orders", "body": b"broker"} | fields)).raise_for_status()


@WAYS
@pytest.mark.parametrize("topic", _BROKERS_TOPICS)
def test_only_a_broker_puts_into_the_topics_that_brokers_act_upon(tmp_path: Path, put: Put, topic: str) -> None:
    with open_store(tmp_path) as store:
        end = store.physical_bounds()[1]
        status, reason = put(store, topic, {})
        assert status is PutMessageStatus.MESSAGE_ILLEGAL
        assert f"RocketMQ writes {topic} itself and takes it from no producer" in reason
        assert store.physical_bounds()[1] == end
        _put_inner(store, topic=topic)
        assert [row["body"] for row in rows(store, topic)] == [b"broker"]


@WAYS
@pytest.mark.parametrize("name", ["TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"])
def test_a_message_for_a_time_too_far_ahead_is_refused(tmp_path: Path, put: Put, name: str) -> None:
    with open_store(tmp_path) as store:
        status, reason = put(store, "orders", {"a": "b", name: "1893456000000", "DELAY": "0"})
        assert status is PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL
        assert "the most is 259,200 s (timerMaxDelaySec)" in reason
        assert put_ok(store).queue_offset == 0


@WAYS
def test_no_message_cancels_another_one(tmp_path: Path, put: Put) -> None:
    with open_store(tmp_path) as store:
        status, reason = put(store, "orders", {"TIMER_DELAY_SEC": "60", "TIMER_DEL_UNIQKEY": "orders+key"})
        assert status is PutMessageStatus.MESSAGE_ILLEGAL
        assert "a message that waits cannot be cancelled" in reason


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELIVER_MS": "1", "TIMER_OUT_MS": "1", "TIMER_ROLL_TIMES": "0"},
        {"TIMER_DELAY_SEC": "1", "DELAY": "1"},
        {"TIMER_DELETED": "yes", "note": "TIMER_DELAY_SEC"},
    ],
    ids=["delivered", "delayed", "other"],
)
def test_messages_that_ask_for_no_timer_are_put(tmp_path: Path, properties: dict[str, str]) -> None:
    with open_store(tmp_path) as store:
        put_ok(store, properties=properties)
        store.put_messages(_rows("orders", properties)).raise_for_status()


_BAD_TIMES = [MAX_TIMESTAMP_MS + 1, MIN_TIMESTAMP_MS - 1, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("born", _BAD_TIMES)
def test_a_born_timestamp_that_no_reader_can_show_is_refused(tmp_path: Path, born: int) -> None:
    table = pa.table({"body": [b"good", b"bad"], "bornTimestamp": pa.array([MAX_TIMESTAMP_MS, born], pa.int64())})
    with open_store(tmp_path) as store:
        result = store.put_messages(table, topic="orders")
        assert [status.as_py() for status in result.rows["status"]] == ["PUT_OK", "MESSAGE_ILLEGAL"]
        assert f"row 1 (topic 'orders', no queue given): its bornTimestamp is {born}" in result.reason
        single = store.put_message(MessageExtBrokerInner(topic="orders", body=b"bad", born_timestamp=born))
        assert single.status is PutMessageStatus.MESSAGE_ILLEGAL
        assert str(born) in single.reason
        with pytest.raises(PutRefused, match=str(born)), store.transaction("app", 1) as batch:
            batch.put_messages(table, topic="orders")
        with pytest.raises(PutRefused, match=str(born)):
            _stage_and_commit(store, table)
        store.dispatch()
        with store.reader() as reader:
            assert sum(info.max_offset for info in reader.queues("orders")) == 1


def test_the_first_and_the_last_timestamp_come_back(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for born in (MIN_TIMESTAMP_MS, -1, MAX_TIMESTAMP_MS):
            _put_inner(store, born_timestamp=born)
        found = [row["bornTimestamp"].isoformat() for row in rows(store)]
    assert found == [
        "0001-01-01T00:00:00+00:00",
        "1969-12-31T23:59:59.999000+00:00",
        "9999-12-31T23:59:59.999000+00:00",
    ]


def _listed(path: Path, topic: str, attribute: str, value: str) -> None:
    entry = {"topicName": topic, "writeQueueNums": 1, "readQueueNums": 1, "attributes": {attribute: value}}
    (path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {topic: entry}}))


@WAYS
@pytest.mark.parametrize(
    ("attribute", "value", "words"),
    [
        ("queue.type", "BatchCQ", "kept in batch consume queues"),
        ("+queue.type", "BatchCQ", "kept in batch consume queues"),
        ("cleanup.policy", "COMPACTION", "a compaction topic"),
    ],
)
def test_a_topic_without_plain_consume_queues_is_refused_by_name(
    tmp_path: Path, put: Put, attribute: str, value: str, words: str
) -> None:
    with open_store(tmp_path) as store:
        put_ok(store, topic="plain")
        end = store.physical_bounds()[1]
        _listed(tmp_path, "special", attribute, value)
        status, reason = put(store, "special", {})
        assert status is PutMessageStatus.MESSAGE_ILLEGAL
        assert f"topic 'special' is {words}" in reason
        inner = store.put_message(MessageExtBrokerInner(topic="special", body=b"x"))
        assert (inner.status, inner.reason in reason or words in inner.reason) == (status, True)
        assert store.physical_bounds()[1] == end
        _listed(tmp_path, "usual", attribute, "SimpleCQ")
        put_ok(store, topic="usual")
    assert_clean(tmp_path)


@WAYS
def test_a_directory_of_batch_queues_made_later_is_refused_by_name(tmp_path: Path, put: Put) -> None:
    with open_store(tmp_path) as store:
        (tmp_path / "batchconsumequeue" / "special" / "0").mkdir(parents=True)
        status, reason = put(store, "special", {})
        assert status is PutMessageStatus.MESSAGE_ILLEGAL
        assert "topic 'special' is kept in batch consume queues" in reason
        put_ok(store)


@pytest.mark.parametrize(
    "fields",
    [{"sys_flag": INNER_BATCH_FLAG}, {"properties": {"INNER_NUM": "3"}}, {"properties": {"INNER_BASE": "3"}}],
    ids=str,
)
def test_a_message_of_several_messages_is_refused_of_brokers_too(tmp_path: Path, fields: dict[str, Any]) -> None:
    """It takes as many queue offsets as it holds messages, and would be taken for damage after a crash."""
    with open_store(tmp_path) as store:
        result = store.put_message(MessageExtBrokerInner(topic="orders", body=b"x", **fields))
        assert result.status is PutMessageStatus.MESSAGE_ILLEGAL
        assert "batch consume queues" in result.reason
        assert put_ok(store).queue_offset == 0
