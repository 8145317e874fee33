"""Fixtures of the crash tests: where their stores lie, and how much space their files get at a time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_store.files import space
from commitlog_store.index import file_writer


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every file of the log and of the index get its space in several steps."""
    monkeypatch.setattr(space, "FIRST_STEP", 4 << 10)
    monkeypatch.setattr(space, "LARGEST_STEP", 4 << 10)
    monkeypatch.setattr(file_writer, "ENTRY_STEP", 1 << 10)


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
