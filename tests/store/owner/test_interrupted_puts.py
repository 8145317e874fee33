"""Puts that are interrupted half way, or meet an unexpected error: no acknowledged message is lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import Message, MessageStore, PutMessageStatus
from commitlog_store.columnar import message_table
from commitlog_store.columnar.encode import encode_messages
from commitlog_store.columnar.message_table import CHUNK_ROWS
from commitlog_store.engine.running_state import RunningFlags
from commitlog_store.errors import FileChanged, StoreIOError
from commitlog_store.files.mapped_file_queue_writer import MappedFileQueueWriter
from commitlog_store.files.mapped_file_writer import MappedFileWriter
from commitlog_store.queue.catalog import QueueCatalog
from tests.store.owner.owned_store import SYNC, Gate, open_store, put_ok
from tests.support.stored_bodies import bodies

TABLE = pa.table({"body": [b"x", b"y"], "queueId": [0, 0]})


def _put_one(store: MessageStore) -> object:
    return store.put_message(Message(queue_id=0, topic="orders", body=b"x"))


def _put_table(store: MessageStore) -> object:
    return store.put_messages(TABLE, topic="orders")


@pytest.mark.parametrize("put", [_put_one, _put_table])
@pytest.mark.parametrize("place", ["append", "appended"])
def test_after_an_interrupt_half_way_no_queue_offset_is_given_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: Callable[[MessageStore], object], place: str
) -> None:
    """The bytes are there and the offset is not taken: the next message would get the same, and never be read."""
    target: type = MappedFileWriter if place == "append" else MappedFileQueueWriter
    original = getattr(target, place)

    def interrupted(*arguments: Any, **options: Any) -> None:
        original(*arguments, **options)
        raise KeyboardInterrupt

    with open_store(tmp_path) as store:
        put_ok(store, body=b"before")
        with monkeypatch.context() as patch:
            patch.setattr(target, place, interrupted)
            with pytest.raises(KeyboardInterrupt):
                put(store)
        result = store.put_message(Message(queue_id=0, topic="orders", body=b"behind"))
        assert result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert "KeyboardInterrupt" in result.reason
        for refused in (store.flush, store.dispatch, lambda: store.wait_for_messages("orders", 0, 9)):
            with pytest.raises(StoreIOError, match=r"continue with .*KeyboardInterrupt"):
                refused()
    with open_store(tmp_path) as store:
        put_ok(store, body=b"behind")
        found = bodies(store)
        assert (found[0], found[-1]) == (b"before", b"behind")


def test_a_failed_store_says_so_whatever_its_settings(tmp_path: Path, sync_gate: Gate) -> None:
    with open_store(tmp_path, flush_disk_type=SYNC) as store:
        sync_gate.fail()
        assert not store.put_message(Message(queue_id=0, topic="orders", body=b"x")).ok
        for writable in (False, True):
            store.set_writable(writable)
            assert (store.writable, store.flags) == (False, RunningFlags.NOT_WRITEABLE)
        store.set_readable(False)
        store.set_readable(True)
        assert store.flags == RunningFlags.NOT_WRITEABLE


def test_a_filler_that_is_interrupted_is_not_written_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: MappedFileWriter) -> None:
        raise KeyboardInterrupt

    with open_store(tmp_path) as store:
        put_ok(store, body=bytes(16_000))
        with monkeypatch.context() as patch:
            patch.setattr(MappedFileWriter, "skip_to_end", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.put_message(Message(queue_id=0, topic="orders", body=bytes(1_000)))
        assert not store.put_message(Message(queue_id=0, topic="orders", body=b"x")).ok
    with open_store(tmp_path) as store:
        assert put_ok(store, body=b"x").queue_offset == 1


def test_an_interrupt_before_the_first_byte_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: MappedFileQueueWriter) -> MappedFileWriter:
        raise KeyboardInterrupt

    with open_store(tmp_path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(MappedFileQueueWriter, "writable", interrupted)
            with pytest.raises(KeyboardInterrupt):
                _put_one(store)
        assert put_ok(store).queue_offset == 0


def test_rows_that_are_in_the_log_keep_their_result_when_the_rest_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def failing(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise pa.ArrowInvalid("an unexpected error")
        return encode_messages(*arguments, **named)

    monkeypatch.setattr(message_table, "encode_messages", failing)
    count = CHUNK_ROWS + 1
    with open_store(tmp_path, flush_disk_type=SYNC, mapped_file_size_commit_log=4 << 20) as store:
        result = store.put_messages(pa.table({"body": [b"a"] * count, "queueId": [0] * count}), topic="orders")
        assert result.rows["status"].to_pylist() == [*["PUT_OK"] * CHUNK_ROWS, "UNKNOWN_ERROR"]
        assert "an unexpected error" in result.reason
        assert store.flushed_where() == store.physical_bounds()[1]
        assert put_ok(store).queue_offset == CHUNK_ROWS


def _as_link(queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.move(queue, queue.parent / "elsewhere")
    os.symlink(queue.parent / "elsewhere", queue)


def _changing(queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def changing(*_: object) -> tuple[int, int]:
        raise FileChanged(f"{queue} was removed while it was read.", path=str(queue))

    monkeypatch.setattr(QueueCatalog, "bounds", changing)


@pytest.mark.parametrize("damage", [_as_link, _changing])
def test_a_queue_whose_next_offset_is_unknown_rejects_puts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path, pytest.MonkeyPatch], None]
) -> None:
    """Nothing was written, so the store continues with its other queues."""
    with open_store(tmp_path) as store:
        put_ok(store)
    with open_store(tmp_path) as store:
        damage(tmp_path / "consumequeue" / "orders" / "0", monkeypatch)
        message, end = Message(queue_id=0, topic="orders", body=b"x"), store.physical_bounds()
        single, batch = store.put_message(message), store.put_message_batch([message])
        table = store.put_messages(TABLE, topic="orders")
        assert {single.status, batch.status, table.status} == {PutMessageStatus.SERVICE_NOT_AVAILABLE}
        assert all("orders" in reason for reason in (single.reason, batch.reason, table.reason))
        assert store.physical_bounds() == end
        assert put_ok(store, topic="bills").queue_offset == 0
