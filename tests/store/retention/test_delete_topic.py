"""Topics whose messages are all gone are deleted; others are refused, unless their messages are to go too."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from commitlog_store import Message, MessageStore, StoreReader
from commitlog_store.errors import CorruptConfig, InvalidValue, StoreIOError, TopicInUse, TopicNotFound
from commitlog_store.files import disk
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.recovery.start import StartKind
from commitlog_store.testing import kill, parts_of, start_of
from commitlog_store.verify.store import verify_store
from tests.store.cli.commands import ended, run
from tests.store.retention.small_stores import SMALL, Clock, fill, store_clock
from tests.support.clean_store import assert_clean
from tests.support.delayed import Deliverer, bodies_of, delayed


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
            kill(store)
    with MessageStore.open(path, SMALL) as store:
        assert start_of(store).kind is (StartKind.SCAN if killed else StartKind.CLEAN)
        (queue,) = store.reader().queues("idle")
        assert (queue.min_offset, queue.max_offset) == (0, 3)
    with MessageStore.open(path, SMALL, rebuild=True) as store:
        (queue,) = store.reader().queues("idle")
        assert (queue.min_offset, queue.max_offset) == (0, 3)
    assert not list(verify_store(path))


def test_positions_in_a_deleted_topic_stay_deleted_when_the_open_store_writes_its_positions(path: Path) -> None:
    with MessageStore.open(path, SMALL) as store:
        offsets = parts_of(store).groups.offsets
        store.delete_topic("idle")
        offsets.commit("billing", {("orders", 0): 7})
    written = ConsumerOffsets(str(path))
    assert (written.topics("billing"), written.get("billing", "orders")) == (["orders"], {0: 7})


def test_a_deleted_topic_stays_deleted(path: Path) -> None:
    with MessageStore.open(path, SMALL) as store:
        store.delete_topic("idle")
    for rebuild in (False, True):
        with MessageStore.open(path, SMALL, rebuild=rebuild) as store:
            assert (start_of(store).kind is StartKind.CLEAN) is not rebuild
            assert store.reader().topics() == ["orders"]


def test_a_topic_with_messages_is_refused(path: Path) -> None:
    with MessageStore.open(path, SMALL) as store:
        with pytest.raises(TopicInUse, match="it has messages in the log"):
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
    assert "it has messages in the log" in done.stderr
    assert ended("topics", "rm", path).returncode == 2
    shown = ended("topics", "rm", path, "--expired")
    assert (shown.returncode, shown.stderr) == (1, "commitlog: Nothing is changed without --yes.\n")
    assert shown.stdout == run("topics", "rm", path, "--expired", "--dry-run") == "It would delete:\nidle: 0 messages\n"
    assert run("topics", "rm", path, "--expired", "--yes") == "Deleted idle.\n"
    assert run("topics", "rm", path, "--expired") == "No topic to delete.\n"
    assert run("topics", "rm", path, "--expired", "--yes") == ""


def _bounds(path: Path, topic: str) -> tuple[int, int] | None:
    with StoreReader.open(path) as reader:
        if topic not in reader.topics():
            return None
        (queue,) = reader.queues(topic)
        return queue.min_offset, queue.max_offset


def _open(path: Path, *, rebuild: bool = False) -> StartKind:
    with MessageStore.open(path, SMALL, rebuild=rebuild) as store:
        return start_of(store).kind


def test_a_topic_is_deleted_with_its_messages_and_neither_a_crash_nor_a_rebuild_brings_it_back(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        fill(store, 20, topic="kept")
        first = fill_one(store, "orders")
        fill(store, 49)
        store.delete_topic("orders", with_messages=True)
        assert store.reader().topics() == ["kept"]
        assert not (tmp_path / "consumequeue" / "orders").exists()
        fill(store, 1, topic="kept")
        assert store.reader().message_at(first).topic == "orders", "the log still has it"
        store.flush()
        kill(store)
    for wishes, expected in (({}, StartKind.SCAN), ({}, StartKind.CLEAN), ({"rebuild": True}, StartKind.REBUILD)):
        assert _open(tmp_path, **wishes) is expected
        assert (_bounds(tmp_path, "orders"), _bounds(tmp_path, "kept")) == (None, (0, 21))
        assert_clean(tmp_path)


def fill_one(store: MessageStore, topic: str) -> int:
    result = store.put_message(Message(topic=topic, body=b"first", queue_id=0))
    result.raise_for_status()
    return result.physical_offset


@pytest.mark.parametrize("killed", [False, True])
def test_a_topic_that_was_deleted_with_its_messages_continues_its_offsets(tmp_path: Path, *, killed: bool) -> None:
    """Offsets that began again would be those of messages in the log: of two, a rebuild keeps one."""
    with MessageStore.open(tmp_path, SMALL) as store:
        fill(store, 33)
        store.delete_topic("orders", with_messages=True)
        fill(store, 4)
        assert _bounds(tmp_path, "orders") == (33, 37)
        if killed:
            store.flush()
            kill(store)
    for rebuild in (False, True):
        _open(tmp_path, rebuild=rebuild)
        assert _bounds(tmp_path, "orders") == (33, 37)
        assert_clean(tmp_path)
    with MessageStore.open(tmp_path, SMALL) as store:
        store.delete_topic("orders", with_messages=True)
        fill(store, 1)
    _open(tmp_path, rebuild=True)
    assert _bounds(tmp_path, "orders") == (37, 38)
    for name in ("deletedTopics.json", "deletedTopics.json.bak"):
        (tmp_path / "config" / name).unlink()
    _open(tmp_path, rebuild=True)
    assert _bounds(tmp_path, "orders") == (0, 38), "without the note the messages come back, and none is lost"
    assert_clean(tmp_path)


def test_a_kill_right_after_a_put_into_a_deleted_topic_loses_nothing(tmp_path: Path) -> None:
    """Its first unit did not reach a file, and the log is not read again from its start for that."""
    clock = Clock()
    with store_clock(clock), MessageStore.open(tmp_path, SMALL) as store:
        fill(store, 5, topic="kept")
        fill(store, 33)
        store.delete_topic("orders", with_messages=True)
        clock.now += 3600
        fill(store, 5, topic="kept")
        store.flush()
        fill_one(store, "orders")
        kill(store)
    shutil.rmtree(tmp_path / "consumequeue" / "orders", ignore_errors=True)
    with MessageStore.open(tmp_path, SMALL) as store:
        assert store.recovered is not None
        assert store.recovered.started_at > 0
    assert _bounds(tmp_path, "orders") == (33, 34)


def test_a_note_of_a_deletion_hides_no_message_that_comes_into_an_older_copy_of_the_log(tmp_path: Path) -> None:
    path, copy = tmp_path / "store", tmp_path / "copy"
    with MessageStore.open(path, SMALL) as store:
        fill(store, 10)
    shutil.copytree(path, copy)
    with MessageStore.open(path, SMALL) as store:
        fill(store, 30)
        store.delete_topic("orders", with_messages=True)
    shutil.copytree(path / "config", copy / "config", dirs_exist_ok=True)
    with MessageStore.open(copy, SMALL) as store:
        assert store.reader().topics() == []
        fill(store, 3)
    for rebuild in (False, True):
        _open(copy, rebuild=rebuild)
        assert _bounds(copy, "orders") == (0, 3)


def test_a_note_of_a_deletion_goes_with_the_last_message(tmp_path: Path) -> None:
    path = tmp_path / "config/deletedTopics.json"
    with MessageStore.open(tmp_path, SMALL) as store:
        fill(store, 33)
        store.delete_topic("orders", with_messages=True)
        assert json.loads(path.read_text())["topics"]["orders"]["ends"] == {"0": 33}
        fill(store, 60, topic="kept")
        store.clean(max_bytes=20_000)
        assert json.loads(path.read_text()) == {"topics": {}}
        fill(store, 2)
    assert _bounds(tmp_path, "orders") == (0, 2)
    assert _open(tmp_path, rebuild=True) is StartKind.REBUILD
    assert _bounds(tmp_path, "orders") == (0, 2)


def test_delayed_messages_for_a_topic_keep_it_or_go_with_it(tmp_path: Path) -> None:
    config = replace(SMALL, schedule_enable=False)
    with MessageStore.open(tmp_path, config) as store:
        store.put_message(delayed(b"waits")).raise_for_status()
        store.put_message(delayed(b"other", topic="kept")).raise_for_status()
        with pytest.raises(TopicInUse, match="1 delayed messages wait"):
            store.delete_topic("orders")
        fill(store, 1, topic="idle")
        assert store.expired_topics() == []
        store.delete_topic("orders", with_messages=True)
        store.put_message(delayed(b"new")).raise_for_status()
        Deliverer(store).everything()
        assert (bodies_of(store.path), bodies_of(store.path, "kept")) == ([b"new"], [b"other"])
        assert store.stats().delayed_skipped == 1
        store.delete_topic("orders", with_messages=True)


def test_a_topic_that_is_deleted_while_a_delivery_to_it_is_prepared_does_not_come_back(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, replace(SMALL, schedule_enable=False)) as store:
        store.put_message(delayed(b"waits")).raise_for_status()
        store.put_message(delayed(b"other", topic="kept")).raise_for_status()
        deliverer = Deliverer(store)
        deliverer.step()  # nothing is due yet: the next job appends the copies
        deliverer.before_job = lambda: store.delete_topic("orders", with_messages=True)
        deliverer.everything()
        assert (bodies_of(store.path), bodies_of(store.path, "kept")) == ([], [b"other"])


def test_a_topic_whose_delayed_messages_wait_is_not_expired(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, replace(SMALL, schedule_enable=False)) as store:
        fill(store, 30)
        store.put_message(delayed(b"waits")).raise_for_status()
        fill(store, 60, topic="kept")
        store.clean(max_bytes=0)
        assert _bounds(tmp_path, "orders") is not None
        assert store.expired_topics() == []


def test_an_error_in_the_middle_of_a_deletion_leaves_a_topic_that_the_next_call_deletes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        fill(store, 33)
        with monkeypatch.context() as patch:
            patch.setattr(disk, "unlink", _denied)
            with pytest.raises(StoreIOError, match="delete"):
                store.delete_topic("orders", with_messages=True)
        assert _bounds(tmp_path, "orders") == (0, 33)
        fill(store, 1)
        store.delete_topic("orders", with_messages=True)
        assert _bounds(tmp_path, "orders") is None
    assert_clean(tmp_path)


def _denied(path: str) -> None:
    raise PermissionError(13, "Permission denied", path)


def test_unused_topics_are_those_that_neither_the_list_nor_the_caller_names(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        store.create_topic("listed", 1)
        for topic in ("listed", "retained", "unused", "%LMQ%light"):
            fill(store, 2, topic=topic)
        fill(store, 1, properties={"DELAY": "18"}, topic="retained")
        for topic in ("retained", "unused"):
            parts_of(store).engine.topics.remove_topic(topic)
        with pytest.raises(InvalidValue, match="retain is a list"):
            store.clean_unused_topics("retained")
        assert store.clean_unused_topics(["retained"], dry_run=True) == ["unused"]
        assert "unused" in store.reader().topics()
        assert store.clean_unused_topics(["retained"]) == ["unused"]
        assert store.clean_unused_topics(["retained"]) == []
        assert store.reader().topics() == ["%LMQ%light", "SCHEDULE_TOPIC_XXXX", "listed", "retained"]


def test_the_command_shows_first_what_goes_with_messages(path: Path) -> None:
    shown = ended("topics", "rm", path, "orders", "--with-messages")
    assert (shown.returncode, shown.stderr) == (1, "commitlog: Nothing is changed without --yes.\n")
    assert shown.stdout.startswith("It would delete:\norders: ")
    assert "Group billing has not read 13 messages of them: orders 13." in shown.stdout
    nothing = "No topic to delete.\n"
    assert run("topics", "rm", path, "--unused", "--retain", "orders") == nothing
    assert run("topics", "rm", path, "--unused") == nothing, "a topic with messages is listed"
    (path / "config/topics.json").write_text('{"topicConfigTable":{"idle":{}}}')
    assert "orders: " in run("topics", "rm", path, "--unused", "--dry-run")
    assert _bounds(path, "orders") is not None
    assert ended("topics", "rm", path, "--unused", "--expired").returncode == 2
    assert ended("topics", "rm", path, "orders", "--retain", "x").returncode == 2
    assert run("topics", "rm", path, "--unused", "--yes") == "Deleted orders.\n"
    assert _bounds(path, "orders") is None


@pytest.mark.parametrize("content", ['{"topics":7}', '{"topics":{"a":{}}}', "[]", '{"topics":{"a":{"before":-1}}}'])
def test_a_damaged_note_of_deletions_refuses_the_opening_by_name(tmp_path: Path, content: str) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        fill(store, 1)
    (tmp_path / "config/deletedTopics.json").write_text(content)
    with pytest.raises(CorruptConfig, match="deletedTopics"):
        MessageStore.open(tmp_path, SMALL)
    assert [one.check for one in verify_store(tmp_path)] == ["config.file", "opening.refused"]
