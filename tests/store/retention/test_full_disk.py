"""Retention on a real disk that is full: it frees space, and needs none for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.retention.on_a_full_disk import PARTS
from tests.support import quick_programs
from tests.support.programs import may_mount
from tests.support.waiting import WAIT_LIMIT_S


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=[pytest.mark.stress] if "2,000" in part else []) for part in PARTS]
)
def test_a_full_disk_is_cleaned(part: str, tmp_path: Path) -> None:
    if not may_mount(tmp_path):
        pytest.skip("mounting a small file system takes root, or a system that lets users have mounts of their own")
    module = "tests.store.retention.on_a_full_disk"
    done = quick_programs.run_with_own_mounts(module, tmp_path, part, timeout=WAIT_LIMIT_S)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
