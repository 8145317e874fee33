"""Messages with the fields that a broker sets: transactions, hosts, compressed bodies, copies."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest

from commitlog_store import MessageExtBrokerInner, MessageStore, PutMessageResult, PutMessageStatus
from commitlog_store.format.sys_flag import (
    COMPRESSED_FLAG,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    CompressionType,
)
from tests.store.owner.owned_store import open_store, put_ok, rows
from tests.support.stored_bodies import bodies


def _put(store: MessageStore, **fields: Any) -> PutMessageResult:
    return store.put_message(MessageExtBrokerInner(**{"topic": "orders", "body": b"body"} | fields))


def test_every_field_of_a_broker_message_comes_back(tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "born_timestamp": 1_600_000_000_123,
        "born_host": "2001:db8::1:40000",
        "store_host": "10.9.8.7:1234",
        "reconsume_times": 3,
        "prepared_transaction_offset": 77,
        "properties": {"PGROUP": "group", "TRAN_MSG": "true", "REAL_TOPIC": "x"},
        "sys_flag": TRANSACTION_COMMIT_TYPE,
    }
    with open_store(tmp_path) as store:
        result = _put(store, **fields).raise_for_status()
        (row,) = rows(store)
    assert row["bornTimestamp"].timestamp() == 1_600_000_000.123
    assert (row["bornHost"], row["storeHost"]) == ("2001:db8:0:0:0:0:0:1:40000", "10.9.8.7:1234")
    assert (row["reconsumeTimes"], row["preparedTransactionOffset"]) == (3, 77)
    assert row["properties"] == fields["properties"]
    assert row["sysFlag"] == TRANSACTION_COMMIT_TYPE | 16
    assert row["msgId"] == result.message_id
    assert result.message_id.startswith("0A090807000004D2")


@pytest.mark.parametrize("kind", [TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE])
def test_half_and_rolled_back_messages_are_in_the_log_but_in_no_queue(tmp_path: Path, kind: int) -> None:
    with open_store(tmp_path) as store, store.reader() as reader:
        put_ok(store, body=b"before", keys=["k0"])
        result = _put(store, sys_flag=kind, keys=["k1"])
        assert (result.status, result.queue_offset) == (PutMessageStatus.PUT_OK, 0)
        assert put_ok(store, body=b"behind").queue_offset == 1, "it took no queue offset"
        assert bodies(store) == [b"before", b"behind"]
        message = reader.message_by_id(result.message_id)
        assert (message.body, message.sys_flag, message.queue_offset) == (b"body", kind, 0)


def test_a_committed_transaction_has_its_place_in_the_queue(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        half = _put(store, sys_flag=TRANSACTION_PREPARED_TYPE)
        whole = _put(store, sys_flag=TRANSACTION_COMMIT_TYPE, prepared_transaction_offset=half.physical_offset)
        (row,) = rows(store)
    assert (row["physicalOffset"], row["preparedTransactionOffset"]) == (whole.physical_offset, half.physical_offset)


def test_half_messages_keep_their_delay_until_they_are_whole(tmp_path: Path) -> None:
    """RocketMQ moves only messages that are for consumers to the schedule."""
    with open_store(tmp_path) as store, store.reader() as reader:
        half = _put(store, sys_flag=TRANSACTION_PREPARED_TYPE, properties={"DELAY": "2"})
        whole = _put(store, sys_flag=TRANSACTION_COMMIT_TYPE, properties={"DELAY": "2"})
        store.dispatch()
        assert reader.message_at(half.physical_offset).topic == "orders"
        assert reader.message_at(whole.physical_offset).topic == "SCHEDULE_TOPIC_XXXX"


def test_compressed_bodies_are_stored_as_they_are_and_read_unpacked(tmp_path: Path) -> None:
    packed = zlib.compress(b"text " * 100)
    with open_store(tmp_path) as store:
        _put(store, body=packed, sys_flag=COMPRESSED_FLAG | CompressionType.ZLIB.value).raise_for_status()
        (row,) = rows(store)
    assert row["body"] == b"text " * 100
    assert row["bodyCrc"] == zlib.crc32(packed) & 0x7FFF_FFFF


def test_a_copy_of_a_delayed_message_stays_as_it_is(tmp_path: Path) -> None:
    """Moved to the schedule once more, its real topic would be the schedule itself."""
    waiting = {"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "1"}
    with open_store(tmp_path) as store:
        _put(store, topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties=waiting).raise_for_status()
        (row,) = rows(store, "SCHEDULE_TOPIC_XXXX", 2)
    assert row["properties"] == waiting


def test_a_topic_that_a_store_already_has_may_be_longer_than_a_new_one(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        _put(store, topic="t" * 255).raise_for_status()
        assert bodies(store, "t" * 255) == [b"body"]
        assert _put(store, topic="t" * 256).status is PutMessageStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize(
    "fields",
    [
        {"born_host": "nowhere"},
        {"store_host": "10.0.0.1:70000"},
        {"reconsume_times": 2**31},
        {"prepared_transaction_offset": 2**63},
        {"born_timestamp": 2**63},
        {"sys_flag": 2**32},
        {"topic": "../orders"},
        {"topic": "a/b"},
        {"properties": {"DELAY": "-1"}},
        {"properties": {"a": "\x01"}},
        {"properties": {"INNER_MULTI_DISPATCH": "..", "INNER_MULTI_QUEUE_OFFSET": "0"}},
        {"properties": {"INNER_MULTI_QUEUE_OFFSET": "7"}},
    ],
    ids=str,
)
def test_broker_messages_that_fit_no_record_are_refused(tmp_path: Path, fields: dict[str, Any]) -> None:
    with open_store(tmp_path) as store:
        result = _put(store, **fields)
        assert (result.status, result.queue_offset) == (PutMessageStatus.MESSAGE_ILLEGAL, -1)
        assert result.reason
        assert put_ok(store).queue_offset == 0
