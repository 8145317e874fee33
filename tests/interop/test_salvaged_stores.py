"""A store that ``salvage`` made of a damaged one: RocketMQ opens it as its own, and reads every message of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog_store import MessageStoreConfig, salvage_store
from tests.interop.agreement import agree_on_closed
from tests.interop.command_process import Json
from tests.interop.operations import Operations
from tests.interop.rocketmq import RocketMq

FILE_SIZE = 128 << 10
SMALL: dict[str, object] = {
    "mapped_file_size_commit_log": FILE_SIZE,
    "mapped_file_size_consume_queue": 37 * 20,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}
# What a salvage gives to a record again: its place, and with it its id, and its offset in the queue.
MOVED = {"physicalOffset", "queueOffset", "msgId", "preparedTransactionOffset"}


@pytest.fixture
def stored(rocketmq: RocketMq, tmp_path: Path) -> list[Json]:
    """The messages of a store that RocketMQ wrote, at ``tmp_path / "store"``, over several files."""
    with rocketmq.open(tmp_path / "store", SMALL) as process:
        operations = Operations("first", seed=3, long_topics=rocketmq.is_five).take(300)
        for _ in process.put_all(operations):
            pass
        messages: list[Json] = process.ask("describe")["messages"]
        process.close()
    return messages


def test_rocketmq_reads_what_was_salvaged(rocketmq: RocketMq, stored: list[Json], tmp_path: Path) -> None:
    """All messages but the damaged ones, at the places and queue offsets that the report says."""
    lost = {stored[len(stored) * tenth // 10]["physicalOffset"] for tenth in (1, 4, 8)}
    for place in lost:
        name = f"{place - place % FILE_SIZE:020d}"
        with (tmp_path / "store" / "commitlog" / name).open("r+b") as log:
            log.seek(place % FILE_SIZE + 4)
            log.write(b"XXXX")
    report = salvage_store(tmp_path / "store", tmp_path / "salvaged", config=MessageStoreConfig.from_mapping(SMALL))
    assert {one.start for one in report.unreadable} == lost
    answers = agree_on_closed(tmp_path / "salvaged", rocketmq, SMALL)
    kept = [message for message in stored if message["physicalOffset"] not in lost]
    assert [_unmoved(message) for message in answers.messages] == [_unmoved(message) for message in kept]
    assert report.records == len(kept)
    assert report.moved
    for was, now in zip(kept, answers.messages, strict=True):
        if was["sysFlag"] & 0b1100 in (0b0100, 0b1100):  # prepared and rolled back: in no queue
            continue
        found = [
            move.new_start - move.start
            for move in report.moved
            if (move.topic, move.queue_id) == (was["topic"], was["queueId"])
            and move.start <= was["queueOffset"] < move.stop
        ]
        assert now["queueOffset"] == was["queueOffset"] + (found[0] if found else 0)
    for (topic, key), places in answers.found.items():
        assert places == answers.with_key(topic, key), f"RocketMQ finds all of {topic!r}, {key!r} in the index"


def _unmoved(message: Json) -> Json:
    return {name: value for name, value in message.items() if name not in MOVED}
