"""Spark drivers of their own for tests to kill, and the end of everything that they have started."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from tests.support.local_spark import PROJECT
from tests.support.programs import child_environment
from tests.support.waiting import WAIT_LIMIT_S

# In the environment of a driver, and so in that of whatever it starts.
_MARK = "COMMITLOG_TEST_DRIVERS"
_PROCESSES = Path("/proc")


class Drivers:
    """A context manager; on leaving, what is left of all its drivers is killed.

    Python's workers have a process group of their own and may outlive driver and JVM, some of them because the test
    wants it: so they are found by a mark in their environment, and killed last.
    """

    def __init__(self) -> None:
        self._mark = secrets.token_hex(16)

    @contextmanager
    def run(self, module: str, *arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
        """``python -m module arguments``, killed on leaving (SIGKILL), its JVM with it. ``log`` gets its stderr."""
        with log.open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=PROJECT,
                env=child_environment() | {_MARK: self._mark},
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                # The JVM is in the driver's group; the group is gone when both have ended by themselves.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(WAIT_LIMIT_S)

    def __enter__(self) -> Drivers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        deadline = time.monotonic() + WAIT_LIMIT_S
        while left := self.processes():
            assert time.monotonic() < deadline, f"the processes {left} of killed drivers do not end"
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.01)

    def processes(self) -> list[int]:
        """The processes of these drivers that live, as far as the system reports."""
        wanted = f"{_MARK}={self._mark}".encode()
        found = []
        for environment in _PROCESSES.glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):  # it ended concurrently, or belongs to another user
                if wanted in environment.read_bytes().split(b"\0"):
                    found.append(int(environment.parent.name))
        return found
