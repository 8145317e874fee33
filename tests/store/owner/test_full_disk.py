"""A real file system without space: puts are refused by a status, nothing dies, and it goes on once there is space."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

__all__: list[str] = []

PROJECT = Path(__file__).resolve().parents[3]
OWN_MOUNTS = ["unshare", "--mount", "--propagation", "private"]


def _may_mount(mount: Path) -> bool:
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        return False
    command = [*OWN_MOUNTS, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def test_a_full_disk_refuses_puts_until_there_is_space_again(tmp_path: Path) -> None:
    if not _may_mount(tmp_path):
        pytest.skip("mounting a small file system takes root, or a system that lets users have mounts of their own")
    command = [*OWN_MOUNTS, sys.executable, "-m", "tests.store.owner.on_a_full_disk", str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=PROJECT, timeout=100)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
