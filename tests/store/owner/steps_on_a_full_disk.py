"""Stores with files larger than their disk, which fills up and is freed: ``python -m ...steps_on_a_full_disk DIR``.

It runs in a mount namespace of its own, since a full disk may kill it (SIGBUS). It mounts a small file system at DIR,
and prints one line, ``fine``, or fails.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from commitlog_store import FlushDiskType, Message, MessageStore, MessageStoreConfig, PutMessageStatus
from commitlog_store.errors import CommitLogError, DiskFull
from tests.support.clean_store import assert_clean
from tests.support.stored_bodies import bodies
from tests.support.waiting import wait_for

_BODY = bytes(3_000)
_TABLE = pa.table({"body": [_BODY] * 400, "queueId": [0] * 400, "keys": [f"row-{number}" for number in range(400)]})


def main(mount: Path) -> None:
    """Single puts, tables, a transaction, and dispatch find the disk full; each continues once it has space."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(mount)], check=True)
    # Files of RocketMQ's sizes, but for the slot table. No watermark: it would refuse puts before the disk does.
    default = MessageStoreConfig(max_hash_slot_num=1_000, disk_space_warning_level_ratio=1.0)
    pool = replace(
        default, mapped_file_size_commit_log=32 << 20, transient_store_pool_enable=True, transient_store_pool_size=1
    )
    for number, config in enumerate((default, replace(default, flush_disk_type=FlushDiskType.SYNC_FLUSH), pool)):
        path = mount / f"store{number}"
        _puts_are_refused(path, config, mount)
        shutil.rmtree(path)
        _dispatch_and_transaction_continue(path, config, mount)
        shutil.rmtree(path)
    print("fine")


def _puts_are_refused(path: Path, config: MessageStoreConfig, mount: Path) -> None:
    other = mount / "other"
    with other.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, 6 << 20)
    with MessageStore.open(path, config) as store:
        taken = _put_until_full(store)
        assert taken > 1_000, "most of the disk is for data"
        _refuses_a_table(store)
        end = store.physical_bounds()[1]
        ballast = _take_all(mount)
        assert store.put_message(Message(topic="orders", queue_id=0, body=bytes(5 << 20))).queue_offset == -1
        assert store.physical_bounds()[1] == end
        ballast.unlink()
        other.unlink()
        wait_for(lambda: store.writable)
        _put(store, b"after")
        store.flush()
        assert len(bodies(store)) == taken + 1
    assert_clean(path)


def _dispatch_and_transaction_continue(path: Path, config: MessageStoreConfig, mount: Path) -> None:
    with MessageStore.open(path, config) as store:
        _put(store, b"first")
        _dispatch_waits(store, mount)
        store.flush()
        taken = len(bodies(store))
        _transaction_is_refused(store, mount)
        store.flush()
        assert len(bodies(store)) == taken + len(_TABLE)
    with MessageStore.open(path, config) as store:
        assert store.recovered is None
        _put(store, b"after")
        store.flush()
        assert len(bodies(store)) == taken + len(_TABLE) + 1
    assert_clean(path)


def _put(store: MessageStore, body: bytes) -> None:
    store.put_message(Message(topic="orders", queue_id=0, body=body, keys=["key"])).raise_for_status()


def _put_until_full(store: MessageStore) -> int:
    """How many messages were taken when the first one was refused."""
    for taken in range(100_000):
        result = store.put_message(Message(topic="orders", queue_id=0, body=_BODY, keys=[f"key-{taken}"]))
        if not result.ok:
            assert result.queue_offset == -1
            assert "space" in result.reason, result
            return taken
    raise AssertionError("the disk never filled up")


def _refuses_a_table(store: MessageStore) -> None:
    result = store.put_messages(pa.table({"body": [_BODY] * 4_000, "queueId": [0] * 4_000}), topic="orders")
    statuses = set(result.rows["status"].to_pylist())
    refused = {PutMessageStatus.CREATE_MAPEDFILE_FAILED.name, PutMessageStatus.SERVICE_NOT_AVAILABLE.name}
    assert statuses <= refused, result
    assert set(result.rows["queueOffset"].to_pylist()) == {-1}


def _dispatch_waits(store: MessageStore, mount: Path) -> None:
    """The log has space allocated, and neither a queue nor the index finds any: the messages are kept in the log."""
    for number in range(200):
        store.create_topic(f"new-{number}", 1)
    ballast = _take_all(mount)
    taken = 0
    with contextlib.suppress(CommitLogError):
        # A message goes to a queue of its own, so each needs a new file.
        while taken < 200 and store.put_message(Message(topic=f"new-{taken}", body=b"x", keys=["k"])).ok:
            taken += 1
            store.flush()
            store.dispatch()
    assert taken, "space in the log was allocated ahead"
    wait_for(lambda: not store.writable)
    ballast.unlink()
    wait_for(lambda: store.writable)
    store.dispatch()
    for number in range(taken):
        assert bodies(store, f"new-{number}") == [b"x"]


def _transaction_is_refused(store: MessageStore, mount: Path) -> None:
    end = store.physical_bounds()[1]
    try:
        with store.transaction("loader", 1) as batch:
            batch.put_messages(pa.concat_tables([_TABLE] * 5), topic="orders")
            _take_all(mount)
    except DiskFull:
        assert store.physical_bounds()[1] == end
    else:
        raise AssertionError("6 MB were committed on a full disk")
    (mount / "ballast").unlink()
    with store.transaction("loader", 2) as again:
        again.put_messages(_TABLE, topic="orders")


def _take_all(mount: Path) -> Path:
    """Take all space of the disk."""
    ballast = mount / "ballast"
    with ballast.open("wb") as stream, contextlib.suppress(OSError):
        while True:
            os.write(stream.fileno(), bytes(4096))
    return ballast


if __name__ == "__main__":
    main(Path(sys.argv[1]))
