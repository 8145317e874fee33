"""A commit on disks that old messages have filled: ``python -m tests.connector.sink.on_a_filling_disk DIR``.

It runs in a mount namespace of its own, mounts small file systems in DIR, and prints one line, ``fine``, or fails. Of
one of them root keeps a half, where such a one can be mounted: what is free there for a store is not free on it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from commitlog_store.batch_id import BatchId
from pyspark_commitlog.sink.commit import commit_staged, prepare_store
from tests.connector.sink.test_commit import options_of, stage
from tests.support.small_disks import fill_up, mount_ext4, mount_tmpfs


def main(mount: Path) -> None:
    """Once on each disk."""
    for name in ("memory", "ext4"):
        (mount / name).mkdir()
    mount_tmpfs(mount / "memory", "16m")
    _commit_on_a_full_disk(mount / "memory")
    if not mount_ext4(mount / "image", mount / "ext4", mebibytes=64, reserved_percent=50):
        _commit_on_a_full_disk(mount / "ext4")
    print("fine")


def _commit_on_a_full_disk(disk: Path) -> None:
    options = options_of(disk / "store", retentionHours="1000", diskSpaceWarningLevelRatio="0.9")
    prepare_store(options)
    for version in range(20):
        batch = BatchId("query", version)
        commit_staged(options, batch, [stage(options, 0, "x" * 200_000, batch=batch)])
    found = os.statvfs(disk)
    usable = (found.f_blocks - found.f_bfree + found.f_bavail) * found.f_frsize
    fill_up(disk / "other", leave=usable * 6 // 100)
    batch = BatchId("query", 20)
    committed = commit_staged(options, batch, [stage(options, 0, "z", batch=batch)])
    assert committed is not None
    assert committed.rows == 1
    assert min(int(one.name) for one in Path(options.path, "commitlog").iterdir()) > 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
