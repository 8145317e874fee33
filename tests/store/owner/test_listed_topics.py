"""Each topic with messages is listed in ``config/topics.json``, or a broker that takes the store over offers none."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import BatchId, BatchStager, BrokerRole, Message, MessageExtBrokerInner, MessageStore, StoreReader
from commitlog_store.errors import PutRefused
from commitlog_store.files import disk
from commitlog_store.queue.topic_config import TopicConfig
from commitlog_store.testing import kill, parts_of
from tests.store.owner.owned_store import open_store, put_ok
from tests.support.delayed import Deliverer, bodies_of, delayed

LIST = "config/topics.json"


def listed(path: Path) -> dict[str, tuple[int, int, int]]:
    """Each topic's queues to write to, queues to read, and perm."""
    table = json.loads((path / LIST).read_text())["topicConfigTable"]
    return {name: (one["writeQueueNums"], one["readQueueNums"], one["perm"]) for name, one in table.items()}


def version(path: Path) -> int:
    return int(json.loads((path / LIST).read_text())["dataVersion"]["counter"])


def _staged(store: MessageStore) -> None:
    batch = BatchId("app", 1)
    with BatchStager(store.path, batch, queue_counts={}, topic="orders") as stager:
        stager.put([{"body": b"x"}])
        staged = stager.finish()
    assert staged is not None
    store.commit_batch(batch, [staged])


def _transaction(store: MessageStore) -> None:
    with store.transaction("app", 1) as batch:
        batch.put_messages([{"body": b"x"}], topic="orders")


def _committed_half(store: MessageStore) -> None:
    store.half_messages.commit(store.half_messages.prepare(Message(topic="orders", body=b"x"), "group"))


PUTS: dict[str, Callable[[MessageStore], object]] = {
    "put": lambda store: store.put("orders", b"x"),
    "put_message": lambda store: store.put_message(Message(topic="orders", body=b"x")).raise_for_status(),
    "batch": lambda store: store.put_message_batch([Message(topic="orders", body=b"x")]).raise_for_status(),
    "broker's": lambda store: store.put_message(MessageExtBrokerInner(topic="orders", body=b"x")).raise_for_status(),
    "table": lambda store: store.put_messages([{"body": b"x"}], topic="orders").raise_for_status(),
    "delayed": lambda store: store.put("orders", b"x", delay=18),
    "delayed rows": lambda store: store.put_messages([{"body": b"x", "delayLevel": 18}], topic="orders"),
    "transaction": _transaction,
    "staged": _staged,
    "half": lambda store: store.half_messages.prepare(Message(topic="orders", body=b"x"), "group"),
    "committed half": _committed_half,
}


@pytest.mark.parametrize("put", PUTS.values(), ids=PUTS.keys())
def test_a_topic_is_listed_before_its_first_message_and_no_later_one_writes_the_list(
    tmp_path: Path, put: Callable[[MessageStore], object]
) -> None:
    with open_store(tmp_path, default_topic_queue_nums=4) as store:
        put(store)
        assert listed(tmp_path) == {"orders": (4, 4, 6)}
        before = (tmp_path / LIST).read_bytes()
        store.put("orders", b"y")
        store.put("orders", b"y", queue_id=3, delay=18)
        store.put_messages([{"body": b"y"}] * 9, topic="orders").raise_for_status()
        kill(store)
    assert (tmp_path / LIST).read_bytes() == before
    assert version(tmp_path) == 1


def test_a_topic_is_listed_on_the_device_before_the_log_has_its_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = disk.sync_directory

    with open_store(tmp_path) as store:
        put_ok(store, "known")

        def noted(path: str) -> None:
            if Path(path).name == "config":
                ends.append(store.physical_bounds()[1])
            sync(path)

        ends = [store.physical_bounds()[1]]
        monkeypatch.setattr(disk, "sync_directory", noted)
        put_ok(store, "orders")
        assert ends[1:] == ends[:1]


def test_a_list_that_may_not_be_on_the_device_is_written_again_before_the_next_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = disk.sync_directory

    def fail(path: str) -> None:
        if Path(path).name == "config":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        sync(path)  # of the queues, which dispatch makes at the same time

    with open_store(tmp_path) as store:
        put_ok(store, "known")
        with monkeypatch.context() as patch:
            patch.setattr(disk, "sync_directory", fail)
            with pytest.raises(PutRefused, match="cannot be listed"):
                store.put("orders", b"x", queue_id=0)
        assert (set(listed(tmp_path)), version(tmp_path)) == ({"known", "orders"}, 2)
        put_ok(store, "orders")
        assert version(tmp_path) == 3
        put_ok(store, "orders", queue_id=1)
        assert version(tmp_path) == 3


def test_a_list_that_found_no_space_holds_up_no_listed_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it was written. A delivery, after which retention frees space, needs no change of the list."""
    write = disk.write_at

    def no_space(descriptor: int, data: bytes, offset: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{descriptor}")).parent.name == "config":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(descriptor, data, offset)

    with open_store(tmp_path, schedule_enable=False) as store:
        put_ok(store, "orders")
        store.put_message(delayed(b"late")).raise_for_status()
        store.dispatch()
        with monkeypatch.context() as patch:
            patch.setattr(disk, "write_at", no_space)
            with pytest.raises(PutRefused, match="cannot be listed"):
                store.put("new", b"x", queue_id=0)
            store.put_messages([{"body": b"y"}], topic="orders").raise_for_status()
            Deliverer(store).everything()
        assert version(tmp_path) == 1
        store.dispatch()
        assert b"late" in bodies_of(store.path, "orders")


@pytest.mark.parametrize("by", ["put", "table", "delayed", "transaction"])
def test_a_queue_beyond_those_to_read_raises_their_number(tmp_path: Path, by: str) -> None:
    """RocketMQ refuses it ("request queueId[9] is illegal"); here it is accepted, and consumers look there."""
    with open_store(tmp_path, default_topic_queue_nums=4, schedule_enable=False) as store:
        store.create_topic("orders", 4)
        if by == "put":
            store.put("orders", b"x", queue_id=9)
        elif by == "table":
            store.put_messages([{"body": b"x", "queueId": 9}, {"body": b"x"}], topic="orders").raise_for_status()
        elif by == "transaction":
            with store.transaction("app", 1) as batch:
                batch.put_messages([{"body": b"x", "queueId": 9}], topic="orders")
        else:
            store.put("orders", b"x", queue_id=9, delay=1)
        assert listed(tmp_path)["orders"] == (4, 10, 6)


def test_a_delivery_lists_its_topic(tmp_path: Path) -> None:
    """The topic was taken off the list since the message was put."""
    with open_store(tmp_path, schedule_enable=False) as store:
        store.put_message(delayed(b"x", queue_id=9)).raise_for_status()
        parts_of(store).engine.topics.remove_topic("orders")
        Deliverer(store).everything()
        assert listed(tmp_path) == {"orders": (10, 10, 6)}


def test_a_new_topic_has_queues_enough_for_its_first_messages(tmp_path: Path) -> None:
    with open_store(tmp_path, default_topic_queue_nums=4) as store:
        store.put("orders", b"x", queue_id=9)
        store.put("far", b"x", queue_id=1_000_000)
        store.put("%RETRY%billing", b"x")
        store.put_messages([{"topic": "rows", "body": b"x", "queueId": 5}, {"topic": "rows", "body": b"x"}])
    found = {name: counts[:2] for name, counts in listed(tmp_path).items()}
    assert found == {"orders": (10, 10), "far": (4, 4), "%RETRY%billing": (1, 1), "rows": (4, 6)}


def test_topics_of_the_store_and_of_brokers_are_not_listed(tmp_path: Path) -> None:
    """A broker lists its own when it starts; ours must not be offered to clients."""
    with open_store(tmp_path) as store:
        store.put("orders", b"x", delay=1)
        _committed_half(store)
        _transaction(store)
        put_ok(store, "%LMQ%light")
        store.dispatch()
        assert len(store.reader().topics()) > 2
    assert set(listed(tmp_path)) == {"orders"}


def test_ten_thousand_new_topics_are_one_write(tmp_path: Path) -> None:
    names = [f"topic-{number}" for number in range(10_000)]
    topics = TopicConfig(str(tmp_path), 4)
    for _ in range(2):
        topics.list_queues((name, 0) for name in names)
        assert (version(tmp_path), len(listed(tmp_path))) == (1, 10_000)


def test_rows_that_are_refused_list_nothing(tmp_path: Path) -> None:
    rows = [
        {"topic": "large", "body": bytes(5 << 20)},
        {"topic": "no topic", "body": b""},
        {"topic": "a", "body": b"x"},
    ]
    with open_store(tmp_path) as store:
        assert store.put_messages(rows).message_num == 1
    assert set(listed(tmp_path)) == {"a"}


def test_a_topic_that_was_deleted_is_listed_again_with_its_next_message(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for number in range(2):
            put_ok(store)
            store.put_messages([{"body": b"x"}], topic="orders").raise_for_status()
            assert "orders" in listed(tmp_path), number
            store.delete_topic("orders", with_messages=True)
            assert "orders" not in listed(tmp_path)


def test_a_topic_that_is_deleted_between_its_listing_and_its_message_is_listed_again(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store)
        writer, list_queues = parts_of(store).engine.log.writer, parts_of(store).engine.topics.list_queues
        looks: list[bool] = []

        def list_and_delete(queues: Iterable[tuple[str, int]]) -> None:
            list_queues(queues)
            if not looks:
                deleting = threading.Thread(target=lambda: store.delete_topic("orders", with_messages=True))
                deleting.start()
                deleting.join()
            looks.append("orders" in listed(tmp_path))

        writer._list_queues = list_and_delete
        put_ok(store, queue_id=1)
        assert looks == [False, True]
        store.dispatch()
        assert store.reader().queue_ids("orders") == [1]


def _forget_list(path: Path) -> None:
    """Only some topics are listed from then on."""
    (path / LIST).write_text('{"topicConfigTable":{"listed":{"writeQueueNums":2,"readQueueNums":2,"perm":6}}}')
    (path / f"{LIST}.bak").unlink(missing_ok=True)


def _filled(path: Path) -> None:
    with open_store(path, default_topic_queue_nums=4) as store:
        for topic, queue_id in (("listed", 0), ("listed", 6), ("wide", 8), ("orders", 0)):
            put_ok(store, topic, queue_id=queue_id)
        store.put("orders", b"x", delay=18)
        _transaction(store)


def test_a_list_that_is_removed_from_an_open_store_is_written_again(tmp_path: Path) -> None:
    """Else it would have only the topics that are new since, and no broker would offer the others."""
    with open_store(tmp_path) as store:
        for topic in ("orders", "bills"):
            put_ok(store, topic)
        store.create_topic("rest", 3)
        put_ok(store, "rest")
        before = listed(tmp_path)
        for name in (LIST, f"{LIST}.bak"):
            (tmp_path / name).unlink()
        put_ok(store, "orders")
        assert store.clean_unused_topics([], dry_run=True) == []
        store.delete_topic("bills", with_messages=True)
        put_ok(store, "new")
        store.put("keyed", b"x", sharding_key="key")
    after = listed(tmp_path)
    assert set(after) == {"orders", "rest", "new", "keyed"}
    assert {topic: after[topic] for topic in ("orders", "rest")} == {
        topic: before[topic] for topic in ("orders", "rest")
    }


def test_a_topic_that_is_deleted_while_the_list_is_missing_is_unknown_from_then_on(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store, "orders")
        put_ok(store, "full")
        store.create_topic("empty", 7, perm=4)
        for name in (LIST, f"{LIST}.bak"):
            (tmp_path / name).unlink()
        topics = parts_of(store).engine.topics
        for topic in ("full", "empty"):
            store.delete_topic(topic, with_messages=True)
            assert topics.settings(topic) is None
            assert topic not in topics.listed()
        assert set(listed(tmp_path)) == {"orders"}
        put_ok(store, "empty")


def test_a_list_that_is_removed_does_not_become_that_of_its_older_backup(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.create_topic("orders", 3)
        put_ok(store, "orders")
        put_ok(store, "newest")
        (tmp_path / LIST).unlink()
        assert store.clean_unused_topics([], dry_run=True) == []
        put_ok(store, "orders")
        put_ok(store, "later")
    assert set(listed(tmp_path)) == {"orders", "newest", "later"}


def test_a_list_that_is_written_again_has_a_flag_that_brokers_can_read(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store, "orders")
    content = json.loads((tmp_path / LIST).read_text())
    content["topicConfigTable"]["orders"]["topicSysFlag"] = "1"
    (tmp_path / LIST).write_text(json.dumps(content))
    with open_store(tmp_path) as store:
        put_ok(store, "orders")
        (tmp_path / LIST).unlink()
        put_ok(store, "later")
    assert json.loads((tmp_path / LIST).read_text())["topicConfigTable"]["orders"]["topicSysFlag"] == 0


@pytest.mark.parametrize("of_broker", [True, False])
def test_opening_a_store_leaves_its_list_alone_unless_it_is_missing(tmp_path: Path, of_broker: bool) -> None:
    _filled(tmp_path)
    _forget_list(tmp_path)
    if of_broker:
        (tmp_path / "config/createdBy.json").unlink()
    before = (tmp_path / LIST).read_bytes()
    with open_store(tmp_path) as store:
        assert (tmp_path / LIST).read_bytes() == before
        assert store.clean_unused_topics([], dry_run=True) == ["orders", "wide"]
    (tmp_path / LIST).unlink()
    with StoreReader.open(tmp_path):
        assert not (tmp_path / LIST).exists(), "readers write nothing"
    with open_store(tmp_path, default_topic_queue_nums=4):
        assert listed(tmp_path) == {"listed": (7, 7, 6), "wide": (9, 9, 6), "orders": (4, 4, 6)}
        assert version(tmp_path) == 1


def test_a_list_that_cannot_be_written_does_not_keep_a_store_from_being_opened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _filled(tmp_path)
    for name in (LIST, f"{LIST}.bak"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / LIST).symlink_to(tmp_path / "elsewhere")
    with open_store(tmp_path), StoreReader.open(tmp_path) as reader:
        assert reader.queue_info("wide", 8).max_offset == 1
    assert "brokers do not offer them" in caplog.text


def test_a_replica_lists_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path, broker_role=BrokerRole.SLAVE) as store:
        for put in PUTS.values():
            try:
                put(store)
            except PutRefused:
                continue
    assert not (tmp_path / LIST).exists()


def test_the_entry_has_all_that_a_broker_writes(tmp_path: Path, golden_broker_config: Path) -> None:
    brokers = json.loads((golden_broker_config / "topics.json").read_text())
    with open_store(tmp_path, default_topic_queue_nums=4) as store:
        store.put("lab_topic", b"x")
        store.put_messages(pa.table({"body": [b"x"]}), topic="other").raise_for_status()
    ours = json.loads((tmp_path / LIST).read_text())
    assert ours["topicConfigTable"]["lab_topic"] == brokers["topicConfigTable"]["lab_topic"]
    assert ours["dataVersion"].keys() == brokers["dataVersion"].keys()
    assert ours["dataVersion"]["counter"] == 2
