"""A server of Azure's Blob protocol (Azurite) as a process of its own, and settings for a client of it.

It checks signatures. It is a program of Node: ``npm install --prefix .venv/azure-server azurite`` installs it.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import hashlib
import hmac
import re
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

CONTAINER, ACCOUNT = "past", "devstoreaccount1"
# Azurite's own, the same everywhere.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_INSTALLED = Path(sys.prefix) / "azure-server" / "node_modules" / ".bin"
_VERSION = "2021-08-06"


@contextlib.contextmanager
def azure_server(directory: Path) -> Iterator[str]:
    """The endpoint of a server that keeps its files in ``directory`` and has the container ``CONTAINER``; the test is
    skipped where it is not installed."""
    program = shutil.which("azurite-blob", path=_INSTALLED) or shutil.which("azurite-blob")
    if program is None:
        pytest.skip(f"azurite-blob is not in {_INSTALLED}, nor in PATH")
    command = [program, "--blobHost", "127.0.0.1", "--blobPort", "0", "--location", str(directory)]
    with subprocess.Popen(
        [*command, "--skipApiVersionCheck", "--disableTelemetry"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        assert server.stdout is not None
        reading = None
        try:
            said = iter(server.stdout)
            found = next((hit for line in said if (hit := re.search(r"listens on (http://[\d.:]+)", line))), None)
            assert found is not None, "azurite ended before it listened"
            reading = threading.Thread(target=lambda: [None for _ in said], daemon=True)
            reading.start()
            endpoint = f"{found[1]}/{ACCOUNT}"
            _make_container(endpoint)
            yield endpoint
        finally:
            server.kill()
            if reading is not None:
                reading.join()  # before the pipe is closed under it


def _make_container(endpoint: str) -> None:
    date = email.utils.formatdate(usegmt=True)
    signed = (
        "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{_VERSION}\n"
        f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    )
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), signed.encode(), hashlib.sha256)).decode()
    headers = {"x-ms-date": date, "x-ms-version": _VERSION, "Authorization": f"SharedKey {ACCOUNT}:{signature}"}
    url = f"{endpoint}/{CONTAINER}?restype=container"
    urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers), timeout=60).close()
