"""DiskWatermarkService: puts are refused on a disk that is nearly full, and taken again."""

from __future__ import annotations

import errno

from commitlog.errors import StoreIOError
from commitlog.services.disk_watermark import DiskWatermarkService
from commitlog.services.running_state import RunningFlags, RunningState

__all__: list[str] = []


def test_a_nearly_full_disk_rejects_messages_until_space_is_available() -> None:
    free = 0.5
    state = RunningState("/store", on_fence=lambda: None)
    service = DiskWatermarkService("/store", 0.9, state, free_ratio=lambda _: free)
    service.run_once()
    assert state.writable
    free = 0.05
    service.run_once()
    assert RunningFlags.DISK_FULL in state.flags
    assert state.refusal is not None
    assert "95% of the disk of /store" in state.refusal
    free = 0.2
    service.run_once()
    assert state.writable


def test_dispatch_without_disk_space_names_the_file() -> None:
    state = RunningState("/store", on_fence=lambda: None)
    service = DiskWatermarkService("/store", 0.9, state, free_ratio=lambda _: 0.5)
    service.dispatch_full(StoreIOError("write", path="/store/q/0", cause=OSError(errno.ENOSPC, "No space left")))
    assert state.refusal is not None
    assert "/store/q/0" in state.refusal
    service.run_once()
    assert not state.writable  # the disk has space by numbers, but dispatch still waits
    service.dispatch_full(None)
    assert state.writable


def test_a_ratio_of_one_never_refuses() -> None:
    state = RunningState("/store", on_fence=lambda: None)
    DiskWatermarkService("/store", 1.0, state, free_ratio=lambda _: 0.0).run_once()
    assert state.writable
