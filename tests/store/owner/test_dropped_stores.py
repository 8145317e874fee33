"""Stores that no one closes: they warn, and are closed all the same; forked children are refused."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import Message, MessageStore
from commitlog_store.errors import StoreForked
from tests.store.owner.owned_store import open_store, put_ok, small
from tests.support.stored_bodies import bodies
from tests.support.waiting import WAIT_LIMIT_S

_LEFT_OPEN = """
import sys
from commitlog_store import Message, MessageStore
store = MessageStore.open(sys.argv[1])
assert store.put_message(Message(queue_id=0, topic="orders", body=b"x")).ok
"""


def test_a_dropped_store_warns_and_is_closed(tmp_path: Path) -> None:
    stores = [open_store(tmp_path)]
    put_ok(stores[0])
    with pytest.warns(ResourceWarning, match="was dropped and not closed"):
        stores.clear()
    with MessageStore.open(tmp_path, small(), lock_timeout_s=WAIT_LIMIT_S) as again:
        assert again.recovered is None
        assert bodies(again) == [b"body"]


def test_a_closed_store_is_dropped_without_a_warning(tmp_path: Path) -> None:
    stores = [open_store(tmp_path)]
    stores[0].close()
    stores.clear()  # a warning would be an error here


def test_a_store_that_is_open_when_the_interpreter_exits_is_closed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _LEFT_OPEN, str(tmp_path / "store")], check=True, timeout=200)
    with open_store(tmp_path / "store") as again:
        assert again.recovered is None
        assert bodies(again) == [b"x"]


def test_a_forked_child_is_refused_and_its_parent_continues(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store)
        child = os.fork()
        if not child:
            refused = 0
            for use in (
                lambda: store.put_message(Message(queue_id=0, topic="orders", body=b"late")),
                store.flush,
                store.dispatch,
            ):
                try:
                    use()
                except StoreForked:
                    refused += 1
            store.close()
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        assert put_ok(store).queue_offset == 1


def test_a_transaction_keeps_its_store_open(tmp_path: Path) -> None:
    with open_store(tmp_path).transaction("loader", 1) as batch:
        batch.put_messages(pa.table({"body": [b"a"]}), topic="orders")
    kept = [batch]
    del batch
    with pytest.warns(ResourceWarning, match="was dropped"):
        kept.clear()
    with MessageStore.open(tmp_path, small(), lock_timeout_s=WAIT_LIMIT_S) as again:
        assert bodies(again) == [b"a"]


def test_a_store_whose_threads_cannot_start_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="new thread"):
            open_store(tmp_path)
    with open_store(tmp_path) as store:
        put_ok(store)
