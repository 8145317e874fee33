"""An opening that is interrupted, wherever it is, leaves a store that opens again in the same process."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from commitlog_store import MessageStore
from commitlog_store.errors import StoreLocked
from tests.store.owner.owned_store import open_store, put_ok
from tests.support.interrupter import Interrupter, interrupt_main_thread
from tests.support.stored_bodies import bodies

_OPENING = ("commitlog_store/store.py", "owned_store/owned_store.py", "threads/jobs.py")


def test_interrupted_at_any_line_it_gives_the_lock_back(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store, body=b"kept")
    opened: list[MessageStore] = []
    for turn in range(1, 1_000):
        interrupter = Interrupter(turn, _OPENING)
        try:
            interrupter.run(lambda: opened.append(MessageStore.open(tmp_path)))
        except KeyboardInterrupt:
            assert not opened, interrupter.where
            with MessageStore.open(tmp_path, lock_timeout_s=20) as store:
                assert bodies(store) == [b"kept"], interrupter.where
        if opened:
            break
    opened.pop().close()
    assert turn > 10


def test_interrupted_while_it_recovers_it_ends_the_recovery(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store, body=b"kept")
    recovering, go_on = threading.Event(), threading.Event()

    def stop_at_first_block(_done: int, _total: int) -> None:
        recovering.set()
        go_on.wait()

    with pytest.raises(KeyboardInterrupt), interrupt_main_thread(recovering.wait):
        MessageStore.open(tmp_path, rebuild=True, progress=stop_at_first_block)
    with pytest.raises(StoreLocked):
        MessageStore.open(tmp_path)
    go_on.set()
    with MessageStore.open(tmp_path, lock_timeout_s=20) as store:
        assert bodies(store) == [b"kept"]
