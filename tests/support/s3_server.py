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
SECRET = "c2VjcmV0LXRoYXQtaXMtbmV2ZXItc2hvd24"
KEYS = {"access_key_id": "AKIDEXAMPLE", "secret_access_key": SECRET, "region": "us-east-1"}


def options_for(endpoint: str) -> dict[str, str]:
    """``storage_options`` of a client of the server, or of a proxy before it."""
    return {"endpoint": endpoint, **KEYS}


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """The endpoint of a server that has the bucket ``BUCKET``; the test is skipped where it is not installed."""
    if not (PACKAGES / "moto").is_dir():
        pytest.skip(f"moto is not in {PACKAGES}: `make test` installs it there")
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    environment = {**os.environ, "PYTHONPATH": python_path(PACKAGES)}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment
    ) as server:
        assert server.stderr is not None
        reading = None
        try:
            said = iter(server.stderr)
            found = next((hit for line in said if (hit := re.search(r"http://127\.0\.0\.1:\d+", line))), None)
            assert found is not None, "moto ended before it listened"
            # It writes a line for each request, and would wait for someone to read it.
            reading = threading.Thread(target=lambda: [None for _ in said], daemon=True)
            reading.start()
            made = urllib.request.Request(f"{found[0]}/{BUCKET}", method="PUT")
            urllib.request.urlopen(made, timeout=60).close()
            yield found[0]
        finally:
            server.kill()
            if reading is not None:
                reading.join()  # before the pipe is closed under it
