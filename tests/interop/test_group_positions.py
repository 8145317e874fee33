"""consumerOffset.json in turns: a broker's ConsumerOffsetManager and this package write and read one file."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import MessageStore, StoreReader, commit_group_offsets
from commitlog_store.config_files.json_file import decode_config
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.paths import POSITIONS_GROUP
from commitlog_store.testing import parts_of
from tests.interop.message_store_program import open_store
from tests.interop.rocketmq import RocketMqBroker, message_store_settings
from tests.interop.test_message_store_writes import SMALL

GROUPS = ("billing", "audit", "CID_nightly")
TOPICS = ("orders", "returns")
QUEUES = 3
MESSAGES = 60
TURNS = 16

# {"topic@group": {"queue id": position}}
Table = dict[str, dict[str, int]]


def ours(path: Path) -> MessageStore:
    return open_store(str(path), message_store_settings(SMALL))


def our_table(path: Path) -> Table:
    """What this package reads, without what only it uses."""
    return {
        f"{topic}@{group}": {str(queue_id): offset for queue_id, offset in sorted(positions.items())}
        for (group, topic), positions in ConsumerOffsets(str(path)).all().items()
        if group != POSITIONS_GROUP
    }


def their_table(broker: RocketMqBroker, path: Path) -> Table:
    """What a broker that starts now reads."""
    with broker.open(path) as process:
        found = process.ask("positions")["positions"]
    return {
        key: {queue_id: offsets[queue_id] for queue_id in sorted(offsets)}
        for key, offsets in sorted(found.items())
        if offsets and not key.endswith(f"@{POSITIONS_GROUP}")
    }


class Turns:
    """A store, and the positions that both programs must find in it."""

    def __init__(self, path: Path, broker: RocketMqBroker, seed: int) -> None:
        self.path = path
        self.expected: Table = {}
        self._broker = broker
        self._chance = random.Random(seed)
        self._version = 0
        with ours(path) as store:
            for topic in TOPICS:
                queue_ids = pa.array([number % QUEUES for number in range(MESSAGES * QUEUES)], pa.int32())
                bodies = [b"%d" % number for number in range(MESSAGES * QUEUES)]
                rows = pa.table({"queueId": queue_ids, "body": bodies})
                store.put_messages(rows, topic=topic).raise_for_status()

    def take(self) -> None:
        turn = self._chance.choice(
            [self._broker_commits, self._broker_is_killed, self._we_set_positions, self._we_consume, self._we_transact]
        )
        turn(self._chance.choice(GROUPS))
        ours, theirs = our_table(self.path), their_table(self._broker, self.path)
        assert ours == theirs == dict(sorted(self.expected.items())), turn.__name__

    def _positions(self) -> dict[tuple[str, int], int]:
        queues = [(topic, queue_id) for topic in TOPICS for queue_id in range(QUEUES)]
        return {
            queue: self._chance.randint(0, MESSAGES)
            for queue in self._chance.sample(queues, self._chance.randint(1, len(queues)))
        }

    def _note(self, group: str, positions: dict[tuple[str, int], int]) -> None:
        for (topic, queue_id), offset in positions.items():
            table = self.expected.setdefault(f"{topic}@{group}", {})
            table[str(queue_id)] = offset
            self.expected[f"{topic}@{group}"] = dict(sorted(table.items()))

    def _broker_commits(self, group: str) -> None:
        positions = self._positions()
        with self._broker.open(self.path) as process:
            process.ask("commit", positions=[[group, *queue, offset] for queue, offset in positions.items()])
            process.close()
        self._note(group, positions)

    def _broker_is_killed(self, group: str) -> None:
        """What it wrote last counts."""
        first, lost = self._positions(), self._positions()
        with self._broker.open(self.path) as process:
            process.ask("commit", positions=[[group, *queue, offset] for queue, offset in first.items()])
            process.ask("persist")
            process.ask("commit", positions=[[group, *queue, offset] for queue, offset in lost.items()])
            process.kill()
        self._note(group, first)

    def _we_set_positions(self, group: str) -> None:
        positions = self._positions()
        commit_group_offsets(self.path, group, positions)
        self._note(group, positions)

    def _we_consume(self, group: str) -> None:
        with ours(self.path) as store, store.consumer(group, TOPICS) as consumer:
            consumer.poll(self._chance.randint(1, 50))
            consumer.commit()
            moved = set(parts_of(store).groups.offsets.topics(group))
            positions = consumer.positions()
        # Queues of which nothing was polled have no position, or the one from before.
        self._note_moved(group, positions, moved)

    def _we_transact(self, group: str) -> None:
        self._version += 1
        with ours(self.path) as store, store.consumer(group, TOPICS) as consumer:
            with store.transaction("copies", self._version) as batch:
                consumer.poll(self._chance.randint(1, 50))
                consumer.commit(in_transaction=batch)
            positions = consumer.positions()
            moved = set(parts_of(store).groups.offsets.topics(group))
        self._note_moved(group, positions, moved)

    def _note_moved(self, group: str, positions: dict[tuple[str, int], int], topics: set[str]) -> None:
        written = ConsumerOffsets(str(self.path))
        for topic in topics:
            queue_ids = written.get(group, topic)
            self._note(group, {(topic, queue_id): positions[topic, queue_id] for queue_id in queue_ids})


@pytest.mark.parametrize("seed", [1, 2])
def test_both_programs_read_the_same_positions_after_every_turn(
    rocketmq_broker: RocketMqBroker, tmp_path: Path, seed: int
) -> None:
    turns = Turns(tmp_path / "store", rocketmq_broker, seed)
    for _ in range(TURNS):
        turns.take()
    assert len(turns.expected) == len(GROUPS) * len(TOPICS), "every group has had a turn"


def test_a_broker_that_its_machine_stopped_leaves_no_position_after_the_end(
    rocketmq_broker: RocketMqBroker, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    with ours(path) as store:
        for number in range(20):
            store.put("orders", b"%d" % number, queue_id=0)
    with rocketmq_broker.open(path) as process:
        process.ask("commit", positions=[["billing", "orders", 0, 35], ["audit", "orders", 0, 7]])
        process.close()
    (path / "abort").write_text("")
    with StoreReader.open(path) as reader:
        errors = {row.group: row.error for row in reader.groups()}
    assert errors["billing"].startswith("The position is 15 after the queue's end")
    assert errors["audit"] == ""
    with ours(path) as store:
        assert store.recovered is not None
    assert their_table(rocketmq_broker, path) == {"orders@audit": {"0": 7}, "orders@billing": {"0": 20}}


def test_members_that_only_this_package_writes_do_not_disturb_a_broker(
    rocketmq_broker: RocketMqBroker, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    with ours(path) as store:
        store.put("orders", b"x", queue_id=0)
    (path / "abort").write_text("")
    commit_group_offsets(path, "billing", {("orders", 0): 1})
    file = path / "config" / "consumerOffset.json"
    assert "commitlogSetPositions" in file.read_text()
    with rocketmq_broker.open(path) as process:
        process.ask("commit", positions=[["audit", "orders", 0, 1]])
        process.close()
    assert set(decode_config(file.read_bytes(), str(file), "")) <= {"dataVersion", "groupTopicMap", "offsetTable"}
    assert our_table(path) == {"orders@audit": {"0": 1}, "orders@billing": {"0": 1}}
