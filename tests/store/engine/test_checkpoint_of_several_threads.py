"""Several threads write the checkpoint: none takes back what another one has noted."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from commitlog_store import FlushDiskType, MessageStore, MessageStoreConfig
from commitlog_store.format.checkpoint import CheckpointMark
from commitlog_store.log.store_checkpoint import read_mark
from commitlog_store.paths import CHECKPOINT
from commitlog_store.recovery.open import OpenedLog
from commitlog_store.testing import parts_of
from tests.support.waiting import WAIT_LIMIT_S

# How long a write takes at most that waits for nothing: a fault is noticed within it.
_A_WRITE_S = 1.0


def test_a_mark_that_was_made_before_takes_no_later_one_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = MessageStoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH, schedule_enable=False)
    made, may_go_on = threading.Event(), threading.Event()
    make = OpenedLog.mark

    def stalled(log: OpenedLog, *, closed: bool) -> CheckpointMark:
        mark = make(log, closed=closed)
        if threading.current_thread() is first:
            made.set()
            may_go_on.wait(WAIT_LIMIT_S)
        return mark

    with MessageStore.open(tmp_path / "store", config) as store:
        flush = parts_of(store).engine.store_flush
        first = threading.Thread(target=flush.write_checkpoint)
        second = threading.Thread(target=flush.flush_log_and_note)
        monkeypatch.setattr(OpenedLog, "mark", stalled)
        first.start()
        assert made.wait(WAIT_LIMIT_S)
        store.put("orders", b"a")
        second.start()
        second.join(_A_WRITE_S)
        may_go_on.set()
        for thread in (first, second):
            thread.join(WAIT_LIMIT_S)
        mark = read_mark(str(tmp_path / "store" / CHECKPOINT))
        assert mark is not None
        assert mark.flushed_offset == store.physical_bounds()[1] > 0
