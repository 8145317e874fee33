"""A topic that a broker deleted: opening the store here brings back what RocketMQ brings back, and nothing else."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlog_store import FILLER_SIZE, MessageStore, MessageStoreConfig, StoreReader, verify_store
from tests.interop.comparison import Answers, answers_of
from tests.interop.operations import message_of
from tests.interop.rocketmq import RocketMq, message_store_settings
from tests.interop.store_process import StoreProcess
from tests.support.clean_store import assert_clean

SETTINGS: dict[str, object] = {
    "mapped_file_size_commit_log": 16 << 10,
    "mapped_file_size_consume_queue": 20 * 20,
    "max_hash_slot_num": 100,
    "max_index_num": 4000,
}
KEPT, DELETED, OTHER = "kept", "orders", "payments"


def put(process: StoreProcess, topic: str, count: int, *, queues: int = 3) -> None:
    puts = [
        {"kind": "message", "messages": [message_of(topic, b"%s %d " % (topic.encode(), number) * 20) | queue]}
        for number in range(count)
        for queue in [{"queueId": number % queues}]
    ]
    for _, reply in process.put_all(puts):
        assert reply["status"] == "PUT_OK"


def in_the_middle(process: StoreProcess) -> None:
    for _ in range(4):
        put(process, DELETED, 30)
        put(process, KEPT, 20)
    process.ask("deleteTopic", topic=DELETED)
    put(process, KEPT, 5)


def at_the_end(process: StoreProcess) -> None:
    """The queues that are left end before the last messages of the topic: these come back."""
    put(process, KEPT, 50)
    # 5.3.3 forgets the record right after the last one that was dispatched: here one that is in no queue.
    prepared = message_of(KEPT, b"prepared") | {"sysFlag": 4}
    list(process.put_all([{"kind": "message", "messages": [prepared]}]))
    put(process, DELETED, 200)
    process.ask("deleteTopic", topic=DELETED)


def made_again(process: StoreProcess) -> None:
    put(process, DELETED, 60)
    put(process, KEPT, 20)
    put(process, DELETED, 40)
    process.ask("deleteTopic", topic=DELETED)
    put(process, KEPT, 100)
    put(process, DELETED, 7, queues=1)


def made_and_deleted_again(process: StoreProcess) -> None:
    made_again(process)
    process.ask("deleteTopic", topic=DELETED)
    put(process, OTHER, 5)
    put(process, DELETED, 90, queues=2)


HISTORIES = [in_the_middle, at_the_end, made_again, made_and_deleted_again]


def list_topics(path: Path, *topics: str) -> None:
    (path / "config").mkdir(exist_ok=True)
    table = {topic: {"topicName": topic, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6} for topic in topics}
    (path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


def claim_flushed(path: Path) -> None:
    """Let the checkpoint of a killed broker say what it would have said some seconds later."""
    with StoreReader.open(path) as reader:
        last = max(reader.message_at(places[-1]).store_timestamp for _, places in read_queues(path).values())
    file = path / "checkpoint"
    file.write_bytes(struct.pack(">3q", last + 3_000, last + 3_000, 0) + file.read_bytes()[24:])


def copy_of(path: Path, whose: str) -> Path:
    return Path(shutil.copytree(path, path.with_name(whose)))


def answers_after(rocketmq: RocketMq, path: Path) -> Answers:
    with rocketmq.open(path, SETTINGS) as process:
        answers = answers_of(process)
        process.close()
    return answers


Queues = dict[tuple[str, int], tuple[int, list[int]]]


def queues_of(answers: Answers) -> Queues:
    """The end of each queue, and the places of its messages, as RocketMQ says.

    4.9.8 counts fillers at a queue's beginning as messages when the log begins at 0.
    """
    return {
        (one["topic"], one["queueId"]): (one["maxOffset"], [unit[0] for unit in one["units"] if unit[1] != FILLER_SIZE])
        for one in answers.queues
        if one["maxOffset"]
    }


def read_queues(path: Path) -> Queues:
    """The same, as ``StoreReader`` says."""
    with StoreReader.open(path) as reader:
        queues = [one for topic in reader.topics() for one in reader.queues(topic) if one.max_offset]
        found = {}
        for one in queues:
            blocks = reader.units(one.topic, one.queue_id, one.min_offset, one.max_offset)
            places = [int(unit["physical_offset"]) for block in blocks for unit in block]
            found[one.topic, one.queue_id] = one.max_offset, places
        return found


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
@pytest.mark.parametrize("history", HISTORIES)
def test_a_topic_that_a_broker_deleted_comes_back_as_far_as_with_rocketmq(
    history: Callable[[StoreProcess], None], killed: bool, rocketmq: RocketMq, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    with rocketmq.open(path, SETTINGS) as process:
        history(process)
        if killed:
            process.ask("describe")  # waits until all is dispatched
            process.kill()
        else:
            process.close()
    again = history in (made_again, made_and_deleted_again)
    if not again:  # 5.3.3 may leave a file that is being flushed
        shutil.rmtree(path / "consumequeue" / DELETED, ignore_errors=True)
    list_topics(path, KEPT, OTHER, *([DELETED] if again else []))
    if killed:
        claim_flushed(path)
    theirs, ours = copy_of(path, "theirs"), copy_of(path, "ours")
    answers = answers_after(rocketmq, theirs)
    config = MessageStoreConfig.from_mapping(message_store_settings(SETTINGS))
    assert not [finding for finding in verify_store(path, config=config) if finding.severity == "error"]
    with MessageStore.open(ours, config) as store:
        assert store.recovered is not None
    assert read_queues(ours) == queues_of(answers)
    assert_clean(ours)
    with MessageStore.open(ours, config, rebuild=True):
        pass
    assert read_queues(ours) == queues_of(answers)
    assert queues_of(answers_after(rocketmq, ours)) == queues_of(answers)
