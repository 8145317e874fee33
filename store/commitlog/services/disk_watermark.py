"""DiskWatermarkService: no more puts when the disk is nearly full, before a write fails half-way.

Source: RocketMQ ``store/DefaultMessageStore.java`` (``CleanCommitLogService.isSpaceToDelete``,
``diskSpaceWarningLevelRatio``). There, old files are deleted on the way to it.
"""

from __future__ import annotations

from collections.abc import Callable

from commitlog.files import disk
from commitlog.services.running_state import RunningFlags, RunningState

__all__ = ["DiskWatermarkService"]

_INTERVAL_SECONDS = 1.0


class DiskWatermarkService:
    """Sets and clears DISK_FULL. ``dispatch_waits`` says whether dispatch found no space when it looked last."""

    def __init__(
        self,
        path: str,
        ratio: float,
        state: RunningState,
        *,
        free_ratio: Callable[[str], float] = disk.free_ratio,
    ) -> None:
        self._path = path
        self._ratio = ratio
        self._state = state
        self._free_ratio = free_ratio
        self.dispatch_waits = False

    def run_once(self) -> float:
        full = self.dispatch_waits or 1.0 - self._free_ratio(self._path) > self._ratio
        if full != bool(self._state.flags & RunningFlags.DISK_FULL):
            self._state.set_flag(RunningFlags.DISK_FULL, on=full)
        return _INTERVAL_SECONDS

    def dispatch_full(self, waits: bool) -> None:
        """Dispatch found no space, or found some again."""
        if waits != self.dispatch_waits:
            self.dispatch_waits = waits
            self.run_once()
