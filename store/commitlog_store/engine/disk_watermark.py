"""DiskWatermarkService: rejects puts when the disk is nearly full, before a write fails half-way.

Source: RocketMQ ``store/DefaultMessageStore.java`` (``CleanCommitLogService.isSpaceToDelete``,
``diskSpaceWarningLevelRatio``). RocketMQ deletes old files before it comes to that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from commitlog_store.engine.running_state import RunningFlags, RunningState
from commitlog_store.files.limits import DiskUse

_INTERVAL_SECONDS = 1.0


class DiskWatermarkService:
    """Sets and clears DISK_FULL: by how full the disk is, and when dispatch finds no space for a queue or the index."""

    def __init__(self, ratio: float, state: RunningState, disk_use: Callable[[], DiskUse]) -> None:
        """``disk_use`` returns how full the fullest disk of the store is."""
        self._ratio = ratio
        self._state = state
        self._disk_use = disk_use
        # The result of the last dispatch.
        self._no_space: BaseException | None = None
        # Several threads look, each of them after it has taken or freed space; an older look must not win.
        self._lock = threading.Lock()

    def run_once(self) -> float:
        with self._lock:
            path, used = self._disk_use()
            if self._no_space is not None:
                why = str(self._no_space)
            else:
                why = f"{used:.0%} of the disk of {path} is used (disk_space_warning_level_ratio {self._ratio:.0%})."
            full = self._no_space is not None or used > self._ratio
            if full or self._state.flags & RunningFlags.DISK_FULL:
                self._state.set_disk_full(why if full else None)
        return _INTERVAL_SECONDS

    def dispatch_full(self, error: BaseException | None) -> None:
        """Note that dispatch found no space, or (None) found some again."""
        if error is not None or self._no_space is not None:
            self._no_space = error
            self.run_once()
