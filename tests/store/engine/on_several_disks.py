"""How full the disks of a store are, by real disks: ``python -m tests.store.engine.on_several_disks DIR``.

It runs in a mount namespace of its own, and prints one line for each disk that it reports, or fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from commitlog_store import MessageStore, MessageStoreConfig
from commitlog_store.engine import disk_watermark
from commitlog_store.testing import parts_of
from tests.support.small_disks import fill_up, mount_ext4, mount_tmpfs
from tests.support.waiting import wait_for

_CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=2000, max_hash_slot_num=50, max_index_num=60
)


def main(mount: Path) -> None:
    """A disk of which root keeps a half; then a store with a disk for each of its directories."""
    disk_watermark._INTERVAL_SECONDS = 0.05
    for name in ("ext4", "root"):
        (mount / name).mkdir()
    fault = mount_ext4(mount / "image", mount / "ext4", mebibytes=64, reserved_percent=50)
    if not fault:
        _reserved_blocks_do_not_count(mount / "ext4")
    print(f"reserved blocks: {fault or 'fine'}")
    mount_tmpfs(mount / "root", "8m")
    _every_disk_counts(mount / "root" / "store", mount)


def _reserved_blocks_do_not_count(disk: Path) -> None:
    """Puts and retention measure as ``df`` does."""
    with MessageStore.open(disk / "store", _CONFIG) as store:
        store.put("orders", b"x", queue_id=0)
        wait_for(lambda: not store.disk_is_filling)
        fill_up(disk / "other", leave=_available(disk) * 15 // 100)
        assert _df(disk) in range(80, 90), _df(disk)
        assert store.disk_is_filling
        parts_of(store).engine.watermark.run_once()
        assert store.writable
        fill_up(disk / "rest", leave=_available(disk) // 4)
        assert _df(disk) > 90
        wait_for(lambda: not store.writable)
        assert f"{_df(disk)}% of the disk" in str(parts_of(store).engine.state.refusal)


def _available(disk: Path) -> int:
    return os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize


def _df(disk: Path) -> int:
    """The percentage that ``df`` shows."""
    shown = subprocess.run(["df", "--output=pcent", str(disk)], check=True, capture_output=True, text=True).stdout
    return int(shown.split()[-1].rstrip("%"))


def _every_disk_counts(path: Path, mount: Path) -> None:
    for name in ("commitlog", "consumequeue", "index"):
        (path / name).mkdir(parents=True)
        mount_tmpfs(path / name, "8m")
    with MessageStore.open(path, _CONFIG) as store:
        store.put("orders", b"x", queue_id=0, keys=["key"])
        for disk in (path / "commitlog", path / "consumequeue", path / "index", mount / "root"):
            ballast = disk / "ballast"
            fill_up(ballast, leave=1 << 18)
            wait_for(lambda: store.disk_is_filling and not store.writable)
            ballast.unlink()
            wait_for(lambda: store.writable and not store.disk_is_filling)
            print(disk.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
