"""Every call of a store on a disk without any space, and again with space: ``python -m ...calls_on_a_full_disk DIR``.

It runs in a mount namespace of its own, since a full disk may kill it (SIGBUS). It mounts a small file system at DIR,
and prints one line, ``fine``, or fails.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from commitlog_store import FlushDiskType, Message, MessageStore, MessageStoreConfig
from commitlog_store.errors import DiskFull, PutRefused, StagingFailed, StoreIOError
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from tests.support.clean_store import assert_clean
from tests.support.stored_bodies import bodies
from tests.support.waiting import wait_for


def main(mount: Path) -> None:
    """Opening, all ways to write, closing and recovering: each is refused by name, and the store continues."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(mount)], check=True)
    # No watermark: it would refuse puts before the disk does.
    config = MessageStoreConfig(
        mapped_file_size_commit_log=64 << 20,
        max_hash_slot_num=1_000,
        disk_space_warning_level_ratio=1.0,
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
        flush_consumer_offset_interval=100,
    )
    path = mount / "store"
    with _full(mount):
        _refused(DiskFull, lambda: MessageStore.open(path, config))
    with MessageStore.open(path, config) as store:
        _put(store, b"first")
        _commit(store, 1)
        _consume(store)
        for topic in ("crumbs", "rest"):
            store.create_topic(topic, 1)
        store.flush()
        with _full(mount):
            taken = _refuses_all_calls(store)
        wait_for(lambda: store.writable)
        _continues(store)
    store = MessageStore.open(path, config)
    with _full(mount):
        taken += _fill(store, "rest")
        _refused(StoreIOError, store.close)
        _refused(DiskFull, lambda: MessageStore.open(path, config))
    with MessageStore.open(path, config) as store:
        assert store.recovered is not None
        assert len(bodies(store)) == taken + 5
        assert bodies(store, "crumbs") == bodies(store, "rest") == [b"x"]
    assert_clean(path)
    print("fine")


def _refuses_all_calls(store: MessageStore) -> int:
    """How many messages were taken until there was no space for a queue."""
    taken = _fill(store, "crumbs")
    _refused(PutRefused, lambda: store.put("new", b"x"))
    _refused(PutRefused, lambda: store.put("new", b"x", sharding_key="key"))
    _refused(PutRefused, lambda: store.put("new", b"x", delay="1s"))
    assert store.put_messages([{"body": bytes(3_000)}] * 2_000, topic="orders").message_num == 0
    _refused(StagingFailed, lambda: _commit(store, 2))
    _refused(DiskFull, lambda: store.create_topic("listed", 3))
    _refused(DiskFull, lambda: store.forget_batches("app"))
    _refused(DiskFull, lambda: _consume(store))
    assert [batch.batch.version for batch in store.batches()] == [1]
    for call in (store.flush, store.dispatch):
        assert "once the disk has space" in _refused(StoreIOError, call)
    assert store.clean(max_bytes=1 << 40).deleted == []
    return taken


def _fill(store: MessageStore, topic: str) -> int:
    """Put until the store rejects messages, first to a topic without a queue. How many more were taken.

    The log's last step has room for that one, and its queue has none. Without it the log might be full first, and then
    smaller messages still find room.
    """
    store.put(topic, b"x", queue_id=0)
    taken = 0
    while store.put_message(Message(topic="orders", queue_id=0, body=bytes(3_000), keys=["key"])).ok:
        taken += 1
    wait_for(lambda: not store.writable)
    return taken


def _consume(store: MessageStore) -> None:
    """One message more than was committed before, on a full disk too: the position is kept in memory."""
    with store.consumer("billing", "orders") as consumer:
        assert len(consumer.poll(1)) == 1
        consumer.commit(sync=True)


def _written_position(store: MessageStore) -> int:
    return ConsumerOffsets(store.path).get("billing", "orders")[0]


def _continues(store: MessageStore) -> None:
    wait_for(lambda: _written_position(store) == 2)
    _put(store, b"after")
    _commit(store, 2)
    store.create_topic("listed", 3)
    assert store.forget_batches("app") is not None
    _commit(store, 1)
    assert store.put("new", b"keyed", sharding_key="key", keys=["key"]).ok


def _put(store: MessageStore, body: bytes) -> None:
    store.put("orders", body, queue_id=0, keys=["key"])


def _commit(store: MessageStore, version: int) -> None:
    with store.transaction("app", version) as batch:
        batch.put_messages([{"body": b"of a batch", "queueId": 0}], topic="orders")


def _refused(kind: type[Exception], call: Callable[[], object]) -> str:
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"{kind.__name__} was expected")


@contextlib.contextmanager
def _full(mount: Path) -> Iterator[None]:
    """No space on the disk, for a while."""
    ballast = mount / "ballast"
    with ballast.open("wb") as stream, contextlib.suppress(OSError):
        while True:
            os.write(stream.fileno(), bytes(4096))
    yield
    ballast.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
