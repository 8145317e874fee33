"""RocketMQ and MessageStore take turns on one store and deliver its delayed messages: each of these comes once."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from commitlog_store import StoreReader
from commitlog_store.delayed.levels import DelayOffsetFile
from tests.crash.stored_messages import log_records
from tests.interop.conftest import OpenMessageStore
from tests.interop.operations import message_of
from tests.interop.rocketmq import RocketMq
from tests.interop.store_process import StoreProcess
from tests.support.clean_store import assert_clean
from tests.support.waiting import wait_for

SETTINGS: dict[str, object] = {
    "mapped_file_size_commit_log": 64 << 10,
    "mapped_file_size_consume_queue": 20 * 20,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
    "message_delay_level": "1s 2s 1h",
    "schedule_enable": True,
}
LEVELS = (1, 2)
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
TURNS = 8


@dataclass
class _Turns:
    """A store, and the bodies of all messages that were put with each level, in order."""

    path: Path
    rocketmq: RocketMq
    open_message_store: OpenMessageStore
    seed: int
    put: dict[int, list[bytes]] = field(default_factory=lambda: {level: [] for level in LEVELS})

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def take(self, writer: str, *, waits: bool, kills: bool = False) -> None:
        """One puts messages, waits until all of them are delivered or not, and closes the store or is killed."""
        opens = self.rocketmq.open if writer == "RocketMQ" else self.open_message_store
        with opens(self.path, SETTINGS) as process:
            self._put(process)
            if waits:
                wait_for(lambda: not self._undelivered())
            if kills:
                process.kill()
            else:
                process.close()

    def _put(self, process: StoreProcess) -> None:
        operations = []
        for _ in range(self.chance.choice([1, 10, 40])):
            level = self.chance.choice(LEVELS)
            body = b"%d:%d" % (level, len(self.put[level]))
            self.put[level].append(body)
            operations.append({"kind": "message", "messages": [message_of(f"orders-{level}", body, level)]})
        for _, reply in process.put_all(operations):
            assert reply["status"] == "PUT_OK", reply

    def copies(self) -> Counter[bytes]:
        """How often each message was delivered so far, by the log."""
        if not (self.path / "commitlog").exists():
            return Counter()
        return Counter(one.body for one in log_records(self.path, recovered=False) if one.topic.startswith("orders"))

    def _undelivered(self) -> set[bytes]:
        return {body for bodies in self.put.values() for body in bodies} - set(self.copies())

    def check_once(self) -> None:
        """No message came twice; and what the file says was delivered is there."""
        copies = self.copies()
        assert not copies or set(copies.values()) == {1}, copies.most_common(3)
        for level, offset in DelayOffsetFile(str(self.path)).read().items():
            assert set(self.put.get(level, [])[:offset]) <= set(copies)

    def check_all(self) -> None:
        """Everything was delivered, in order, and the file says so as the last one who closed the store wrote it."""
        assert not self._undelivered()
        with StoreReader.open(self.path) as reader:
            ends = {level: reader.queue_info(SCHEDULE, level - 1).max_offset for level in LEVELS if self.put[level]}
            for level in ends:
                rows = [
                    body
                    for info in reader.queues(f"orders-{level}")
                    for batch in reader.read(f"orders-{level}", info.queue_id, 0, columns=["body"], verify_crc=True)
                    for body in batch["body"].to_pylist()
                ]
                assert rows == self.put[level]
        assert DelayOffsetFile(str(self.path)).read() == ends
        assert_clean(self.path)


@pytest.mark.parametrize("seed", [1, 2])
def test_both_deliver_in_turns_and_no_message_comes_twice(
    rocketmq: RocketMq, open_message_store: OpenMessageStore, tmp_path: Path, seed: int
) -> None:
    """A store that was killed is opened by this package next: only its ledger knows the last deliveries."""
    turns = _Turns(tmp_path / "store", rocketmq, open_message_store, seed)
    killed = False
    for _ in range(TURNS):
        writer = "MessageStore" if killed else turns.chance.choice(["RocketMQ", "MessageStore"])
        killed = writer == "MessageStore" and turns.chance.randrange(2) == 0
        turns.take(writer, waits=turns.chance.randrange(3) > 0, kills=killed)
        turns.check_once()
    # The last two deliver what each of them has put itself: what came before would come again before that.
    for writer in turns.chance.sample(["RocketMQ", "MessageStore"], 2) if not killed else ["MessageStore", "RocketMQ"]:
        turns.take(writer, waits=True)
        turns.check_once()
    turns.check_all()


def test_a_broker_that_is_killed_loses_no_message_and_repeats_only_its_own(
    rocketmq: RocketMq, open_message_store: OpenMessageStore, tmp_path: Path
) -> None:
    turns = _Turns(tmp_path / "store", rocketmq, open_message_store, seed=3)
    turns.take("MessageStore", waits=True)
    ours = set(turns.copies())
    turns.take("RocketMQ", waits=True, kills=True)
    turns.take("MessageStore", waits=True)
    assert all(turns.copies()[body] == 1 for body in ours)
    assert set(turns.copies().values()) <= {1, 2}
    turns.take("RocketMQ", waits=True)
    assert not turns._undelivered()
