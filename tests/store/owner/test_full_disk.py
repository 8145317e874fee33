"""A real file system without space: puts are refused by a status, and the store continues once space is available."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import quick_programs
from tests.support.programs import may_mount
from tests.support.waiting import WAIT_LIMIT_S


@pytest.mark.parametrize("program", ["on_a_full_disk", "steps_on_a_full_disk", "calls_on_a_full_disk"])
def test_a_full_disk_refuses_puts_until_space_is_available(program: str, tmp_path: Path) -> None:
    """When the next file finds no space, or the next step within a file larger than the disk, or any other call."""
    if not may_mount(tmp_path):
        pytest.skip("mounting a small file system takes root, or a system that lets users have mounts of their own")
    module = f"tests.store.owner.{program}"
    done = quick_programs.run_with_own_mounts(module, tmp_path, timeout=WAIT_LIMIT_S)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
