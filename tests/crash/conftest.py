"""Fixtures of the crash tests: where their stores lie."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__: list[str] = []


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory if the system has one: hundreds of stores are made and synced."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        yield tmp_path
        return
    directory = Path(tempfile.mkdtemp(prefix="commitlog-crash-", dir=shared))
    yield directory
    shutil.rmtree(directory)
