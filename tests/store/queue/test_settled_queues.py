"""``settled_state``: equal ones mean that no queue has changed in between."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.paths import SETTLED
from commitlog_store.queue.settled_queues import SettledFile, settled_turn
from commitlog_store.testing import parts_of

CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=20 * 50, schedule_enable=False
)


def put(store: MessageStore, topic: str = "orders") -> None:
    store.put_message(Message(topic=topic, body=b"body", queue_id=0)).raise_for_status()


def settled(store: MessageStore, reader: StoreReader) -> object | None:
    """The state once the store has dispatched everything."""
    store.dispatch()
    parts_of(store).engine.reput.settle()
    return reader.settled_state()


def test_the_state_stays_until_a_message_is_dispatched(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        put(store)
        with StoreReader.open(tmp_path / "store") as reader:
            before = settled(store, reader)
            assert before is not None
            assert reader.settled_state() == before
            put(store)
            assert reader.settled_state() != before
            after = settled(store, reader)
            assert after not in (None, before)


def test_a_store_that_was_closed_is_settled(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        put(store)
    with StoreReader.open(tmp_path / "store") as reader:
        before = reader.settled_state()
        assert before is not None
        with MessageStore.open(tmp_path / "store", CONFIG):
            assert reader.settled_state() != before
        assert reader.settled_state() not in (None, before)


def test_a_killed_owner_leaves_no_settled_state_of_queues_that_it_was_changing(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        put(store)
        with StoreReader.open(tmp_path / "store") as reader:
            assert settled(store, reader) is not None
            parts_of(store).engine.log.queues._unsettle()
            assert settled_turn(str(tmp_path / "store")) is None
            assert reader.settled_state() is None


def test_a_deleted_topic_is_another_state(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        put(store, "orders")
        put(store, "other")
        with StoreReader.open(tmp_path / "store") as reader:
            before = settled(store, reader)
            store.delete_topic("other", with_messages=True)
            assert settled(store, reader) not in (None, before)


def test_a_copy_of_a_store_has_no_settled_state(tmp_path: Path) -> None:
    """Its queues may be copied after the file, and the next copy of them would go unseen."""
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        put(store)
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    with StoreReader.open(tmp_path / "copy") as reader:
        assert reader.settled_state() is None
    with MessageStore.open(tmp_path / "copy", CONFIG):
        pass
    with StoreReader.open(tmp_path / "copy") as reader:
        assert reader.settled_state() is not None


def test_messages_that_a_broker_appends_to_the_log_unsettle_the_store(tmp_path: Path) -> None:
    """A broker does not know the file."""
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        put(store)
        end = store.physical_bounds()[1]
    with StoreReader.open(tmp_path / "store") as reader:
        assert reader.settled_state() is not None
        with (tmp_path / "store" / "commitlog" / f"{0:020d}").open("r+b") as log:
            log.seek(end)
            log.write(b"\0\0\0\x60\xda\xa3\x20\xa7")
        assert reader.settled_state() is None


def test_a_checkpoint_that_a_broker_has_written_unsettles_the_store(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        put(store)
    with (tmp_path / "store" / "checkpoint").open("r+b") as checkpoint:
        checkpoint.write(b"\0\0\0\0\0\0\0\x01")
    with StoreReader.open(tmp_path / "store") as reader:
        assert reader.settled_state() is None


@pytest.mark.parametrize("content", [b"", b"x", bytes(36), b"PYST" + bytes(32)])
def test_a_damaged_file_says_nothing_and_the_next_owner_continues(content: bytes, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        put(store)
    (tmp_path / "store" / SETTLED).write_bytes(content)
    assert settled_turn(str(tmp_path / "store")) is None
    with MessageStore.open(tmp_path / "store", CONFIG):
        pass
    assert settled_turn(str(tmp_path / "store")) is not None


def test_each_owner_begins_with_another_turn(tmp_path: Path) -> None:
    seen = set()
    for _ in range(3):
        file = SettledFile(str(tmp_path))
        assert settled_turn(str(tmp_path)) is None
        file.settle(100)
        seen.add(settled_turn(str(tmp_path)))
        file.close()
    assert len(seen) == 3
    assert None not in seen
