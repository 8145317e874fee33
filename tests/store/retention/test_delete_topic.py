"""Topics whose messages are all gone are deleted; others are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commitlog import MessageStore, StoreReader
from commitlog.config_files.consumer_offset import ConsumerOffsets
from commitlog.errors import InvalidValue, TopicInUse, TopicNotFound
from commitlog.recovery.start import StartKind
from commitlog.verify.store import verify_store
from tests.store.cli.commands import ended, run
from tests.store.retention.small_stores import SMALL, fill

__all__: list[str] = []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed store whose topic ``idle`` has lost all its messages, and ``orders`` only the first ones."""
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        store.create_topic("idle", 4)
        fill(store, 25, topic="idle")
        fill(store, 100)
        store.clean(max_bytes=30_000)
    (tmp_path / "store/config/consumerOffset.json").write_text(
        '{"offsetTable":{"idle@billing":{0:25},"orders@billing":{0:3}}}'
    )
    return tmp_path / "store"


@pytest.mark.parametrize("killed", [False, True])
def test_a_topic_whose_messages_are_gone_is_deleted_and_may_begin_again(path: Path, *, killed: bool) -> None:
    with MessageStore.open(path, SMALL) as store:
        assert store.expired_topics() == ["idle"]
        store.delete_topic("idle")
        assert store.reader().topics() == ["orders"]
        assert not (path / "consumequeue" / "idle").exists()
        assert "idle" not in json.loads((path / "config/topics.json").read_text())["topicConfigTable"]
        assert "idle@" not in (path / "config/consumerOffset.json").read_text()
        fill(store, 3, topic="idle")
        if killed:
            store._owned.abandon()
    with MessageStore.open(path, SMALL) as store:
        assert store._owned.log.start.kind is (StartKind.SCAN if killed else StartKind.CLEAN)
        (queue,) = store.reader().queues("idle")
        assert (queue.min_offset, queue.max_offset) == (0, 3)
    with MessageStore.open(path, SMALL, rebuild=True) as store:
        (queue,) = store.reader().queues("idle")
        assert (queue.min_offset, queue.max_offset) == (0, 3)
    assert not list(verify_store(path))


def test_positions_in_a_deleted_topic_stay_deleted_when_the_open_store_writes_its_positions(path: Path) -> None:
    with MessageStore.open(path, SMALL) as store:
        offsets = store._owned.consumer_offsets.offsets
        store.delete_topic("idle")
        offsets.commit("billing", {("orders", 0): 7})
    written = ConsumerOffsets(str(path))
    assert (written.topics("billing"), written.get("billing", "orders")) == (["orders"], {0: 7})


def test_a_deleted_topic_stays_deleted(path: Path) -> None:
    with MessageStore.open(path, SMALL) as store:
        store.delete_topic("idle")
    for rebuild in (False, True):
        with MessageStore.open(path, SMALL, rebuild=rebuild) as store:
            assert (store._owned.log.start.kind is StartKind.CLEAN) is not rebuild
            assert store.reader().topics() == ["orders"]


def test_a_topic_with_messages_is_refused(path: Path) -> None:
    with MessageStore.open(path, SMALL) as store:
        with pytest.raises(TopicInUse, match="has messages in the log"):
            store.delete_topic("orders")
        fill(store, 1, topic="idle")
        with pytest.raises(TopicInUse):
            store.delete_topic("idle")
        fill(store, 1)
    with StoreReader.open(path) as reader:
        assert reader.queues("idle")[0].max_offset == 26


def test_system_topics_and_unknown_ones_are_refused(path: Path) -> None:
    with MessageStore.open(path, SMALL) as store:
        for topic in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_commitlog_batch", "RMQ_SYS_TRANS_HALF_TOPIC"):
            with pytest.raises(InvalidValue, match="not deleted"):
                store.delete_topic(topic)
        with pytest.raises(TopicNotFound):
            store.delete_topic("nothing")


def test_the_command_deletes_what_is_named_or_all_that_is_expired(path: Path) -> None:
    done = ended("topics", "rm", path, "orders")
    assert done.returncode == 1
    assert "has messages in the log" in done.stderr
    assert ended("topics", "rm", path).returncode == 2
    assert run("topics", "rm", path, "--expired") == "Deleted idle.\n"
    assert run("topics", "rm", path, "--expired") == ""
