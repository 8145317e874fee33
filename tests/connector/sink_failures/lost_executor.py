"""The end of an executor, as one of its tasks wants it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def kill_own_executor() -> None:
    """Kill the JVM that started the daemon that started this worker of Python, and wait to be killed, too."""
    daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
    os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
    time.sleep(60)
