"""DiskWatermarkService: puts are refused on a disk that is nearly full, and taken again."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from commitlog_store.engine.disk_watermark import DiskWatermarkService
from commitlog_store.engine.running_state import RunningFlags, RunningState
from commitlog_store.errors import StoreIOError
from commitlog_store.files.limits import DiskUse, fullest_disk
from tests.support import quick_programs
from tests.support.programs import may_mount
from tests.support.waiting import WAIT_LIMIT_S


def test_a_nearly_full_disk_rejects_messages_until_space_is_available() -> None:
    used = 0.5
    state = RunningState("/store", on_halt=lambda: None)
    service = DiskWatermarkService(0.9, state, lambda: DiskUse("/store", used))
    service.run_once()
    assert state.writable
    used = 0.95
    service.run_once()
    assert RunningFlags.DISK_FULL in state.flags
    assert state.refusal is not None
    assert "95% of the disk of /store" in state.refusal
    used = 0.8
    service.run_once()
    assert state.writable


def test_dispatch_without_disk_space_names_the_file() -> None:
    state = RunningState("/store", on_halt=lambda: None)
    service = DiskWatermarkService(0.9, state, lambda: DiskUse("/store", 0.5))
    service.dispatch_full(StoreIOError("write", path="/store/q/0", cause=OSError(errno.ENOSPC, "No space left")))
    assert state.refusal is not None
    assert "/store/q/0" in state.refusal
    service.run_once()
    assert not state.writable  # the disk has space by numbers, but dispatch still waits
    service.dispatch_full(None)
    assert state.writable


def test_a_ratio_of_one_never_refuses() -> None:
    state = RunningState("/store", on_halt=lambda: None)
    DiskWatermarkService(1.0, state, lambda: DiskUse("/store", 1.0)).run_once()
    assert state.writable


def test_a_directory_that_does_not_exist_yet_is_on_no_disk(tmp_path: Path) -> None:
    assert fullest_disk((str(tmp_path / "index"), str(tmp_path))) == fullest_disk((str(tmp_path),))


def test_puts_and_retention_measure_each_disk_of_a_store_as_df_does(tmp_path: Path) -> None:
    """A disk with blocks that are reserved for root, and a disk for each of log, queues, index and root."""
    if not may_mount(tmp_path):
        pytest.skip("mounting a small file system takes root, or a system that lets users have mounts of their own")
    done = quick_programs.run_with_own_mounts("tests.store.engine.on_several_disks", tmp_path, timeout=WAIT_LIMIT_S)
    assert done.returncode == 0, done.stderr
    reserved, *disks = done.stdout.splitlines()
    assert disks == ["commitlog", "consumequeue", "index", "root"]
    if reserved != "reserved blocks: fine":
        pytest.skip(f"no disk with {reserved}")
