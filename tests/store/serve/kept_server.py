"""A server that is started again at its place whenever it dies, as a supervisor does."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType

from tests.support import quick_programs
from tests.support.programs import child_environment
from tests.support.waiting import WAIT_LIMIT_S, wait_for


class KeptServer:
    """``python -m MODULE ARGUMENTS HOST:PORT``, which prints its address when it serves. A context manager.

    ``stop`` ends it cleanly. ``deaths`` is how often it was killed, ``failed`` whether it has ended by itself.
    """

    def __init__(self, module: str, *arguments: str | Path, log: Path) -> None:
        self._command = [sys.executable, "-m", module, *map(str, arguments)]
        self._log = log
        self._stopping = False
        self.deaths = 0
        self.failed = False
        self._place = f"127.0.0.1:{_port_of_a_server()}"
        self.process = self._start()
        wait_for(lambda: self.url in log.read_text() or self.process.poll() is not None)
        assert self.process.poll() is None, log.read_text()
        self._thread = threading.Thread(target=self._keep, name="KeptServer")

    @property
    def url(self) -> str:
        return f"grpc://{self._place}"

    def kill(self) -> None:
        self.process.kill()

    def stop(self) -> None:
        """End it, as SIGTERM does; what it serves is closed cleanly then."""
        self._stopping = True
        self.process.send_signal(signal.SIGTERM)
        self._thread.join(WAIT_LIMIT_S)
        assert self.process.returncode == 0, self._log.read_text()

    def __enter__(self) -> KeptServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        self.process.kill()
        self._thread.join(WAIT_LIMIT_S)

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as said:
            return quick_programs.Popen([*self._command, self._place], stderr=said, env=child_environment())

    def _keep(self) -> None:
        while True:
            code = self.process.wait()
            if self._stopping:
                return
            if code != -signal.SIGKILL:
                self.failed = True
                return
            self.deaths += 1
            self.process = self._start()


def _port_of_a_server() -> int:
    """One that no client is given: a client that tries a port of its own kind again and again meets itself there."""
    while True:
        port = random.randrange(12_000, 30_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
