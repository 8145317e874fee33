"""``commitlog_store.testing``: what it does to a store, and shows of one."""

from __future__ import annotations

import threading
from pathlib import Path

from commitlog_store import MessageStore, testing
from commitlog_store.recovery.start import StartKind
from tests.store.owner.owned_store import open_store, put_ok, rows
from tests.support.waiting import wait_for


def test_a_killed_store_is_recovered_and_has_all_that_was_written(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    put_ok(store, body=b"a")
    testing.kill(store)
    assert "closed" in repr(store)
    with open_store(tmp_path / "store") as store:
        assert testing.start_of(store).kind is StartKind.SCAN
        assert store.recovered is not None
        assert [row["body"] for row in rows(store)] == [b"a"]
    with open_store(tmp_path / "store") as store:
        assert testing.start_of(store).kind is StartKind.CLEAN


def test_calls_that_wait_for_messages_are_counted(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        assert testing.waiting_calls(store) == 0
        thread = threading.Thread(target=store.wait_for_messages, args=("orders", 0, 0))
        thread.start()
        wait_for(lambda: testing.waiting_calls(store) == 1)
        store.put("orders", b"a", queue_id=0)
        thread.join()
        assert testing.waiting_calls(store) == 0
