"""Verification: a store verified by a process beside the server, one at a time; its progress and its last report."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace

import msgspec

from commitlog_store.files.store_paths import StorePaths
from commitlog_store.serve.verify_child import Line, Progressed, Verified, VerifyFailed


@dataclass(frozen=True, kw_only=True)
class VerificationState:
    """Times are milliseconds. ``process`` is the id of the one that verifies, None while none does.

    ``progress`` is None before the first block. ``report`` is the last one, which ended at ``reported_at``.
    ``problem`` says why the last verification has none, which ended at ``ended_at``.
    """

    process: int | None = None
    by: str = ""
    begun_at: int = 0
    progress: Progressed | None = None
    report: Verified | None = None
    reported_at: int = 0
    problem: str = ""
    ended_at: int = 0

    @property
    def is_running(self) -> bool:
        return self.process is not None


class Verification:
    """Of one store. Any number of threads. ``close`` ends the one under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._state = VerificationState()
        self._problem = ""
        self._reading: threading.Thread | None = None
        self._closed = False

    @property
    def state(self) -> VerificationState:
        return self._state

    def start(self, paths: StorePaths, by: str) -> bool:
        """Start one for ``by``. False when one is under way, or the server stops."""
        with self._lock:
            if self._process is not None or self._closed:
                return False
            self._problem = ""
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "commitlog_store.serve.verify_child", paths.root, paths.elsewhere or ""],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the server, which ends it
            )
            self._state = replace(
                self._state, process=self._process.pid, by=by, begun_at=_now_ms(), progress=None, problem=""
            )
            self._reading = threading.Thread(target=self._read, args=(self._process,), name="verification", daemon=True)
            self._reading.start()
            return True

    def cancel(self, reason: str) -> bool:
        """End the one under way; ``reason`` is its problem then. False when none is."""
        with self._lock:
            process, reading = self._process, self._reading
            if process is None or reading is None:
                return False
            self._problem = reason
            process.kill()  # it changes nothing
        reading.join()
        return True

    def close(self) -> None:
        self._closed = True
        self.cancel("The server stopped.")

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        end: Verified | VerifyFailed | None = None
        with process.stdout:
            for text in process.stdout:
                if not text.endswith(b"\n"):  # the process was ended within the line
                    break
                line = msgspec.json.decode(text, type=Line)
                if isinstance(line, Progressed):
                    self._state = replace(self._state, progress=line)
                else:
                    end = line
        code = process.wait()
        with self._lock:
            problem = self._problem or _end_of(code)
            ended = replace(self._state, process=None, progress=None, ended_at=_now_ms())
            if isinstance(end, Verified):
                ended = replace(ended, report=end, reported_at=ended.ended_at)
            else:
                ended = replace(ended, problem=problem if end is None else end.problem)
            self._state, self._process, self._reading = ended, None, None


def _end_of(code: int) -> str:
    if code < 0:
        return f"Signal {-code} ended the process that verified; the system does that when memory is short, too."
    return f"The process that verified ended with code {code}; the server's log says more."


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
