"""Small file systems that a test program mounts in its own mount namespace (``own_mounts``)."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path


def mount_tmpfs(path: Path, size: str) -> None:
    """Mount a file system of that size in memory."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], check=True)


def mount_ext4(image: Path, path: Path, *, mebibytes: int, reserved_percent: int) -> str:
    """Mount a new ext4 file system, made in the file ``image``, of whose blocks root alone may use a share.

    Returns why that cannot be done here; nothing when it is done.
    """
    with image.open("wb") as stream:
        stream.truncate(mebibytes << 20)
    make = ["mkfs.ext4", "-q", "-F", "-m", str(reserved_percent), str(image)]
    for command in (make, ["mount", "-o", "loop", str(image), str(path)]):
        if shutil.which(command[0]) is None:
            return f"no command {command[0]}"
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            return done.stderr.strip() or f"{command[0]} failed"
    return ""


def fill_up(path: Path, *, leave: int = 0) -> None:
    """Take the space of a file's disk, but for ``leave`` bytes, for that file."""
    free = os.statvfs(path.parent).f_bavail * os.statvfs(path.parent).f_frsize - leave
    with path.open("wb") as stream, contextlib.suppress(OSError):
        if free > 0:
            os.posix_fallocate(stream.fileno(), 0, free)
        while not leave:
            os.write(stream.fileno(), bytes(4096))


@contextlib.contextmanager
def full(mount: Path, *, leave: int = 0) -> Iterator[None]:
    """No space on the disk, but for ``leave`` bytes, for a while."""
    ballast = mount / "ballast"
    fill_up(ballast, leave=leave)
    try:
        yield
    finally:
        ballast.unlink()
