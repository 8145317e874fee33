"""A certificate for an address or a name that is its own authority, made by the system's openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def make_certificate(directory: Path, name: str = "master", address: str = "127.0.0.1") -> tuple[Path, Path]:
    """The certificate and its key, as PEM files."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("making a certificate takes the command openssl")
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    making = f"{openssl} req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={name}"
    kind = "IP" if address.replace(".", "").isdigit() else "DNS"
    files = ["-addext", f"subjectAltName={kind}:{address}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*making.split(), *files], check=True, capture_output=True)
    return certificate, key
