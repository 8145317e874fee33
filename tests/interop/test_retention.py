"""A store that retention has cleaned, before RocketMQ and after it: both read what is left, and go on with it."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader
from tests.interop.command_process import Json
from tests.interop.conftest import OpenMessageStore
from tests.interop.operations import Operations, message_of
from tests.interop.rocketmq import RocketMq, message_store_settings
from tests.support.clean_store import assert_clean

SETTINGS: dict[str, object] = {
    "mapped_file_size_commit_log": 64 << 10,
    "mapped_file_size_consume_queue": 20 * 20,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}


def _puts(run: str, seed: int) -> list[Json]:
    return Operations(run, seed=seed, largest_body=3_000).take(250)


def _clean(path: Path, max_bytes: int) -> int:
    """Clean the store; returns the first byte of its log."""
    _deliver_all(path)
    config = MessageStoreConfig.from_mapping(message_store_settings(SETTINGS))
    with MessageStore.open(path, config) as store:
        report = store.clean(max_bytes=max_bytes)
        assert report.deleted
        assert not report.holders
        return report.log_start


def _deliver_all(path: Path) -> None:
    """Say that all delayed messages were delivered, so that they hold no file."""
    (path / "config").mkdir(exist_ok=True)
    with StoreReader.open(path) as reader:
        levels = {one.queue_id + 1: one.max_offset for one in reader.queues("SCHEDULE_TOPIC_XXXX")}
    table = ",".join(f"{level}:{offset}" for level, offset in levels.items())
    (path / "config" / "delayOffset.json").write_text(f'{{"offsetTable":{{{table}}}}}')


def _look(path: Path, rocketmq: RocketMq) -> list[int]:
    """The physical offsets of all messages, after both programs have read them alike.

    RocketMQ complains of every index entry whose message is gone, so its log is not looked at.
    """
    copy = path.with_name("looked-at")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path, copy)
    with rocketmq.open(copy, SETTINGS) as process:
        told = process.ask("describe")
        process.close()
    assert_clean(path)
    places = {one["physicalOffset"]: one["bodySha256"] for one in told["messages"]}
    with StoreReader.open(path) as reader:
        assert reader.physical_bounds()[0] == told["minPhysicalOffset"]
        for place, digest in places.items():
            assert hashlib.sha256(reader.message_at(place).body).hexdigest() == digest
        theirs = {(one["topic"], one["queueId"]): one for one in told["queues"] if one["maxOffset"]}
        for topic in reader.topics():
            for queue in reader.queues(topic):
                their = theirs[topic, queue.queue_id]
                assert their["maxOffset"] == queue.max_offset
                if queue.min_offset < queue.max_offset:  # 4.x leaves the beginning of a queue without messages
                    assert their["minOffset"] == queue.min_offset
    return sorted(places)


def test_both_read_and_continue_a_store_that_was_cleaned(
    rocketmq: RocketMq, open_message_store: OpenMessageStore, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    with rocketmq.open(path, SETTINGS) as process:
        list(process.put_all(_puts("theirs", 1)))
        process.close()
    all_places = _look(path, rocketmq)

    start = _clean(path, 200_000)
    left = _look(path, rocketmq)
    assert left == [place for place in all_places if place >= start]
    assert 0 < len(left) < len(all_places)

    with rocketmq.open(path, SETTINGS) as process:
        list(process.put_all(_puts("theirs again", 2)))
        process.close()
    with open_message_store(path, SETTINGS) as process:
        list(process.put_all(_puts("ours", 3)))
        process.close()
    more = _look(path, rocketmq)
    assert more[: len(left)] == left

    start = _clean(path, 150_000)
    assert _look(path, rocketmq) == [place for place in more if place >= start]


def test_a_broker_goes_on_with_a_topic_that_was_deleted_with_its_messages(rocketmq: RocketMq, tmp_path: Path) -> None:
    """It begins the topic at 0, and a rebuild here finds its messages and none of the deleted ones."""
    path = tmp_path / "store"
    config = MessageStoreConfig.from_mapping(message_store_settings(SETTINGS) | {"schedule_enable": False})
    with MessageStore.open(path, config) as store:
        for topic, count in (("kept", 5), ("orders", 30), ("kept", 30)):
            for number in range(count):
                store.put_message(Message(topic=topic, queue_id=0, body=b"%04d" % number * 500)).raise_for_status()
        store.delete_topic("orders", with_messages=True)
    with rocketmq.open(path, SETTINGS) as process:
        assert "orders" not in {one["topic"] for one in process.ask("describe")["queues"] if one["maxOffset"]}
        puts = [{"kind": "message", "messages": [message_of("orders", b"again %d" % number)]} for number in range(3)]
        for _, reply in process.put_all(puts):
            assert reply["status"] == "PUT_OK"
        process.close()
    for rebuild in (False, True):
        with MessageStore.open(path, config, rebuild=rebuild) as store, store.reader() as reader:
            info = reader.queue_info("orders", 0)
            assert (info.min_offset, info.max_offset) == (0, 3)
            (batch,) = reader.read("orders", 0, 0, columns=["body"])
            assert batch["body"].to_pylist() == [b"again 0", b"again 1", b"again 2"]
            assert reader.queue_info("kept", 0).max_offset == 35
        assert_clean(path)
