"""Transactions of Python programs: all or nothing, once, and what is said when it cannot be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog import BatchId, MessageStore, StoreReader
from commitlog.errors import (
    BatchConflict,
    CorruptConfig,
    CorruptStaging,
    InvalidValue,
    PutRefused,
    StagingLost,
    StoreClosed,
    StoreIOError,
)
from commitlog.log.staging import StagedWriter
from commitlog.paths import BATCH_TOPIC
from tests.store.owner.owned_store import SYNC, open_store, put_ok
from tests.support.clean_store import assert_clean

__all__: list[str] = []


def table(name: str, count: int = 30) -> pa.Table:
    """Rows for three queues; each body says which batch and row it is."""
    bodies = pa.array([f"{name}-{row}".encode() * 20 for row in range(count)], pa.binary())
    return pa.table({"body": bodies, "queueId": pa.array([row % 3 for row in range(count)], pa.int32())})


def commit(store: MessageStore, version: int, *, app: str = "loader", fingerprint: str = "", count: int = 30) -> bool:
    """Commit a batch; whether it was written now."""
    with store.transaction(app, version, fingerprint) as batch:
        batch.put_messages(table(f"{app}{version}{fingerprint}", count), topic="orders")
    assert batch.result is not None
    return not batch.result.already_there


def bodies(path: Path) -> list[bytes]:
    """Bodies of all queues, queue by queue."""
    with StoreReader.open(path) as reader:
        queues = [queue for queue in reader.queues("orders") if queue.max_offset]
        batches = [one for queue in queues for one in reader.read("orders", queue.queue_id, 0, verify_crc=True)]
        return [body for one in batches for body in one["body"].to_pylist()]


def expected(*names: str, count: int = 30) -> list[bytes]:
    rows = [(row % 3, f"{name}-{row}".encode() * 20) for name in names for row in range(count)]
    return [body for queue in range(3) for at, body in rows if at == queue]


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("settings", [{}, {"flush_disk_type": SYNC}, {"transient_store_pool_enable": True}])
def test_a_version_is_written_once(tmp_path: Path, settings: dict[str, object], reopened: bool) -> None:
    store = open_store(tmp_path, **settings)
    for version in (1, 1, 2, 2, 1, 5, 2, 5):
        if reopened:
            store.close()
            store = open_store(tmp_path, **settings)
        commit(store, version)
    store.close()
    assert bodies(tmp_path) == expected("loader1", "loader2", "loader5")
    assert_clean(tmp_path)


def test_the_result_says_where_the_batch_is(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        with store.transaction("loader", 7, "f1") as batch:
            before: object = batch.result
            assert (batch.already_there, before) == (False, None)
            batch.put_messages(table("a"), topic="orders")
            batch.put_messages(table("b"), topic="orders")
        first = batch.result
        assert first is not None
        assert (first.batch, first.rows, first.already_there) == (BatchId("loader", 7, "f1"), 60, False)
        assert (first.physical_offset, first.end) == store.physical_bounds()
        with store.transaction("loader", 7, "f1") as again:
            assert again.already_there
            again.put_messages(table("a"), topic="orders")
        assert again.result is not None
        assert (again.result.physical_offset, again.result.rows) == (first.physical_offset, 60)
        assert store.batches() == [first]
    with StoreReader.open(tmp_path) as reader:
        assert reader.batches() == [first]
        frame = reader.message_at(first.physical_offset)
        assert (frame.topic, frame.queue_id) == (BATCH_TOPIC, 0)
    assert bodies(tmp_path) == expected("a", "b")


def test_an_exception_gives_everything_up(tmp_path: Path) -> None:
    def fail(store: MessageStore) -> None:
        with store.transaction("loader", 1) as batch:
            batch.put_messages(table("lost"), topic="orders")
            raise KeyError("the application's own")

    with open_store(tmp_path) as store:
        end = store.physical_bounds()[1]
        with pytest.raises(KeyError):
            fail(store)
        assert store.physical_bounds()[1] == end
        assert list((tmp_path / "staging").rglob("*")) == []
        assert commit(store, 1)
    assert bodies(tmp_path) == expected("loader1")


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ({"body": [b"a", None]}, "row 1"),
        ({"body": [b"a", b"b" * 5000]}, "row 1.*5000"),
        ({"body": [b"a"], "queueId": pa.array([-1], pa.int32())}, "queueId is -1"),
        ({"body": [b"a"], "topic": ["not a topic"]}, "not a topic"),
        ({"body": [b"a"], "topic": [BATCH_TOPIC]}, "notes its batches"),
    ],
)
def test_a_row_that_no_store_takes_gives_up_the_batch(tmp_path: Path, rows: dict[str, object], reason: str) -> None:
    def put(store: MessageStore) -> None:
        with store.transaction("loader", 1) as batch:
            batch.put_messages(table("good"), topic="orders")
            batch.put_messages(pa.table(rows), topic="orders")

    with open_store(tmp_path, max_message_size=4096) as store:
        with pytest.raises(PutRefused, match=reason):
            put(store)
        assert store.physical_bounds() == (0, 0)
    assert list((tmp_path / "staging").rglob("*")) == []


def test_the_same_version_with_other_contents_is_a_conflict(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for version in (1, 2, 3):
            assert commit(store, version, fingerprint=f"f{version}")
        for version in (1, 2, 3):
            assert not commit(store, version, fingerprint=f"f{version}"), "replayed"
            with pytest.raises(
                BatchConflict, match=f"batch {version} of 'loader'.*last batch in this store is 3"
            ) as error:
                commit(store, version, fingerprint="other")
            assert (error.value.app_id, error.value.version, error.value.committed) == ("loader", version, 3)
            assert "commitlog txn reset" in str(error.value)
        with pytest.raises(BatchConflict, match="not among the frames"):
            commit(store, 0, fingerprint="f0")
        assert not commit(store, 0), "without a fingerprint, what is below the last version counts as there"
        assert commit(store, 1, app="another"), "versions belong to an application"
    assert_clean(tmp_path)


def test_a_forgotten_application_begins_anew(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        commit(store, 9)
        assert store.forget_batches("nobody") is None
        forgotten = store.forget_batches("loader")
        assert forgotten is not None
        assert forgotten.batch.version == 9
    with open_store(tmp_path) as store:
        assert store.batches() == []
        assert commit(store, 1)
        assert [one.batch.version for one in store.batches()] == [1]
    assert bodies(tmp_path) == expected("loader9", "loader1")


def test_an_empty_batch_writes_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        with store.transaction("loader", 1) as batch:
            batch.put_messages(table("none", 0), topic="orders")
        assert batch.result is not None
        assert (batch.result.rows, batch.result.physical_offset) == (0, -1)
        with store.transaction("loader", 2) as batch:
            pass
        assert store.physical_bounds() == (0, 0)
        assert commit(store, 1)


def test_the_ledger_is_built_from_the_log_when_its_file_is_gone(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for app, version in (("a", 1), ("b", 4), ("a", 2)):
            commit(store, version, app=app)
        known = store.batches()
    ledger = tmp_path / "config" / "batchLedger.json"
    whole = ledger.read_bytes()
    for left in (b"", whole[: len(whole) // 2], b'{"version": 99}', b"\xff"):
        ledger.write_bytes(left)
        with pytest.raises(CorruptConfig, match=r"ledger of batches.*batchLedger.json"), open_store(tmp_path) as store:
            store.batches()
    ledger.unlink()
    with open_store(tmp_path) as store:
        assert store.batches() == known
        assert not commit(store, 2, app="a")
    with StoreReader.open(tmp_path) as reader:
        assert reader.batches() == known


def test_the_ledger_remembers_applications_whose_frames_are_gone(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        commit(store, 3, app="idle", fingerprint="f")
        for version in range(20):
            commit(store, version)
    for path in sorted((tmp_path / "commitlog").iterdir())[:2]:
        path.unlink()
    with open_store(tmp_path) as store:
        assert {one.batch.app_id for one in store.batches()} == {"idle", "loader"}
        assert not commit(store, 3, app="idle", fingerprint="f")
        with pytest.raises(BatchConflict):
            commit(store, 3, app="idle", fingerprint="g")
        assert commit(store, 4, app="idle")


def test_a_ledger_that_is_ahead_of_its_log_does_not_hide_what_is_missing(tmp_path: Path) -> None:
    """The log was restored from a copy, its config directory was not."""
    with open_store(tmp_path) as store:
        commit(store, 1)
    copy = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.parent.name != "config"}
    with open_store(tmp_path) as store:
        commit(store, 2)
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.parent.name != "config":
            path.write_bytes(copy[path]) if path in copy else path.unlink()
    with open_store(tmp_path) as store:
        assert commit(store, 2), "it is not in the log"
    assert bodies(tmp_path) == expected("loader1", "loader2")


def test_the_file_says_up_to_which_frame_it_speaks(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for version in range(3):
            commit(store, version)
    content = json.loads((tmp_path / "config" / "batchLedger.json").read_text())
    assert (content["version"], content["queueOffset"]) == (1, 3)
    assert content["batches"]["loader"]["version"] == 2


def test_batches_and_single_puts_of_many_threads_stand_side_by_side(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:

        def batches(app: str) -> None:
            for version in range(10):
                commit(store, version, app=app, count=60)

        def singles() -> None:
            for number in range(200):
                put_ok(store, body=b"single%d" % number, queue_id=number % 3)

        threads = [threading.Thread(target=batches, args=(app,)) for app in "ab"]
        threads += [threading.Thread(target=singles) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = bodies(tmp_path)
    assert len(found) == 2 * 10 * 60 + 2 * 200
    for app in "ab":
        own = [body for body in found if body.startswith(app.encode())]
        wanted = expected(*(f"{app}{version}" for version in range(10)), count=60)
        assert own == wanted
    assert_clean(tmp_path)


def test_staged_files_that_are_gone_or_changed_commit_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        batch = BatchId("loader", 1)
        encoded = list(store._bulk.encoded(table("a"), "orders"))

        def stage() -> tuple[Path, object]:
            with StagedWriter(str(tmp_path), batch) as writer:
                for one in encoded:
                    writer.append(one)
                staged = writer.finish()
            return tmp_path / staged.path, staged

        path, gone = stage()
        path.unlink()
        with pytest.raises(StagingLost, match=str(path)):
            store.commit_batch(batch, [gone])  # type: ignore[list-item]
        path, changed = stage()
        data = bytearray(path.read_bytes())
        for at in range(0, len(data), 97):
            data[at] ^= 0x40
            path.write_bytes(data)
            with pytest.raises(CorruptStaging, match="Block"):
                store.commit_batch(batch, [changed])  # type: ignore[list-item]
            data[at] ^= 0x40
        path.write_bytes(data[:-1])
        with pytest.raises(CorruptStaging, match="Size"):
            store.commit_batch(batch, [changed])  # type: ignore[list-item]
        assert store.physical_bounds()[1] == 0
        path.write_bytes(data)
        assert store.commit_batch(batch, [changed]).rows == 30  # type: ignore[list-item]
        assert not path.exists(), "what was staged is removed"
    assert bodies(tmp_path) == expected("a")


def test_what_was_staged_by_a_program_that_died_is_removed_by_the_next_commit(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for version in (1, 2, 3):
            StagedWriter(str(tmp_path), BatchId("loader", version), "orphan")
        StagedWriter(str(tmp_path), BatchId("another", 1), "alive")
        commit(store, 2)
    left = {str(path.relative_to(tmp_path / "staging").parent) for path in (tmp_path / "staging").rglob("*-*")}
    assert left == {"loader/3", "another/1"}


@pytest.mark.parametrize("app", ["", ".", "..", "../../etc", "a/b", "a b", "ä" * 100, "x" * 600])
def test_an_application_may_have_any_name_and_stays_in_the_staging_area(tmp_path: Path, app: str) -> None:
    with open_store(tmp_path / "store") as store:
        if not app:
            with pytest.raises(InvalidValue, match="application"):
                store.transaction(app, 1)
            return
        assert commit(store, 1, app=app)
        assert not commit(store, 1, app=app)
    assert os.listdir(tmp_path) == ["store"]


@pytest.mark.parametrize(
    ("app", "version", "fingerprint"),
    [("a" * 1025, 1, ""), ("a", -1, ""), ("a", 2**63, ""), ("a", 1, "f" * 1025), ("\ud800", 1, ""), ("a", True, "")],
)
def test_what_can_be_no_batch_is_refused(tmp_path: Path, app: str, version: int, fingerprint: str) -> None:
    with open_store(tmp_path) as store, pytest.raises(InvalidValue):
        store.transaction(app, version, fingerprint)


def test_a_closed_store_and_an_ended_transaction_take_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with store.transaction("loader", 1) as batch:
        batch.put_messages(table("a"), topic="orders")
    with pytest.raises(InvalidValue, match="has ended"):
        batch.put_messages(table("b"), topic="orders")
    late = store.transaction("loader", 2)
    late.put_messages(table("b"), topic="orders")
    store.close()
    with pytest.raises(StoreClosed):
        late.__exit__(None, None, None)
    with pytest.raises(StoreClosed):
        store.transaction("loader", 3)
    assert bodies(tmp_path) == expected("a")


def test_a_record_longer_than_a_file_gives_up_the_batch(tmp_path: Path) -> None:
    def put(store: MessageStore) -> None:
        with store.transaction("loader", 1) as batch:
            batch.put_messages(pa.table({"body": [b"a", b"b" * 17_000]}), topic="orders")

    with open_store(tmp_path) as store:
        with pytest.raises(PutRefused, match="row 1"):
            put(store)
        assert commit(store, 1)
    assert bodies(tmp_path) == expected("loader1")


def test_hosts_of_ipv6_do(tmp_path: Path) -> None:
    with open_store(tmp_path, broker_ip="::1") as store:
        assert commit(store, 1)
        assert not commit(store, 1)
    assert bodies(tmp_path) == expected("loader1")
    assert_clean(tmp_path)


def test_nothing_is_removed_through_a_symbolic_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "3").mkdir(parents=True)
    kept = [outside / "file", outside / "3" / "file"]
    for path in kept:
        path.write_bytes(b"keep me")
    with open_store(tmp_path / "store") as store:
        staging = tmp_path / "store" / "staging"
        (staging / "loader").mkdir(parents=True)
        (staging / "loader" / "3").symlink_to(outside)
        (staging / "another").symlink_to(outside)
        assert commit(store, 4)
        with pytest.raises(StoreIOError, match="symbolic link"):
            commit(store, 3, app="another")
        store.commit_batch(BatchId("another", 5), [])
    assert all(path.exists() for path in kept)


def test_a_transaction_of_which_a_put_failed_is_not_committed(tmp_path: Path) -> None:
    """A part of the refused table may have been staged."""

    def catch(store: MessageStore) -> None:
        with store.transaction("loader", 1) as batch:
            with pytest.raises(PutRefused):
                batch.put_messages(pa.table({"body": [b"x"] * 20_000 + [None]}), topic="orders")
            with pytest.raises(InvalidValue, match="begin another one"):
                batch.put_messages(table("more"), topic="orders")

    with open_store(tmp_path, mapped_file_size_commit_log=16 << 20) as store:
        with pytest.raises(InvalidValue, match="begin another one"):
            catch(store)
        assert store.physical_bounds() == (0, 0)
        assert commit(store, 1)
    assert bodies(tmp_path) == expected("loader1")


def test_a_transaction_that_is_given_up_leaves_what_others_staged(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        mine = store.transaction("loader", 1)
        mine.put_messages(table("mine"), topic="orders")
        other = store.transaction("loader", 1)
        other.put_messages(table("other"), topic="orders")
        other.__exit__(KeyError, KeyError(), None)
        mine.__exit__(None, None, None)
    assert bodies(tmp_path) == expected("mine")


def test_batches_of_no_application_leave_no_more_to_read_than_others(tmp_path: Path) -> None:
    for _ in range(3):
        with open_store(tmp_path) as store:
            for _ in range(30):
                with StagedWriter(str(tmp_path), BatchId("")) as writer:
                    for one in store._bulk.encoded(table("a", 3), "orders"):
                        writer.append(one)
                    store.commit_batch(BatchId(""), [writer.finish()])
            assert store.batches() == []
    content = json.loads((tmp_path / "config" / "batchLedger.json").read_text())
    assert content["queueOffset"] == 90


def test_a_store_is_closed_while_the_interpreter_shuts_down(tmp_path: Path) -> None:
    program = f"""
import atexit
import pyarrow as pa
from commitlog import MessageStore
store = MessageStore.open({str(tmp_path)!r})

@atexit.register
def end():
    with store.transaction("late", 1) as batch:
        batch.put_messages(pa.table({{"body": ["a", "b", "c"], "queueId": [0, 1, 2]}}), topic="orders")
    store.close()
"""
    ran = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert not (tmp_path / "abort").exists()
    assert bodies(tmp_path) == [b"a", b"b", b"c"]
