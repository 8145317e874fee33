"""Transactions of Python programs: all or nothing, exactly once, and the errors otherwise."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import BatchId, MessageStore, StoreReader
from commitlog_store.errors import InvalidValue, PutRefused, StoreClosed, TransactionEnded
from commitlog_store.paths import BATCH_TOPIC
from commitlog_store.transaction import Transaction
from tests.store.batch.batches import commit, expected, table
from tests.store.owner.owned_store import SYNC, open_store, put_ok
from tests.support.clean_store import assert_clean
from tests.support.stored_bodies import topic_bodies


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
    assert topic_bodies(tmp_path) == expected("loader1", "loader2", "loader5")
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
    assert topic_bodies(tmp_path) == expected("a", "b")


def test_an_exception_rolls_the_transaction_back(tmp_path: Path) -> None:
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
    assert topic_bodies(tmp_path) == expected("loader1")


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ({"body": [b"a", None]}, "row 1"),
        ({"body": [b"a", b"b" * 5000]}, "row 1.*5000"),
        ({"body": [b"a"], "queueId": pa.array([-1], pa.int32())}, "queueId is -1"),
        ({"body": [b"a"], "topic": ["not a topic"]}, "not a topic"),
        ({"body": [b"a"], "topic": [BATCH_TOPIC]}, "records its batches"),
    ],
)
def test_a_row_that_no_store_accepts_rolls_the_batch_back(tmp_path: Path, rows: dict[str, object], reason: str) -> None:
    def put(store: MessageStore) -> None:
        with store.transaction("loader", 1) as batch:
            batch.put_messages(table("good"), topic="orders")
            batch.put_messages(pa.table(rows), topic="orders")

    with open_store(tmp_path, max_message_size=4096) as store:
        with pytest.raises(PutRefused, match=reason):
            put(store)
        assert store.physical_bounds() == (0, 0)
    assert list((tmp_path / "staging").rglob("*")) == []


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
    found = topic_bodies(tmp_path)
    assert len(found) == 2 * 10 * 60 + 2 * 200
    for app in "ab":
        own = [body for body in found if body.startswith(app.encode())]
        wanted = expected(*(f"{app}{version}" for version in range(10)), count=60)
        assert own == wanted
    assert_clean(tmp_path)


def test_several_threads_put_into_one_transaction(tmp_path: Path) -> None:
    threads = 8
    with open_store(tmp_path) as store:
        for version in range(20):
            begun = threading.Barrier(threads)

            def put(batch: Transaction, name: str, begun: threading.Barrier = begun) -> None:
                begun.wait()
                batch.put_messages(table(name), topic="orders")

            with store.transaction("loader", version) as batch:
                putting = [threading.Thread(target=put, args=(batch, f"{version}-{part}")) for part in range(threads)]
                for thread in putting:
                    thread.start()
                for thread in putting:
                    thread.join()
            assert batch.result is not None
            assert batch.result.rows == 30 * threads
    wanted = expected(*(f"{version}-{part}" for version in range(20) for part in range(threads)))
    assert sorted(topic_bodies(tmp_path)) == sorted(wanted)
    assert_clean(tmp_path)


def test_a_put_that_comes_while_the_block_ends_is_in_the_batch_or_refused(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for version in range(20):
            with ThreadPoolExecutor(1) as threads:
                with store.transaction("loader", version) as batch:
                    batch.put_messages(table("early"), topic="orders")
                    late = threads.submit(batch.put_messages, table("late"), topic="orders")
                refused = late.exception()
            assert batch.result is not None
            assert batch.result.rows == (60 if refused is None else 30)
            assert refused is None or "has ended" in str(refused)
    assert_clean(tmp_path)


@pytest.mark.parametrize(
    ("app", "version", "fingerprint"),
    [
        *[("a" * 1025, 1, ""), ("a", -1, ""), ("a", 2**63, ""), ("a", 1, "f" * 1025), ("\ud800", 1, "")],
        *[("a", True, ""), (None, 1, ""), (5, 1, ""), (b"a", 1, ""), ("a", 1, None), ("", 1, "")],
    ],
)
def test_an_impossible_batch_is_refused(tmp_path: Path, app: Any, version: int, fingerprint: Any) -> None:
    with open_store(tmp_path) as store, pytest.raises(InvalidValue):
        store.transaction(app, version, fingerprint)


def test_a_closed_store_and_an_ended_transaction_reject_puts(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with store.transaction("loader", 1) as batch:
        batch.put_messages(table("a"), topic="orders")
    with pytest.raises(TransactionEnded, match="has ended"):
        batch.put_messages(table("b"), topic="orders")
    late = store.transaction("loader", 2)
    late.put_messages(table("b"), topic="orders")
    store.close()
    with pytest.raises(StoreClosed):
        late.__exit__(None, None, None)
    with pytest.raises(StoreClosed):
        store.transaction("loader", 3)
    assert topic_bodies(tmp_path) == expected("a")


def test_a_record_longer_than_a_file_rolls_the_batch_back(tmp_path: Path) -> None:
    def put(store: MessageStore) -> None:
        with store.transaction("loader", 1) as batch:
            batch.put_messages(pa.table({"body": [b"a", b"b" * 17_000]}), topic="orders")

    with open_store(tmp_path) as store:
        with pytest.raises(PutRefused, match="row 1"):
            put(store)
        assert commit(store, 1)
    assert topic_bodies(tmp_path) == expected("loader1")


def test_a_store_with_an_ipv6_host_commits_batches(tmp_path: Path) -> None:
    with open_store(tmp_path, broker_ip="::1") as store:
        assert commit(store, 1)
        assert not commit(store, 1)
    assert topic_bodies(tmp_path) == expected("loader1")
    assert_clean(tmp_path)


def test_a_transaction_of_which_a_put_failed_is_not_committed(tmp_path: Path) -> None:
    """A part of the refused table may have been staged."""

    def catch(store: MessageStore) -> None:
        with store.transaction("loader", 1) as batch:
            with pytest.raises(PutRefused):
                batch.put_messages(pa.table({"body": [b"x"] * 20_000 + [None]}), topic="orders")
            with pytest.raises(TransactionEnded, match="begin another one"):
                batch.put_messages(table("more"), topic="orders")

    with open_store(tmp_path, mapped_file_size_commit_log=16 << 20) as store:
        with pytest.raises(TransactionEnded, match="begin another one"):
            catch(store)
        assert store.physical_bounds() == (0, 0)
        assert commit(store, 1)
    assert topic_bodies(tmp_path) == expected("loader1")


def test_a_transaction_that_is_rolled_back_leaves_the_staged_files_of_others(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        mine = store.transaction("loader", 1)
        mine.put_messages(table("mine"), topic="orders")
        other = store.transaction("loader", 1)
        other.put_messages(table("other"), topic="orders")
        other.__exit__(KeyError, KeyError(), None)
        mine.__exit__(None, None, None)
    assert topic_bodies(tmp_path) == expected("mine")


def test_a_store_is_closed_while_the_interpreter_shuts_down(tmp_path: Path) -> None:
    program = f"""
import atexit
import logging
import pyarrow as pa
from commitlog_store import MessageStore
logging.disable(logging.WARNING)  # appends that a busy machine slows down
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
    assert topic_bodies(tmp_path) == [b"a", b"b", b"c"]
