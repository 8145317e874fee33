"""A store that retention has cleaned, before RocketMQ and after it: both read what is left, and go on with it."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from commitlog import MessageStore, MessageStoreConfig, StoreReader
from tests.interop.conftest import OpenMessageStore
from tests.interop.operations import Operations
from tests.interop.rocketmq import RocketMq, message_store_settings
from tests.interop.store_process import Json
from tests.support.clean_store import assert_clean

__all__: list[str] = []

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
