"""Stores that RocketMQ wrote, with this package as their next owner."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path
from typing import Any

import pytest

from commitlog_store import MessageExtBrokerInner, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.format.message_id import format_host
from commitlog_store.format.properties import decode_properties
from commitlog_store.format.record import Filler, Record, decode_record
from tests.store.owner.owned_store import all_messages
from tests.support import golden

LOG_FILE = 256 << 10
SIZES = {
    "mapped_file_size_commit_log": LOG_FILE,
    "mapped_file_size_consume_queue": 2_000 * 20,
    "max_hash_slot_num": 1_000,
    "max_index_num": 4_000,
}
STORES = [golden.ROCKETMQ_533, golden.ROCKETMQ_498]
# RocketMQ up to 4.9.1 and from 5.0 on ends the last property with a separator.
TRAILING = {golden.ROCKETMQ_533: True, golden.ROCKETMQ_498: False}

Answers = dict[str, list[dict[str, Any]]]


@pytest.fixture(params=STORES)
def name(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def path(name: str, tmp_path: Path) -> Path:
    return golden.copy_golden(name, tmp_path / "store")


def _check_answers(reader: StoreReader, answers: Answers, *, more: int = 0) -> None:
    """All that RocketMQ answered about its store; every queue has ``more`` messages now."""
    queues = [queue for topic in reader.topics() for queue in reader.queues(topic)]
    assert [(q.topic, q.queue_id, q.min_offset, q.max_offset) for q in queues] == [
        (q["topic"], q["queueId"], q["min"], q["max"] + more) for q in answers["queue"]
    ]
    for answer in answers["message"]:
        message = reader.message_at(answer["physicalOffset"])
        assert message.message_id == answer["msgId"]
        assert (message.topic, message.queue_id) == (answer["topic"], answer["queueId"])
        assert (message.queue_offset, message.body_crc) == (answer["queueOffset"], answer["bodyCrc"])
        assert dict(message.properties) == answer["properties"]
        (units,) = reader.units(message.topic, message.queue_id, message.queue_offset, message.queue_offset + 1)
        assert (int(units["physical_offset"][0]), int(units["tags_code"][0])) == (
            answer["physicalOffset"],
            answer["tagsCode"],
        )
    for answer in answers["query"]:
        found = reader.query(answer["topic"], answer["key"], limit=10_000)
        assert [message.physical_offset for message in found] == answer["physicalOffsets"]
    for answer in answers["offsetByTime"]:
        assert reader.offset_by_time(answer["topic"], answer["queueId"], answer["timestamp"]) == answer["offset"]


def test_the_next_owner_answers_as_rocketmq_did_and_continues_after_it(name: str, path: Path) -> None:
    answers = golden.expected(name)
    (bounds,) = answers["store"]
    with MessageStore.open(path) as store:
        assert store.physical_bounds() == (bounds["minPhysicOffset"], bounds["maxPhysicOffset"])
        for turn in range(3):
            for queue in answers["queue"]:
                message = MessageExtBrokerInner(
                    topic=queue["topic"], queue_id=queue["queueId"], body=b"next %d" % turn, keys=["brand-new"]
                )
                result = store.put_message(message).raise_for_status()
                assert result.queue_offset == queue["max"] + turn
        store.dispatch()
        with store.reader() as reader:
            _check_answers(reader, answers, more=3)
            for queue in answers["queue"]:
                assert len(reader.query(queue["topic"], "brand-new")) >= 3
                batches = reader.read(queue["topic"], queue["queueId"], queue["max"], columns=["body"])
                assert [row["body"] for batch in batches for row in batch.to_pylist()] == [
                    b"next 0", b"next 1", b"next 2",
                ]  # fmt: skip
    with MessageStore.open(path) as store, store.reader() as reader:
        assert store.recovered is None, "closed cleanly this time"
        _check_answers(reader, answers, more=3)


def test_the_log_continues_in_files_of_the_size_it_has(name: str, path: Path) -> None:
    with MessageStore.open(path) as store:
        for _ in range(200):
            message = MessageExtBrokerInner(topic="orders", body=bytes(5_000))
            store.put_message(message).raise_for_status()
        begin, end = store.physical_bounds()
    files = sorted((path / "commitlog").iterdir())
    assert {file.stat().st_size for file in files} == {LOG_FILE}
    assert [int(file.name) for file in files] == [LOG_FILE * number for number in range(len(files))]
    assert begin == 0
    assert len(files) * LOG_FILE >= end > 200 * 5_000


def _queue_bytes(path: Path) -> dict[str, bytes]:
    """The units of every queue, as they stand in its files, without the unwritten end."""
    queues = (path / "consumequeue").glob("*/*/*")
    return {str(file.relative_to(path)): file.read_bytes().rstrip(b"\0") for file in queues}


@pytest.mark.parametrize("how", ["rebuild", "queues deleted", "index deleted", "both deleted", "one queue deleted"])
def test_queues_and_index_are_built_from_scratch_as_rocketmq_built_them(name: str, path: Path, how: str) -> None:
    """Invariant 1: they hold nothing that the log does not."""
    before = _queue_bytes(path)
    with MessageStore.open(path, MessageStoreConfig(**SIZES)):  # type: ignore[arg-type]
        pass
    assert _queue_bytes(path) == before
    if how in ("queues deleted", "both deleted"):
        shutil.rmtree(path / "consumequeue")
    if how in ("index deleted", "both deleted"):
        shutil.rmtree(path / "index")
    if how == "one queue deleted":
        shutil.rmtree(path / "consumequeue" / "orders" / "1")
    with MessageStore.open(path, MessageStoreConfig(**SIZES), rebuild=how == "rebuild") as store:  # type: ignore[arg-type]
        assert store.recovered is not None
        assert store.recovered.started_at == 0
        with store.reader() as reader:
            _check_answers(reader, golden.expected(name))
    assert _queue_bytes(path) == before


def _records(path: Path) -> list[tuple[Record, bytes]]:
    """Every record of the log with its bytes, in order, those that are in no queue included."""
    found = []
    for file in sorted((path / "commitlog").iterdir()):
        data, at = file.read_bytes(), 0
        while at < len(data):
            record = decode_record(data[at:], physical_offset=int(file.name) + at)
            if isinstance(record, Record):
                found.append((record, data[at : at + record.total_size]))
                at += record.total_size
            else:
                assert isinstance(record, Filler) or not data[at:].strip(b"\0")
                break
    return found


def _as_message(record: Record) -> MessageExtBrokerInner:
    properties = decode_properties(bytes(record.properties))
    return MessageExtBrokerInner(
        topic=record.topic.decode(),
        body=bytes(record.body),
        queue_id=record.queue_id,
        flag=record.flag,
        properties=properties,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=format_host(record.born_ip, record.born_port),
        store_host=format_host(record.store_ip, record.store_port),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
    )


def _without_late_fields(record: Record, data: bytes) -> bytes:
    """The record's bytes with queue offset, physical offset and store time zeroed."""
    blank = bytearray(data)
    blank[20:36] = bytes(16)
    stored_at = 48 + len(record.born_ip) + 4
    blank[stored_at : stored_at + 8] = bytes(8)
    return bytes(blank)


def test_messages_put_again_make_the_records_that_rocketmq_made(name: str, path: Path, tmp_path: Path) -> None:
    """All but the fields that the new place decides: byte for byte."""
    records = _records(path)
    assert len(records) >= len(golden.expected(name)["message"])
    config = MessageStoreConfig(**SIZES, properties_trailing_separator=TRAILING[name])  # type: ignore[arg-type]
    with MessageStore.open(tmp_path / "copy", config) as copy:
        for record, _ in records:
            copy.put_message(_as_message(record)).raise_for_status()
        copy.dispatch()
        with copy.reader() as copied, StoreReader.open(path) as original:
            assert copied.topics() == original.topics()
            for queue, messages in all_messages(original).items():
                again = all_messages(copied)[queue]
                assert [(m.queue_offset, m.body, m.properties) for m in again] == [
                    (m.queue_offset, m.body, m.properties) for m in messages
                ]
    for (new, new_data), (old, old_data) in zip(_records(tmp_path / "copy"), records, strict=True):
        assert _without_late_fields(new, new_data) == _without_late_fields(old, old_data), old


def test_bodies_are_those_that_rocketmq_gave(name: str, path: Path) -> None:
    stored = {record.physical_offset: bytes(record.body) for record, _ in _records(path)}
    for answer in golden.expected(name)["message"]:
        assert stored[answer["physicalOffset"]] == base64.b64decode(answer["body"])
