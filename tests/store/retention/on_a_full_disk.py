"""Retention on a disk that is full: ``python -m tests.store.retention.on_a_full_disk DIR``.

It runs in a mount namespace of its own, since a full disk may kill it (SIGBUS). It mounts a small file system at DIR,
and prints the name of each part that has passed, or fails.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.config import FlushDiskType
from commitlog_store.testing import kill
from tests.store.retention.small_stores import fill
from tests.support.clean_store import assert_clean
from tests.support.delayed import bodies_of, delayed
from tests.support.small_disks import fill_up, full, mount_tmpfs
from tests.support.waiting import wait_for

_CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=256 << 10,
    mapped_file_size_consume_queue=200 * 20,
    max_hash_slot_num=50,
    max_index_num=2000,
    retention_enable=True,
    message_delay_level="1s 1h",
)
# Without a watermark puts fill the disk to its last block.
_NO_WATERMARK = replace(_CONFIG, disk_space_warning_level_ratio=1.0)
# More than dispatch has space for, on a full disk.
_TOPICS = 64


def _delayed_messages_hold_a_disk_above_the_ratio(mount: Path) -> None:
    """They are delivered, and then the disk is cleaned; those after the first file wait until it is."""
    with MessageStore.open(mount / "store", _CONFIG) as store:
        for number in range(3):
            store.put_message(delayed(b"early %d" % number)).raise_for_status()
        _put_until_refused(store)
        fill_up(mount / "ballast", leave=1 << 20)
        wait_for(lambda: not store.writable)
        wait_for(lambda: len(bodies_of(store.path, "orders")) == 3)
        report = store.clean()
        assert report.deleted, report
        assert not report.holders
        (mount / "ballast").unlink()
        wait_for(lambda: store.writable)
    assert_clean(mount / "store")


def _late_messages_wait_on_a_disk_above_the_ratio(mount: Path) -> None:
    """What is delivered takes no more than the file that it frees."""
    with MessageStore.open(mount / "store", replace(_CONFIG, schedule_enable=False)) as store:
        for _ in range(20):
            store.put_message(delayed(bytes(100_000))).raise_for_status()
        store.dispatch()
    fill_up(mount / "ballast", leave=1 << 20)
    with MessageStore.open(mount / "store", _CONFIG) as store:
        assert not store.writable

        def all_but_the_last_are_delivered() -> bool:
            store.clean()
            found = os.statvfs(mount)
            assert found.f_bavail * found.f_frsize > 300_000, "one file of the log, delivered, and not yet deleted"
            return len(bodies_of(store.path, "SCHEDULE_TOPIC_XXXX")) == 0

        wait_for(all_but_the_last_are_delivered)
        (mount / "ballast").unlink()
        store.dispatch()
    assert_clean(mount / "store")


def _a_frame_that_finds_no_space_is_delivered_in_parts(mount: Path) -> None:
    """Without a watermark, all that is due would be one frame, of which the disk has room for a half."""
    with MessageStore.open(mount / "store", replace(_CONFIG, schedule_enable=False)) as store:
        for _ in range(20):
            store.put_message(delayed(bytes(100_000))).raise_for_status()
        store.dispatch()
    fill_up(mount / "ballast", leave=3 << 19)
    with MessageStore.open(mount / "store", _NO_WATERMARK) as store:

        def all_are_delivered() -> bool:
            store.clean(max_bytes=1 << 20)
            return len(bodies_of(store.path, "SCHEDULE_TOPIC_XXXX")) == 0

        wait_for(all_are_delivered)
        (mount / "ballast").unlink()
        store.dispatch()
    assert_clean(mount / "store")


def _put_until_refused(store: MessageStore) -> None:
    for _ in range(100_000):
        if not store.put_message(Message(topic="filling", queue_id=0, body=bytes(3_000))).ok:
            return
    raise AssertionError("the disk never filled up")


def _many_applications_need_no_space_to_be_cleaned(mount: Path, count: int) -> None:
    """No byte is left on the disk when the ledger is written for the first time, and for the second."""
    with MessageStore.open(mount / "store", _NO_WATERMARK) as store:
        _commit(store, range(count * 3 // 2))
        _end_half_messages(store)
        fill(store, 100, topic="filling", size=6_000)
        with full(mount):
            _cleans_all(store)
        _commit(store, range(count, 2 * count), version=2)
        fill(store, 100, topic="filling", size=6_000)
        with full(mount):
            _cleans_all(store)
            kill(store)
    with MessageStore.open(mount / "store", _NO_WATERMARK) as store:
        versions = {one.batch.app_id: one.batch.version for one in store.batches()}
        assert versions == {_app(number): 1 if number < count else 2 for number in range(2 * count)}
        with store.transaction(_app(7), 1) as batch:
            assert batch.already_there
    assert_clean(mount / "store")


def _commit(store: MessageStore, numbers: range, version: int = 1) -> None:
    for number in numbers:
        with store.transaction(_app(number), version) as batch:
            batch.put_messages([{"body": b"x", "queueId": 0}], topic="orders")


def _app(number: int) -> str:
    return f'loader-"{number}"-\x01-é'


def _end_half_messages(store: MessageStore) -> None:
    for number in range(4):
        handle = store.half_messages.prepare(Message(topic="orders", queue_id=0, body=b"half"), "group")
        if number % 2:
            store.half_messages.commit(handle)
        else:
            store.half_messages.rollback(handle)


def _cleans_all(store: MessageStore) -> None:
    report = store.clean(max_bytes=0)
    assert not report.holders, report.holders
    assert report.deleted
    start, end = store.physical_bounds()
    assert end - start <= _CONFIG.mapped_file_size_commit_log


def _a_closed_store_is_opened_and_cleaned(mount: Path) -> None:
    """Also where the program that cleans is another one, as the command ``clean`` is."""
    with MessageStore.open(mount / "store", _NO_WATERMARK) as store:
        _commit(store, range(30))
        fill(store, 200, topic="filling", size=6_000)
    with full(mount), MessageStore.open(mount / "store", _NO_WATERMARK) as store:
        _cleans_all(store)
    with StoreReader.open(mount / "store") as reader:
        assert len(reader.batches()) == 30
    assert_clean(mount / "store")


def _files_before_undispatched_messages_go(mount: Path, flush: FlushDiskType) -> None:
    """Dispatch has no space for a queue, which would keep the disk full indefinitely."""
    config = replace(_NO_WATERMARK, flush_disk_type=flush)
    with MessageStore.open(mount / "store", config) as store:
        fill(store, 200, topic="filling", size=6_000)
        for number in range(_TOPICS):  # a topic that is not listed takes space for the list
            store.create_topic(f"new-{number}", 1)
        with full(mount):
            taken = 0
            # Each goes to a queue of its own. Refused is the one after dispatch found no space, or the log itself.
            while taken < 20 and store.put_message(Message(topic=f"new-{taken}", queue_id=0, body=b"x")).ok:
                taken += 1
            assert taken
            report = store.clean(max_bytes=0)
            assert report.deleted
            wait_for(lambda: store.writable)
            store.dispatch()
            assert bodies_of(store.path, f"new-{taken - 1}") == [b"x"]
    assert_clean(mount / "store")


PARTS: dict[str, Callable[[Path], None]] = {
    "delayed messages above the ratio": _delayed_messages_hold_a_disk_above_the_ratio,
    "late messages above the ratio": _late_messages_wait_on_a_disk_above_the_ratio,
    "a large frame": _a_frame_that_finds_no_space_is_delivered_in_parts,
    "a ledger of 400 applications": lambda mount: _many_applications_need_no_space_to_be_cleaned(mount, 200),
    "a ledger of 2,000 applications": lambda mount: _many_applications_need_no_space_to_be_cleaned(mount, 1_000),
    "a closed store": _a_closed_store_is_opened_and_cleaned,
    "undispatched, async": lambda mount: _files_before_undispatched_messages_go(mount, FlushDiskType.ASYNC_FLUSH),
    "undispatched, sync": lambda mount: _files_before_undispatched_messages_go(mount, FlushDiskType.SYNC_FLUSH),
}


def main(mount: Path, name: str) -> None:
    """One part, on a disk of its own."""
    mount_tmpfs(mount, "16m")
    PARTS[name](mount)
    print("fine")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
