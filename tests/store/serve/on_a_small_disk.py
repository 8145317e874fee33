"""Uploads to a server whose disk is full, and is freed again.

    python -m tests.store.serve.on_a_small_disk MOUNT

It runs in a mount namespace of its own, mounts a small file system at MOUNT, and prints ``fine`` at the end, or fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import (
    BatchId,
    CommittedBatch,
    MessageStore,
    MessageStoreConfig,
    RemoteBatches,
    StagedFile,
    StoreReader,
)
from commitlog_store.errors import CommitLogError, DiskFull, StagingFailed
from commitlog_store.stager import BatchStager
from tests.store.serve.servers import ServeProcess
from tests.support.clean_store import assert_clean
from tests.support.waiting import wait_for

SIZE = 64 << 20
ROWS = 3000


def main(mount: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", mount], check=True)
    store, ballast = Path(mount, "store"), Path(mount, "ballast")
    config = MessageStoreConfig(mapped_file_size_commit_log=1 << 20, max_hash_slot_num=1000, max_index_num=10_000)
    MessageStore.open(store, config).close()
    conf = Path(mount, "broker.conf")
    conf.write_text("mappedFileSizeCommitLog=1048576\nmaxHashSlotNum=1000\nmaxIndexNum=10000\n")
    with (
        ServeProcess(store, "--config", conf, new_interpreter=True) as server,
        RemoteBatches.connect(server.url) as batches,
    ):
        write(batches, 0)
        # A staged file needs 3.3 MB, and its commit as much again; nothing is committed with less than a tenth left.
        # The store makes its next files, too, as soon as it finds space for them.
        fill(ballast, leave=2 << 20)
        fails(batches, 1, StagingFailed, DiskFull)
        assert not list(store.glob("staging/*/*/*")), "the part that was written is removed"
        fill(ballast, leave=6 << 20)
        fails(batches, 1, DiskFull)
        ballast.unlink()
        wait_for(lambda: is_written(batches, 1))  # the store looks at its disk once a second
        assert server.stop()[0] == 0
    with StoreReader.open(store) as reader:
        bodies = reader.scan("orders", columns=["body"]).read_all()["body"].to_pylist()
    assert [int(body[:8]) for body in bodies] == [*range(ROWS)] * 2
    assert_clean(store)
    print("fine")


def stage(batches: RemoteBatches, version: int) -> StagedFile:
    with BatchStager(batches, BatchId("loader", version), queue_counts={"orders": 1}, topic="orders") as stager:
        stager.put(pa.table({"body": [b"%08d" % row + b"x" * 992 for row in range(ROWS)]}))
        staged = stager.finish()
    assert staged is not None
    return staged


def commit(batches: RemoteBatches, staged: StagedFile, version: int) -> CommittedBatch:
    return batches.commit(BatchId("loader", version), [staged], new_topic_queues=1, on_device=True)


def write(batches: RemoteBatches, version: int) -> CommittedBatch:
    return commit(batches, stage(batches, version), version)


def is_written(batches: RemoteBatches, version: int) -> bool:
    try:
        return bool(write(batches, version))
    except DiskFull:
        return False


def fails(batches: RemoteBatches, version: int, *kinds: type[CommitLogError]) -> None:
    with pytest.raises(
        kinds,
        match=r"The server at grpc://.*(No space left on device|of the disk of|nearly full)",
    ):
        write(batches, version)


def fill(ballast: Path, *, leave: int) -> None:
    ballast.unlink(missing_ok=True)
    with ballast.open("wb") as stream:
        found = os.statvfs(ballast)
        os.posix_fallocate(stream.fileno(), 0, found.f_bavail * found.f_bsize - leave)


if __name__ == "__main__":
    main(*sys.argv[1:])
