"""Verification of batches: every frame of the log is compared with its frame record (invariant 11)."""

from __future__ import annotations

import numpy as np

from commitlog_store.batch.frames import FrameCheck, frames_in
from commitlog_store.columnar.dispatch import DispatchRequests
from commitlog_store.columnar.scan import RecordScan
from commitlog_store.verify.findings import Findings, Severity
from commitlog_store.verify.log import LogCheck


class BatchCheck:
    """Verifies the frames of a log, from its scans in order. ``count`` is the number of frames."""

    def __init__(self, log: LogCheck, findings: Findings, *, aborted: bool) -> None:
        self.count = 0
        self._log = log
        self._findings = findings
        self._aborted = aborted
        self._frame: FrameCheck | None = None

    def compare(self, scan: RecordScan, requests: DispatchRequests) -> None:
        """Verify the frames among the next records."""
        at = self._go_on(scan, 0)
        for found in frames_in(scan):
            row = int(np.searchsorted(requests.physical_offsets, found.physical_offset))
            if row < at:
                continue  # within another frame: a copy of a frame record was staged
            self._end()
            self.count += 1
            self._frame = FrameCheck(found)
            at = self._go_on(scan, row + 1)

    def _go_on(self, scan: RecordScan, first: int) -> int:
        if self._frame is None:
            return first
        first = self._frame.take(scan, first)
        if first < len(scan):
            self._end()
        return first

    def finish(self) -> None:
        """Verify the last frame, at the log's end."""
        if self._frame is not None and self._aborted and self._frame.found.end > self._log.end:
            self._report(self._frame, "is being written, or a crash has left a part of it: opening decides", "note")
            self._frame = None
        self._end()

    def _end(self) -> None:
        check, self._frame = self._frame, None
        if check is None or check.whole:
            return
        if not self._log.lost.between(check.found.physical_offset, check.found.end):  # else it is reported already
            self._report(check, "expected the records that were staged, found others, or not all of them", "error")

    def _report(self, check: FrameCheck, what: str, severity: Severity) -> None:
        found = check.found
        message = (
            f"Frame of {found.frame.batch} at physical offset {found.physical_offset}, {found.frame.rows} records with "
            f"checksum {found.frame.checksum:#010x}: {what}."
        )
        path, offset = self._log.place(found.physical_offset)
        self._findings.add("batch.frame", severity, path, message, offset=offset)
