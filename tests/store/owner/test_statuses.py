"""Each status of a put, reached by its cause; and a rejected put leaves no trace."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import Message, MessageStore, PutMessageStatus
from commitlog_store.engine.running_state import RunningFlags
from commitlog_store.errors import StoreClosed, StoreIOError
from commitlog_store.files import disk
from tests.store.owner.owned_store import SYNC, Gate, open_store, put_ok
from tests.support.stored_bodies import bodies
from tests.support.waiting import WAIT_LIMIT_S, wait_for

MESSAGE = Message(queue_id=0, topic="orders", body=b"x")
TABLE = pa.table({"body": [b"x", b"y"], "queueId": [0, 0]})


def _statuses(store: MessageStore) -> set[PutMessageStatus]:
    """What a single put, a batch and a table are answered."""
    results = [store.put_message(MESSAGE), store.put_message_batch([MESSAGE] * 2)]
    table = store.put_messages(TABLE, topic="orders")
    assert all(reason for reason in (table.reason, *(result.reason for result in results)))
    assert all(result.queue_offset == -1 for result in results)
    assert table.rows["queueOffset"].to_pylist() == [-1, -1]
    assert table.rows["status"].to_pylist() == [table.status.value] * 2
    return {table.status, *(result.status for result in results)}


def test_a_store_that_is_set_to_reject_puts_says_so_until_it_is_set_back(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.set_writable(False)
        assert (store.writable, store.flags) == (False, RunningFlags.NOT_WRITEABLE)
        assert _statuses(store) == {PutMessageStatus.SERVICE_NOT_AVAILABLE}
        store.set_writable(True)
        assert (store.writable, store.flags) == (True, RunningFlags(0))
        assert put_ok(store).queue_offset == 0


def test_a_closed_store_rejects_puts(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put_ok(store)
    store.close()
    for put in (store.put_message, lambda message: store.put_message_batch([message])):
        with pytest.raises(StoreClosed):
            put(Message(queue_id=0, topic="orders", body=b"late"))
    with pytest.raises(StoreClosed):
        store.put_messages(pa.table({"body": [b"late"]}), topic="orders")
    assert not store.writable
    with open_store(tmp_path) as again:
        assert put_ok(again).queue_offset == 1


def test_a_put_is_rejected_while_another_hangs_in_the_page_cache(tmp_path: Path, write_gate: Gate) -> None:
    with open_store(tmp_path, os_page_cache_busy_time_out=0) as store, ThreadPoolExecutor() as threads:
        write_gate.shut()
        hanging = threads.submit(put_ok, store)
        assert write_gate.reached.wait(WAIT_LIMIT_S)
        assert _statuses(store) == {PutMessageStatus.OS_PAGECACHE_BUSY}
        write_gate.open()
        assert hanging.result().queue_offset == 0
        assert put_ok(store).queue_offset == 1


def test_a_put_that_waits_for_a_slow_device_is_answered_in_time(tmp_path: Path, sync_gate: Gate) -> None:
    """The message is in the log all the same, and will be read once it is on the device."""
    with open_store(tmp_path, flush_disk_type=SYNC, sync_flush_timeout=1) as store, ThreadPoolExecutor() as threads:
        sync_gate.shut()
        first = threads.submit(store.put_message, Message(queue_id=0, topic="orders", body=b"first"))
        assert sync_gate.reached.wait(WAIT_LIMIT_S)
        result = store.put_message(Message(queue_id=0, topic="orders", body=b"second"))
        table = store.put_messages(TABLE, topic="orders")
        assert result.status is table.status is PutMessageStatus.FLUSH_DISK_TIMEOUT
        assert "sync_flush_timeout" in result.reason
        assert (result.queue_offset, table.rows["queueOffset"].to_pylist()) == (1, [2, 3])
        sync_gate.open()
        first.result()
        store.flush()
        assert bodies(store) == [b"first", b"second", b"x", b"y"]


def test_after_a_failed_sync_the_outcome_is_unknown_and_the_store_rejects_puts(tmp_path: Path, sync_gate: Gate) -> None:
    with open_store(tmp_path, flush_disk_type=SYNC) as store:
        put_ok(store, body=b"safe")
        flushed = store.flushed_where()
        sync_gate.fail()
        result = store.put_message(Message(queue_id=0, topic="orders", body=b"who knows"))
        assert result.status is PutMessageStatus.UNKNOWN_ERROR
        assert str(tmp_path / "commitlog") in result.reason
        sync_gate.failure = None  # that a later sync succeeds says nothing about the bytes of the failed one
        assert _statuses(store) == {PutMessageStatus.SERVICE_NOT_AVAILABLE}
        assert store.flushed_where() == flushed, "invariant 2: no flushed position moves"
        store.set_writable(True)
        assert not store.writable, "only opening it again finds out what is there"
    with open_store(tmp_path) as store:
        assert store.recovered is not None
        assert bodies(store) in ([b"safe"], [b"safe", b"who knows"])
        put_ok(store)


def test_after_a_failed_write_the_store_rejects_puts(tmp_path: Path, write_gate: Gate) -> None:
    with open_store(tmp_path) as store:
        put_ok(store, body=b"safe")
        write_gate.fail()
        assert store.put_message(MESSAGE).status is PutMessageStatus.UNKNOWN_ERROR
        write_gate.failure = None
        assert _statuses(store) == {PutMessageStatus.SERVICE_NOT_AVAILABLE}
    with open_store(tmp_path) as store:
        assert put_ok(store).queue_offset == 1


def test_a_disk_that_is_too_full_rejects_the_very_first_put(tmp_path: Path) -> None:
    """The sink opens a store and commits at once: that must not come before the first look at the disk."""
    for _ in range(30):
        with open_store(tmp_path, disk_space_warning_level_ratio=1e-6) as store:
            assert not store.writable


def test_a_put_to_a_log_file_that_another_program_truncated_is_answered(tmp_path: Path) -> None:
    """The store is halted; what is left of the file is for the next opening to judge."""
    with open_store(tmp_path) as store:
        put_ok(store)
    with open_store(tmp_path) as store:
        os.truncate(tmp_path / "commitlog" / f"{0:020d}", 100)
        _refused_as_truncated(store, b"x")


def test_a_put_to_the_next_log_file_is_answered_when_another_program_truncated_that(tmp_path: Path) -> None:
    following = tmp_path / "commitlog" / f"{1 << 14:020d}"
    with open_store(tmp_path) as store:
        put_ok(store, body=bytes(16_000))  # more than half of its file: the next one is made
        wait_for(following.exists)
        os.truncate(following, 100)
        _refused_as_truncated(store, bytes(1_000))


def _refused_as_truncated(store: MessageStore, body: bytes) -> None:
    result = store.put_message(Message(queue_id=0, topic="orders", body=body))
    assert result.status is PutMessageStatus.UNKNOWN_ERROR
    assert "truncated" in result.reason or "another size" in result.reason, result.reason
    assert result.queue_offset == -1
    assert _statuses(store) == {PutMessageStatus.SERVICE_NOT_AVAILABLE}


def test_rows_of_a_table_whose_sync_failed_are_unknown(tmp_path: Path, sync_gate: Gate) -> None:
    with open_store(tmp_path, flush_disk_type=SYNC) as store:
        sync_gate.fail()
        result = store.put_messages(TABLE, topic="orders")
        assert result.rows["status"].to_pylist() == ["UNKNOWN_ERROR"] * 2
        assert result.reason


def test_a_flush_that_fails_raises_and_fences(tmp_path: Path, sync_gate: Gate) -> None:
    with open_store(tmp_path, flush_interval_commit_log=60_000) as store:
        put_ok(store)
        sync_gate.fail()
        with pytest.raises(StoreIOError, match="commitlog"):
            store.flush()
        assert _statuses(store) == {PutMessageStatus.SERVICE_NOT_AVAILABLE}


def test_a_put_does_not_wait_for_a_new_file_that_takes_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the put after it finds the file that was being made."""
    allocate, may_go_on = disk.allocate, threading.Event()

    def slow(descriptor: int, offset: int, length: int) -> None:
        assert may_go_on.wait(WAIT_LIMIT_S)
        allocate(descriptor, offset, length)

    with open_store(tmp_path, put_message_timeout=20) as store:
        monkeypatch.setattr(disk, "allocate", slow)
        assert _statuses(store) == {PutMessageStatus.CREATE_MAPEDFILE_FAILED}
        may_go_on.set()
        wait_for(lambda: store.put_message(MESSAGE).ok)
        assert bodies(store) == [b"x"]


def test_statuses_of_replication_are_kept_for_it() -> None:
    assert {"FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"} <= {status.name for status in PutMessageStatus}
