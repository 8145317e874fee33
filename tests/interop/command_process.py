"""A program that takes a command a line on stdin and answers each with a line on stdout, in JSON."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.quick_spark import JAVA_OPTIONS
from tests.support.source_tree import PROJECT

Json = dict[str, Any]

REPLY_TIMEOUT_SECONDS = 120


class CommandFailed(Exception):
    """The program failed at a command, or ended on its own."""


class CommandProcess:
    """The running program. Use it as a context manager: it is killed at the end."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        """Starts it, with more ``environment`` than this process has. ``log`` gets what it writes to stderr."""
        self._log = log
        self._log_start = log.stat().st_size if log.exists() else 0
        # RocketMQ's JVM is given its own, and would say in its log that it found these.
        own = {name: value for name, value in os.environ.items() if name != JAVA_OPTIONS}
        pipe = subprocess.PIPE
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=pipe,
                stdout=pipe,
                stderr=output,
                text=True,
                cwd=PROJECT,
                env=own | dict(environment or {}),
            )
        self._ended = False
        self._replies: queue.SimpleQueue[str] = queue.SimpleQueue()
        # A thread reads, so that neither side ever waits for the other to empty a pipe.
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def ask(self, command: str, **arguments: object) -> Json:
        """Give a command and wait for its reply. ``CommandFailed``."""
        self.begin(command, **arguments)
        return self.result()

    def begin(self, command: str, **arguments: object) -> None:
        """Give a command whose reply ``result`` waits for. ``CommandFailed``."""
        self._send(command, arguments)

    def result(self) -> Json:
        """The reply to the command given longest ago. ``CommandFailed``."""
        return self._reply()

    def kill(self) -> None:
        """``kill -9``. What it replied before that can still be read."""
        self._ended = True
        self._process.kill()
        self._process.wait()
        self._reading.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):  # a command that it did not take any more
                pipe.close()

    def logged(self) -> str:
        """What it has written to stderr so far."""
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode()

    def _send(self, command: str, arguments: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise CommandFailed(f"The process has ended: {self.logged()[-2000:]}") from error

    def _reply(self) -> Json:
        try:
            line = self._replies.get(timeout=REPLY_TIMEOUT_SECONDS)
        except queue.Empty as error:
            raise CommandFailed(f"No reply in {REPLY_TIMEOUT_SECONDS} s: {self.logged()[-2000:]}") from error
        if not line:
            raise CommandFailed(f"The process has ended: {self.logged()[-2000:]}")
        reply: Json = json.loads(line)
        if "error" in reply:
            raise CommandFailed(f"{reply['error']}\n{self.logged()[-2000:]}")
        return reply

    def _replies_left(self) -> Iterator[Json]:
        while line := self._replies.get():
            yield json.loads(line)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # a reply that the kill cut short acknowledges nothing
                self._replies.put(line)
        self._replies.put("")
