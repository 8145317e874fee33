"""Promotion of a mirror: a store of its own, in a new epoch, without anything that is not whole."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import MessageStore, StoreReader, commit_group_offsets
from commitlog_store.errors import InvalidValue, LogDiverged, ReplicaStore, StoreLocked
from commitlog_store.follower.promote import promote
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.replication.replica_mark import ReplicaMark, read_mark, write_mark
from commitlog_store.testing import kill
from tests.store.cli.commands import ended, plain
from tests.store.follower.mirrors import assert_identical, follow, master_of
from tests.store.owner.owned_store import all_messages, open_store, put_ok, small
from tests.support.waiting import WAIT_LIMIT_S


def _mirror(tmp_path: Path) -> None:
    with master_of(tmp_path / "master") as master, follow(master, tmp_path / "mirror") as follower:
        for number in range(50):
            put_ok(master, body=b"%d" % number)
        with master.transaction("app", version=3) as transaction:
            transaction.put_messages(pa.table({"topic": ["batch"] * 10, "body": [b"x"] * 10}))
        assert_identical(master, follower)


def test_a_promoted_mirror_has_everything_and_takes_messages(tmp_path: Path) -> None:
    _mirror(tmp_path)
    found = promote(tmp_path / "mirror")
    assert (found.epoch, found.recovered) == (1, None)
    with StoreReader.open(tmp_path / "master") as old, StoreReader.open(tmp_path / "mirror") as new:
        before = all_messages(old)
        after = all_messages(new)
        assert {queue: after[queue] for queue in before if not queue[0].startswith("rmq_sys")} == {
            queue: before[queue] for queue in before if not queue[0].startswith("rmq_sys")
        }
    with open_store(tmp_path / "mirror") as store:
        assert put_ok(store, body=b"new").queue_offset == 50
        with store.transaction("app", version=3) as transaction:
            assert transaction.already_there, "the ledger came along"
        assert [one.batch.app_id for one in store.batches()] == ["app"], "epochs are the store's own"


def test_groups_that_were_ahead_of_the_mirror_get_all_messages_after_the_promotion(tmp_path: Path) -> None:
    _mirror(tmp_path)
    # As it is copied from a broker while the log is behind.
    (tmp_path / "mirror" / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@billing":{0:70}}}')
    promote(tmp_path / "mirror")
    with open_store(tmp_path / "mirror") as store:
        for number in range(30):
            put_ok(store, body=b"%d" % number)
        store.dispatch()
        with store.consumer("billing", "orders") as consumer:
            assert [message.queue_offset for message in consumer.poll(100)] == list(range(50, 80))


def test_groups_get_all_messages_of_an_old_master_that_is_promoted_after_a_crash(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store)
        kill(store)
    (tmp_path / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@billing":{0:70}}}')
    write_mark(str(tmp_path), ReplicaMark("superseded", "10.0.0.5:10912", 1))
    assert promote(tmp_path).recovered is not None
    assert ConsumerOffsets(str(tmp_path)).get("billing", "orders") == {0: 1}


def test_only_a_promoted_mirror_takes_positions_and_topics(tmp_path: Path) -> None:
    """The next round of copying would replace them by the master's."""
    _mirror(tmp_path)
    with pytest.raises(ReplicaStore):
        commit_group_offsets(tmp_path / "mirror", "billing", {("orders", 0): 1})
    done = ended("topics", "create", tmp_path / "mirror", "returns", "--queues", "2")
    assert done.returncode == 2
    assert "is a mirror of the store at" in plain(done.stderr)
    promote(tmp_path / "mirror")
    commit_group_offsets(tmp_path / "mirror", "billing", {("orders", 0): 1})


def test_a_mirror_is_promoted_once(tmp_path: Path) -> None:
    _mirror(tmp_path)
    promote(tmp_path / "mirror")
    with pytest.raises(InvalidValue, match="is not a mirror"):
        promote(tmp_path / "mirror")


def test_a_store_that_is_not_a_mirror_is_not_promoted(tmp_path: Path) -> None:
    open_store(tmp_path / "store").close()
    with pytest.raises(InvalidValue, match="is not a mirror"):
        promote(tmp_path / "store")


def test_a_promotion_that_fails_leaves_a_mirror(tmp_path: Path) -> None:
    _mirror(tmp_path)
    with follow("127.0.0.1:1", tmp_path / "mirror"), pytest.raises(StoreLocked):
        promote(tmp_path / "mirror")
    with pytest.raises(ReplicaStore):
        MessageStore.open(tmp_path / "mirror", small())


def test_the_old_masters_log_parts_from_the_promoted_one(tmp_path: Path) -> None:
    """Neither follows the other when both have gone on."""
    _mirror(tmp_path)
    promote(tmp_path / "mirror")
    with open_store(tmp_path / "master") as master:
        put_ok(master, body=b"written by the old master")
    mark = read_mark(str(tmp_path / "mirror"))
    assert mark is not None
    assert mark.state == "promoted"
    with master_of(tmp_path / "mirror") as promoted:
        put_ok(promoted, body=b"written by the new one")
        with (
            follow(promoted, tmp_path / "master") as follower,
            pytest.raises(LogDiverged, match="has other bytes"),
        ):
            follower.wait_for(follower.status.end + 1, timeout_s=WAIT_LIMIT_S)
