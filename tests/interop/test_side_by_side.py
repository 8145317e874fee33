"""Both programs at one store at the same time: one owner, and readers that do not disturb it."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.errors import StoreLocked
from tests.interop.acknowledged import Acknowledged, acknowledged
from tests.interop.command_process import CommandFailed
from tests.interop.operations import NAME, Operations
from tests.interop.rocketmq import RocketMq
from tests.interop.store_process import StoreProcess
from tests.interop.turns import FLUSHES

SETTINGS: dict[str, object] = {
    "mapped_file_size_commit_log": 128 << 10,
    "mapped_file_size_consume_queue": 100 * 20,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}
Queue = tuple[str, int]


def test_message_store_refuses_a_store_that_rocketmq_owns(rocketmq: RocketMq, tmp_path: Path) -> None:
    with rocketmq.open(tmp_path / "store", SETTINGS) as process:
        with pytest.raises(StoreLocked, match="java"):
            MessageStore.open(tmp_path / "store")
        process.close()
    MessageStore.open(tmp_path / "store").close()


def test_rocketmq_refuses_a_store_that_message_store_owns(rocketmq: RocketMq, tmp_path: Path) -> None:
    config = MessageStoreConfig(mapped_file_size_commit_log=128 << 10, disk_space_warning_level_ratio=1.0)
    with MessageStore.open(tmp_path / "store", config) as store:
        with pytest.raises(CommandFailed, match="Lock failed,MQ already started"):
            rocketmq.open(tmp_path / "store", SETTINGS)
        assert store.put_message(Message(queue_id=0, topic="still-writable", body=b"")).ok


class LiveReader:
    """Reads every queue to its end, again and again, and checks what is new each time."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._ends: dict[Queue, int] = {}
        self.bodies: dict[str, str] = {}
        """SHA-256 of each message's body, by the message's name."""

    def look(self) -> None:
        for topic in self._reader.topics():
            for queue in self._reader.queues(topic):
                start = self._ends.get((topic, queue.queue_id), 0)
                assert queue.max_offset >= start, "a queue's end never goes back"
                self._read((topic, queue.queue_id), start, queue.max_offset)

    def _read(self, queue: Queue, start: int, stop: int) -> None:
        columns = ["queueOffset", "body", "properties"]
        rows = [
            row
            for batch in self._reader.read(*queue, start, stop, columns=columns, verify_crc=True)
            for row in batch.to_pylist()
        ]
        assert [row["queueOffset"] for row in rows] == list(range(start, stop)), "every message once, in order"
        for row in rows:
            name = dict(row["properties"])[NAME]
            assert name not in self.bodies
            self.bodies[name] = hashlib.sha256(row["body"]).hexdigest()
        self._ends[queue] = stop


@pytest.mark.parametrize("flush", FLUSHES)
def test_a_reader_beside_a_writing_rocketmq_sees_whole_messages_in_order_and_none_twice(
    rocketmq: RocketMq, tmp_path: Path, flush: str
) -> None:
    put: list[Acknowledged] = []

    def write(process: StoreProcess) -> None:
        operations = Operations("live", seed=5, long_topics=rocketmq.is_five).take(1_500)
        put.extend(one for pair in process.put_all(operations) for one in acknowledged(*pair))

    with rocketmq.open(tmp_path / "store", SETTINGS | FLUSHES[flush]) as process:
        writing = threading.Thread(target=write, args=(process,))
        writing.start()
        with StoreReader.open(tmp_path / "store") as reader:
            live = LiveReader(reader)
            looks = 0
            while writing.is_alive():
                live.look()
                looks += 1
            writing.join()
            process.ask("describe")  # waits until everything is dispatched
            live.look()
        process.close()
    assert looks > 3
    assert live.bodies == {one.name: one.fields["bodySha256"] for one in put if one.in_queue}
