"""Dispatch is woken when messages can be dispatched, and not for those that are not on the device yet."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from commitlog_store.testing import parts_of
from commitlog_store.threads.wakeup import Wakeup
from tests.store.owner.owned_store import SYNC, Gate, open_store, put_ok
from tests.support.waiting import WAIT_LIMIT_S, wait_for


def test_a_message_that_is_not_on_the_device_does_not_wake_dispatch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror appends, and then syncs: each of its records would cost a wake-up that finds nothing."""
    woken: list[Wakeup] = []
    original = Wakeup.set

    def noted(wakeup: Wakeup) -> None:
        woken.append(wakeup)
        original(wakeup)

    with (
        open_store(tmp_path, flush_disk_type=SYNC) as store,
        Gate.within(monkeypatch, "sync") as gate,
        ThreadPoolExecutor() as threads,
    ):
        engine = parts_of(store).engine
        put_ok(store)
        wait_for(lambda: engine.reput.idle and not engine.reput.undispatched_bytes)
        (dispatch,) = (one._wakeup for one in engine.workers() if one._service is engine.reput)
        monkeypatch.setattr(Wakeup, "set", noted)
        gate.shut()
        putting = threads.submit(put_ok, store)
        assert gate.reached.wait(WAIT_LIMIT_S)
        engine.message_arrived()
        assert dispatch not in woken
        gate.open()
        putting.result()
        wait_for(lambda: not engine.reput.undispatched_bytes)
        assert dispatch in woken
