"""Positions after the end of their queue, as a broker's crash leaves them: corrected before the queue grows again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from commitlog_store import MessageStore, MessageStoreConfig
from commitlog_store.errors import CorruptConfig
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from tests.support.store_builder import StoreBuilder

CONFIG = MessageStoreConfig(mapped_file_size_commit_log=1 << 20, disk_space_warning_level_ratio=1.0)
# As a broker left them; what it had consumed of "gone" is lost with all of that topic.
POSITIONS = {
    "orders@billing": {"0": 30, "1": 12, "7": 5},
    "orders@audit": {"0": 20},
    "gone@billing": {"0": 9},
    "%RETRY%billing@billing": {"0": 4},
    "no topic@billing": {"0": 99},
    "orders@no group": {"0": 99},
}
CORRECTED = {
    "orders@billing": {"0": 20, "1": 12, "7": 0},
    "orders@audit": {"0": 20},
    "gone@billing": {"0": 0},
    "%RETRY%billing@billing": {"0": 0},
    "no topic@billing": {"0": 99},
    "orders@no group": {"0": 99},
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """orders: queues 0 and 1 with 20 messages each; no mark of a clean end."""
    builder = StoreBuilder(tmp_path / "store")
    builder.append("orders", [0, 1], [b"x"] * 40)
    builder.write_abort()
    (builder.path / "config").mkdir(exist_ok=True)
    (builder.path / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": POSITIONS}))
    return builder.path


def positions(store: Path) -> dict[str, dict[str, int]]:
    table = ConsumerOffsets(str(store))._table
    return {key: {str(queue_id): offset for queue_id, offset in offsets.items()} for key, offsets in table.items()}


def test_opening_after_a_crash_moves_positions_to_the_ends_of_their_queues(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with MessageStore.open(store, CONFIG):
        assert positions(store) == CORRECTED, "they are on the device before the first put"
    said = [record.message for record in caplog.records if "continues at" in record.message]
    expected = (
        "Group 'billing' continues at 20, the end of queue 0 of topic 'orders': its position 30 is 10 after that, and "
        "at the end of 3 other queues. The store has lost messages, or positions were set too high."
    )
    assert said == [expected], "a line a group"


def test_queues_that_are_built_again_count_with_all_their_messages(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    with MessageStore.open(store, CONFIG):
        assert positions(store) == CORRECTED


def test_a_damaged_list_of_positions_does_not_keep_a_crashed_store_from_being_opened(store: Path) -> None:
    (store / "config" / "consumerOffset.json").write_text("{")
    with MessageStore.open(store, CONFIG) as opened, pytest.raises(CorruptConfig):
        opened.consumer("billing", "orders")


def test_a_group_gets_all_messages_that_are_put_after_the_crash(store: Path) -> None:
    with MessageStore.open(store, CONFIG) as opened:
        for topic, queue_id, count in [("orders", 0, 15), ("gone", 0, 12), ("orders", 7, 6)]:
            for number in range(count):
                opened.put(topic, b"%d" % number, queue_id=queue_id)
        opened.dispatch()
    with MessageStore.open(store, CONFIG) as opened, opened.consumer("billing", ["orders", "gone"]) as consumer:
        found = [(message.topic, message.queue_id) for message in consumer.poll(100)]
    # Without a correction at the opening, the queues have grown beyond the positions by now.
    assert found.count(("orders", 0)) == 15
    assert found.count(("gone", 0)) == 12
    assert found.count(("orders", 7)) == 6
    assert found.count(("orders", 1)) == 8


def test_a_consumer_corrects_its_groups_positions_when_it_starts(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    with MessageStore.open(store, CONFIG):
        pass
    caplog.clear()
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": POSITIONS}))
    with MessageStore.open(store, CONFIG) as opened:
        assert opened.recovered is None
        assert positions(store) == POSITIONS, "a clean end of this store leaves no wrong positions: nothing is read"
        with opened.consumer("audit", "orders"):
            pass
        assert "continues at" not in caplog.text
        with opened.consumer("billing", "orders"):
            opened.put("orders", b"new", queue_id=7)
            opened.dispatch()
    assert positions(store) == CORRECTED
    assert "its position 30 is 10 after that" in caplog.text


def test_setting_positions_corrects_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The messages before them may not be dispatched yet: the queue is then shorter, and nothing is lost."""
    with MessageStore.open(tmp_path / "store") as opened:
        after = {("orders", 0): 1}
        assert opened.commit_group_offsets("billing", after)
        assert opened.commit_group_offsets("billing", after, expected=after)
        assert "continues at" not in caplog.text
    assert positions(tmp_path / "store") == {"orders@billing": {"0": 1}}
