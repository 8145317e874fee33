"""Programs that are killed often: forks of a process that has imported everything, which takes longer than they live.

The process runs ``serve(program)``: for each line of its input, words with tabs between, it forks and calls
``program(*words)``. It says the fork's process id, then the program says what it likes, and after its end ``gone``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from types import TracebackType

from tests.support import quick_programs
from tests.support.local_spark import PROJECT
from tests.support.programs import child_environment
from tests.support.readable import readable
from tests.support.waiting import WAIT_LIMIT_S


def serve(program: Callable[..., None]) -> None:
    """Run the program in a fork for each line of the input."""
    for line in sys.stdin:
        child = os.fork()
        if not child:
            code = 1
            # By the fork itself, and at once: what the program says comes after it.
            sys.stdout.write(f"{os.getpid()}\n")
            sys.stdout.flush()
            try:
                program(*line.rstrip("\n").split("\t"))
                code = 0
            except BaseException:  # noqa: BLE001 (the fork has no caller)
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        print(f"\ngone {os.waitstatus_to_exitcode(status)}", flush=True)  # it may have been killed within a line


class ForkedProgram:
    """A program of ``serve``, one fork at a time. A context manager, which kills what runs."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed on leaving)
        self._process = quick_programs.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=PROJECT,
            env=child_environment(),
            bufsize=0,
        )
        self._output = b""
        # The process id of the fork that runs; 0 without one.
        self.child = 0

    def start(self, *words: object) -> None:
        """Start a fork."""
        assert not self.child, "one at a time"
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(map(str, words)).encode() + b"\n")
        line = self._line(WAIT_LIMIT_S)
        assert line, f"{self._module} does not start: {self.errors()}"
        self.child = int(line)

    def line(self, timeout_s: float = WAIT_LIMIT_S) -> str | None:
        """The next line of the fork; None when none comes in time. It may not end by itself."""
        line = self._line(timeout_s)
        assert line is None or not line.startswith("gone"), f"{self._module} has ended: {line}\n{self.errors()}"
        return line

    def kill(self) -> list[str]:
        """SIGKILL, and the lines that it had said before."""
        os.kill(self.child, signal.SIGKILL)
        lines, code = self.wait()
        assert code == -signal.SIGKILL, f"{self._module} had ended before with {code}: {self.errors()}"
        return lines

    def dies_before(self, wanted: str) -> bool:
        """Whether the fork kills itself before it says this line; else it is killed now."""
        while (line := self._line(WAIT_LIMIT_S)) != wanted:
            assert line is not None, f"{self._module} says nothing: {self.errors()}"
            if line.startswith("gone"):
                self.child = 0
                assert line == f"gone {-signal.SIGKILL}", f"{line}: {self.errors()}"
                return True
        self.kill()
        return False

    def wait(self) -> tuple[list[str], int]:
        """Wait until the fork has ended: its remaining lines, and its exit code."""
        lines: list[str] = []
        while True:
            line = self._line(WAIT_LIMIT_S)
            assert line is not None, f"{self._module} does not end: {self.errors()}"
            if line.startswith("gone"):
                self.child = 0
                return lines, int(line.split()[1])
            lines += [line] if line else []

    def errors(self) -> str:
        """What it and its forks wrote to their stderr, as far as that matters: the end."""
        self._errors.seek(0)
        return self._errors.read().decode()[-4000:]

    def _line(self, timeout_s: float) -> str | None:
        assert self._process.stdout is not None
        until = time.monotonic() + timeout_s
        while b"\n" not in self._output:
            if not readable(self._process.stdout, max(until - time.monotonic(), 0)):
                return None
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            assert data, f"{self._module} is gone: {self.errors()}"
            self._output += data
        line, self._output = self._output.split(b"\n", 1)
        return line.decode()

    def __enter__(self) -> ForkedProgram:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child, signal.SIGKILL)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._end()
        failure = self.errors()
        self._errors.close()
        if error is None:
            assert "Traceback" not in failure, failure

    def _end(self) -> None:
        assert self._process.stdout is not None
        while os.read(self._process.stdout.fileno(), 1 << 16):
            pass
        self._process.stdout.close()
        self._process.wait(WAIT_LIMIT_S)
