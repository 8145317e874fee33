"""A queue whose file was made before a crash, and whose messages were lost with it, has no file after recovery."""

from __future__ import annotations

from pathlib import Path

from commitlog_store import MessageStore, StoreReader
from commitlog_store.testing import kill
from tests.store.owner.owned_store import put_ok
from tests.store.recovery.test_zeroed_units import settings
from tests.support.clean_store import assert_clean

FILE_SIZE = 100 * 20


def test_recovery_removes_a_queue_file_without_units(tmp_path: Path) -> None:
    """RocketMQ takes the zeros of such a file for a unit of no bytes."""
    path = tmp_path / "store"
    store = MessageStore.open(path, settings(100))
    put_ok(store, "orders", b"kept", queue_id=0)
    store.dispatch()
    store.flush()
    kill(store)
    lost = path / "consumequeue" / "lost" / "0" / f"{0:020d}"
    lost.parent.mkdir(parents=True)
    lost.write_bytes(bytes(FILE_SIZE))
    with MessageStore.open(path, settings(100)) as store:
        assert not lost.exists()
        put_ok(store, "lost", b"first", queue_id=0)
        store.dispatch()
    with StoreReader.open(path) as reader:
        assert [(one.min_offset, one.max_offset) for one in reader.queues("lost")] == [(0, 1)]
        assert [one.body for one in reader.get_message("lost", 0, 0).messages] == [b"first"]
    assert_clean(path)


def test_recovery_removes_a_last_file_without_units(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = MessageStore.open(path, settings(100))
    for number in range(100):
        put_ok(store, "orders", b"%d" % number, queue_id=0)
    store.dispatch()
    store.flush()
    kill(store)
    lost = path / "consumequeue" / "orders" / "0" / f"{FILE_SIZE:020d}"
    lost.write_bytes(bytes(FILE_SIZE))
    with MessageStore.open(path, settings(100)) as store:
        assert not lost.exists()
        put_ok(store, "orders", b"next", queue_id=0)
        store.dispatch()
    with StoreReader.open(path) as reader:
        assert [(one.min_offset, one.max_offset) for one in reader.queues("orders")] == [(0, 101)]
    assert_clean(path)
