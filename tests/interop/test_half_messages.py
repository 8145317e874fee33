"""Half messages in one store by turns: prepared by either side, ended by the other, and read alike by both."""

from __future__ import annotations

import base64
from pathlib import Path

from commitlog import HalfMessageHandle, Message, MessageStore, StoreReader
from commitlog.format.half_messages import HALF_TOPIC, OP_TOPIC
from commitlog.format.sys_flag import TRANSACTION_COMMIT_TYPE
from tests.interop.agreement import agree_on_closed
from tests.interop.message_store_program import open_store
from tests.interop.rocketmq import RocketMq, message_store_settings
from tests.interop.store_process import Json, StoreProcess
from tests.interop.test_message_store_writes import SMALL
from tests.support.stored_bodies import topic_bodies

__all__: list[str] = []


def ours(path: Path) -> MessageStore:
    return open_store(str(path), message_store_settings(SMALL))


def put(process: StoreProcess, topic: str, body: bytes, **fields: object) -> Json:
    """Put with RocketMQ's store what a broker puts there."""
    message: Json = {
        "topic": topic,
        "queueId": 0,
        "body": base64.b64encode(body).decode(),
        "tags": None,
        "keys": [],
        "flag": 0,
        "properties": {},
        "sysFlag": 0,
        "compression": None,
        "delayLevel": 0,
        "reconsumeTimes": 0,
        "bornTimestamp": 1_700_000_000_000,
        "bornHost": "192.168.1.9:40000",
        "storeHost": "10.1.2.3:10911",
        "preparedTransactionOffset": 0,
    }
    reply = process.ask("put", kind="message", messages=[message | fields])
    assert reply["status"] == "PUT_OK", reply
    place: Json = reply["messages"][0]
    return place


def half_properties(key: str) -> dict[str, str]:
    real = {"REAL_TOPIC": "orders", "REAL_QID": "0", "TRAN_MSG": "true", "PGROUP": "payments"}
    return {**real, "UNIQ_KEY": key, "__transactionId__": key}


def pending(path: Path) -> list[bytes]:
    with StoreReader.open(path) as reader:
        return [one.message.body for one in reader.pending_half_messages()]


def test_half_messages_are_finished_by_the_other_side(rocketmq: RocketMq, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with ours(path) as store:
        half = store.half_messages
        handles = [half.prepare(Message(topic="orders", body=b"ours-%d" % n), "payments") for n in range(5)]
        half.commit(handles[0])
        half.rollback(handles[1])
    answers = agree_on_closed(path, rocketmq, SMALL)
    assert [one["topic"] for one in answers.messages].count(HALF_TOPIC) == 5
    # What a broker does for the end of two transactions, and for two that begin.
    with rocketmq.open(path, SMALL) as process:
        committed = handles[2]
        put(
            process,
            "orders",
            b"ours-2",
            sysFlag=TRANSACTION_COMMIT_TYPE,
            properties=half_properties(committed.unique_key),
            preparedTransactionOffset=committed.physical_offset,
        )
        body = b"%d,%d," % (committed.queue_offset, handles[3].queue_offset)
        put(process, OP_TOPIC, body if rocketmq.is_five else b"%d" % committed.queue_offset, tags="d")
        if not rocketmq.is_five:
            put(process, OP_TOPIC, b"%d" % handles[3].queue_offset, tags="d")
        theirs = [put(process, HALF_TOPIC, b"theirs-%d" % n, properties=half_properties(f"key-{n}")) for n in range(2)]
        process.close()
    assert pending(path) == [b"ours-4", b"theirs-0", b"theirs-1"]
    with ours(path) as store:
        for number, place in enumerate(theirs):
            handle = HalfMessageHandle(place["physicalOffset"], place["queueOffset"], "payments", f"key-{number}")
            (store.half_messages.rollback if number else store.half_messages.commit)(handle)
    assert pending(path) == [b"ours-4"]
    agree_on_closed(path, rocketmq, SMALL)
    assert sorted(topic_bodies(path, "orders")) == [b"ours-0", b"ours-2", b"theirs-0"]
