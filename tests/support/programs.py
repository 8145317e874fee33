"""Programs of the tests, run as processes of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.local_spark import PROJECT

# The prefix of a command that mounts file systems which no other process sees.
OWN_MOUNTS = ("unshare", "--mount", "--propagation", "private")


def python_path(*more: Path) -> str:
    """PYTHONPATH of a child process: the project, ``more``, and what this process was given."""
    return os.pathsep.join([*map(str, (PROJECT, *more)), *filter(None, [os.environ.get("PYTHONPATH")])])


def child_environment(*more: Path) -> dict[str, str]:
    """The environment of a child process that imports the tests."""
    return os.environ | {"PYTHONPATH": python_path(*more)}


def run_program(
    *arguments: str | Path, timeout: float, within: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run this Python with these arguments, the project importable, its output kept; ``within`` goes before it."""
    return subprocess.run(
        [*within, sys.executable, *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        cwd=PROJECT,
        env=child_environment(),
        timeout=timeout,
    )


def may_mount(mount: Path) -> bool:
    """Whether a small file system can be mounted there."""
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        return False
    command = [*OWN_MOUNTS, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0
