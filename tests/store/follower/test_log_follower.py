"""A mirror of a store of this package: its bytes, its messages, restarts on both sides."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import BatchId, Message, MessageStore, StoreReader, verify_store
from commitlog_store.errors import LogDiverged, PutRefused, ReplicaStore
from tests.store.follower.mirrors import assert_identical, follow, master_of
from tests.store.owner.owned_store import all_messages, open_store, put_ok, small
from tests.support.waiting import WAIT_LIMIT_S, wait_for


def _fill(store: MessageStore, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        put_ok(store, body=b"%d " % number * 40, queue_id=number % 3, keys=[f"k{number}"])


def _mirrored(master: Path, mirror: Path) -> None:
    """The mirror has the master's messages, and is a sound store."""
    with StoreReader.open(master) as ours, StoreReader.open(mirror) as theirs:
        assert all_messages(theirs) == all_messages(ours)
        assert theirs.query("orders", "k5") == ours.query("orders", "k5")
    assert not list(verify_store(mirror))


@pytest.mark.parametrize("ack", ["none", "received", "synced"])
def test_a_mirror_has_the_masters_bytes_and_messages(tmp_path: Path, ack: str) -> None:
    with master_of(tmp_path / "master") as master:
        _fill(master, 300)
        with follow(master, tmp_path / "mirror", ack=ack) as follower:
            assert_identical(master, follower)
            _fill(master, 200, first=300)
            master.put_messages(pa.table({"topic": ["bulk"] * 500, "body": [b"x" * 100] * 500})).raise_for_status()
            assert_identical(master, follower)
            wait_for(lambda: follower.status.caught_up)
            assert follower.status.lag_bytes == 0
        master.dispatch()
    _mirrored(tmp_path / "master", tmp_path / "mirror")


def test_a_mirror_continues_after_restarts_of_either_side(tmp_path: Path) -> None:
    for turn in range(3):
        with master_of(tmp_path / "master") as master:
            _fill(master, 60, first=turn * 200)
            with follow(master, tmp_path / "mirror") as follower:
                _fill(master, 60, first=turn * 200 + 60)
                assert_identical(master, follower)
            _fill(master, 60, first=turn * 200 + 120)
            with follow(master, tmp_path / "mirror") as follower:
                assert_identical(master, follower)
    _mirrored(tmp_path / "master", tmp_path / "mirror")


def test_a_follower_connects_again_when_its_master_is_back(tmp_path: Path) -> None:
    with master_of(tmp_path / "master") as master:
        address = master.ha_address
        _fill(master, 50)
        with follow(master, tmp_path / "mirror") as follower:
            assert_identical(master, follower)
            master.close()
            wait_for(lambda: not follower.status.connected)
            with master_of(tmp_path / "master", ha_listen_address=address) as again:
                _fill(again, 50, first=50)
                assert_identical(again, follower)
                assert follower.status.error == ""


def test_a_batch_is_whole_in_the_mirror(tmp_path: Path) -> None:
    """Over several files, with a file's end and other messages before and after it."""
    table = pa.table({"topic": ["batch"] * 900, "body": [b"%d" % number * 20 for number in range(900)]})
    with master_of(tmp_path / "master") as master:
        _fill(master, 20)
        with follow(master, tmp_path / "mirror") as follower:
            with master.transaction("app", version=1) as transaction:
                transaction.put_messages(table)
            _fill(master, 20, first=20)
            assert_identical(master, follower)
        master.dispatch()
    _mirrored(tmp_path / "master", tmp_path / "mirror")
    with open_store(tmp_path / "master") as master:
        assert [one.batch for one in master.batches()] == [BatchId("app", 1)]


def test_a_mirror_begins_at_the_masters_last_file(tmp_path: Path) -> None:
    with master_of(tmp_path / "master") as master:
        _fill(master, 300)
        end = master.physical_bounds()[1]
        with follow(master, tmp_path / "mirror", start="latest") as follower:
            assert follower.wait_for(end, timeout_s=WAIT_LIMIT_S)
            _fill(master, 100, first=300)
            end = master.physical_bounds()[1]
            assert follower.wait_for(end, timeout_s=WAIT_LIMIT_S)
    assert not [one for one in verify_store(tmp_path / "mirror") if one.severity == "error"]
    with StoreReader.open(tmp_path / "mirror") as mirror, StoreReader.open(tmp_path / "master") as whole:
        for queue in mirror.queues("orders"):
            assert queue.max_offset == whole.queue_info("orders", queue.queue_id).max_offset
            assert queue.min_offset > 0


def test_a_mirror_takes_no_other_messages(tmp_path: Path) -> None:
    with master_of(tmp_path / "master") as master:
        _fill(master, 10)
        with follow(master, tmp_path / "mirror") as follower:
            assert_identical(master, follower)
    with pytest.raises(ReplicaStore, match="commitlog promote"):
        MessageStore.open(tmp_path / "mirror", small())
    with MessageStore.open(tmp_path / "mirror", small(broker_role="SLAVE")) as mirror:
        with pytest.raises(PutRefused, match="is a replica"):
            mirror.put("orders", b"x")
        with pytest.raises(PutRefused, match="is a replica"):
            mirror.consumer("g", "orders")
        with pytest.raises(PutRefused, match="is a replica"), mirror.transaction("a", version=1) as transaction:
            transaction.put_messages(pa.table({"topic": ["a"], "body": [b"x"]}))
        assert mirror.put_message(Message(topic="orders", body=b"x")).status.value == "SERVICE_NOT_AVAILABLE"


def test_another_masters_log_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with master_of(tmp_path / "master") as master, follow(master, tmp_path / "mirror") as follower:
        _fill(master, 100)
        assert_identical(master, follower)
    with master_of(tmp_path / "other") as other:
        _fill(other, 200, first=7)
        with follow(other, tmp_path / "mirror") as follower:
            before = follower.status.end
            with pytest.raises(LogDiverged, match="does not continue the mirror"):
                follower.wait_for(before + 1, timeout_s=WAIT_LIMIT_S)
            assert follower.status.end == before
    with StoreReader.open(tmp_path / "master") as ours, StoreReader.open(tmp_path / "mirror") as theirs:
        assert all_messages(theirs) == all_messages(ours)


def test_a_store_that_is_no_mirror_is_not_marked_before_its_log_was_compared(tmp_path: Path) -> None:
    """A wrong directory must stay a store that takes messages."""
    with open_store(tmp_path / "own") as own:
        _fill(own, 20)
    with master_of(tmp_path / "master") as master:
        _fill(master, 50, first=500)
        with follow(master, tmp_path / "own") as follower, pytest.raises(LogDiverged):
            follower.wait_for(follower.status.end + 1, timeout_s=WAIT_LIMIT_S)
    with open_store(tmp_path / "own") as own:
        _fill(own, 1)


def test_a_copy_of_the_masters_files_becomes_a_mirror(tmp_path: Path) -> None:
    with open_store(tmp_path / "master") as master:
        _fill(master, 20)
    shutil.copytree(tmp_path / "master", tmp_path / "copy")
    with master_of(tmp_path / "master") as master:
        _fill(master, 20, first=20)
        with follow(master, tmp_path / "copy") as follower:
            assert_identical(master, follower)
    with pytest.raises(ReplicaStore):
        open_store(tmp_path / "copy")


def test_a_master_restored_from_an_older_copy_is_refused_with_both_ends(tmp_path: Path) -> None:
    with master_of(tmp_path / "master") as master:
        _fill(master, 20)
        older = master.physical_bounds()[1]
    shutil.copytree(tmp_path / "master", tmp_path / "older")
    with master_of(tmp_path / "master") as master, follow(master, tmp_path / "mirror") as follower:
        _fill(master, 80, first=20)
        assert_identical(master, follower)
        end = follower.status.end
    with master_of(tmp_path / "older") as restored, follow(restored, tmp_path / "mirror") as follower:
        with pytest.raises(
            LogDiverged, match=f"ends at physical offset {end}: at {older}, the master's log ends"
        ) as told:
            follower.wait_for(end + 1, timeout_s=WAIT_LIMIT_S)
        assert told.value.offset == older
        assert "--reset" in str(told.value)
        assert follower.status.end == end
        assert restored.physical_bounds()[1] == older
    with StoreReader.open(tmp_path / "master") as ours, StoreReader.open(tmp_path / "mirror") as theirs:
        assert all_messages(theirs) == all_messages(ours)


@pytest.mark.parametrize("kept", [0, 1, 99])
def test_a_master_that_lost_its_end_is_refused(tmp_path: Path, kept: int) -> None:
    """All of it, up to the mirror's first record, or up to its last one: the end of the log answers each time."""
    with master_of(tmp_path / "master") as master, follow(master, tmp_path / "mirror") as follower:
        _fill(master, 100)
        assert_identical(master, follower)
        end = follower.status.end
    with open_store(tmp_path / "shorter") as shorter:
        _fill(shorter, kept)
    with (
        master_of(tmp_path / "shorter", ha_send_heartbeat_interval=50) as master,
        follow(master, tmp_path / "mirror") as follower,
        pytest.raises(LogDiverged, match=f"ends at physical offset {end}: at "),
    ):
        follower.wait_for(end + 1, timeout_s=WAIT_LIMIT_S)
