"""A server of S3's protocol (moto's) as a process of its own, with one bucket; and settings for a client of it.

It stands in a directory of its own, which ``make test`` fills (tests/store/archive/s3-requirements.txt). moto checks no
signatures.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.programs import python_path

PACKAGES = Path(sys.prefix) / "s3-server"
BUCKET = "past"
# Its standard input ends with the process that started it.
_PROGRAM = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
from moto.server import main
main(["-H", "127.0.0.1", "-p", "0"])
"""
SECRET = "c2VjcmV0LXRoYXQtaXMtbmV2ZXItc2hvd24"
KEYS = {"access_key_id": "AKIDEXAMPLE", "secret_access_key": SECRET, "region": "us-east-1"}


def options_for(endpoint: str) -> dict[str, str]:
    """``storage_options`` of a client of the server, or of a proxy before it."""
    return {"endpoint": endpoint, **KEYS}


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """The endpoint of a server that has the bucket ``BUCKET`` and nothing else; the test is skipped where it is not
    installed. One that no other test uses any more is emptied, since it takes a second to start."""
    if not (PACKAGES / "moto").is_dir():
        pytest.skip(f"moto is not in {PACKAGES}: `make test` installs it there")
    server = _unused.pop() if _unused else _Server()
    _ask(f"{server.endpoint}/moto-api/reset", "POST")
    _ask(f"{server.endpoint}/{BUCKET}", "PUT")
    yield server.endpoint
    _unused.append(server)


class _Server:
    """The process, which lives as long as this one."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": python_path(PACKAGES)}
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", _PROGRAM]
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, text=True, env=environment
        )
        assert self._process.stderr is not None
        said = iter(self._process.stderr)
        found = next((hit for line in said if (hit := re.search(r"http://127\.0\.0\.1:\d+", line))), None)
        assert found is not None, "moto ended before it listened"
        self.endpoint = found[0]
        # It writes a line for each request, and would wait for someone to read it.
        threading.Thread(target=lambda: [None for _ in said], daemon=True).start()


# Those that were started, and are not in use.
_unused: list[_Server] = []


def _ask(url: str, method: str) -> None:
    urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60).close()
