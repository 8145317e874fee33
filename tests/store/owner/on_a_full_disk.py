"""A store on a disk that fills up and is freed again: ``python -m tests.store.owner.on_a_full_disk DIR``.

It runs in a mount namespace of its own, mounts a small file system at DIR, and prints one line, ``fine``, or fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from commitlog_store import FlushDiskType, Message, MessageStore, PutMessageStatus
from tests.store.owner.owned_store import open_store
from tests.support.stored_bodies import bodies


def main(mount: Path) -> None:
    """Fill, free, fill again, close, open: with single puts and with tables."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)], check=True)
    for number, flush in enumerate(FlushDiskType):
        path = mount / f"store{number}"
        # No watermark: its service would sometimes refuse a put before the disk does.
        with open_store(path, flush_disk_type=flush, disk_space_warning_level_ratio=1.0) as store:
            _put(store, b"first")
            ballast = _fill(mount)
            taken = _put_until_full(store)
            end = store.physical_bounds()[1]
            table = pa.table({"body": [bytes(3_000)] * 50, "queueId": [0] * 50})
            result = store.put_messages(table, topic="orders")
            assert set(result.rows["status"].to_pylist()) == {"CREATE_MAPEDFILE_FAILED"}, result
            assert result.rows["queueOffset"].to_pylist() == [-1] * 50
            assert store.put_message(Message(queue_id=0, topic="orders", body=bytes(9_000))).queue_offset == -1
            assert store.physical_bounds()[1] - end <= 16 << 10, "at most a filler"
            ballast.unlink()
            assert store.writable, store.flags
            assert _put(store, b"after") == taken
            store.put_messages(table, topic="orders").raise_for_status()
            assert len(bodies(store)) == taken + 51
        with open_store(path) as store:
            assert store.recovered is None
            assert len(bodies(store)) == taken + 51
    print("fine")


def _put(store: MessageStore, body: bytes) -> int:
    return store.put_message(Message(queue_id=0, topic="orders", body=body)).raise_for_status().queue_offset


def _fill(mount: Path) -> Path:
    """Take all space but for a few files' worth."""
    free = os.statvfs(mount).f_bavail * os.statvfs(mount).f_bsize
    ballast = mount / "ballast"
    with ballast.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, free - (100 << 10))
    return ballast


def _put_until_full(store: MessageStore) -> int:
    """How many messages the queue holds when the first one was refused."""
    for taken in range(1, 10_000):
        result = store.put_message(Message(queue_id=0, topic="orders", body=bytes(3_000)))
        if not result.ok:
            assert result.status is PutMessageStatus.CREATE_MAPEDFILE_FAILED, result
            assert result.queue_offset == -1
            assert "space" in result.reason, result
            return taken
    raise AssertionError("the disk never filled up")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
