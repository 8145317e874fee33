"""Consume queues that are older than the log, as in a backup whose parts were copied at different times."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from commitlog_store import MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.testing import kill
from tests.support.clean_store import assert_clean

UNITS_PER_FILE = 5
CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=4 << 10,
    mapped_file_size_consume_queue=UNITS_PER_FILE * 20,
    max_hash_slot_num=10,
    max_index_num=40,
    disk_space_warning_level_ratio=1.0,
)


def put(store: MessageStore, first: int, stop: int) -> None:
    for number in range(first, stop):
        assert store.put("orders", b"%d:" % number + b"x" * 500, queue_id=0).queue_offset == number
    store.dispatch()


def bodies(path: Path) -> tuple[int, list[int]]:
    """The queue's first offset, and the numbers of its messages."""
    with StoreReader.open(path) as reader:
        info = reader.queue_info("orders", 0)
        batches = list(reader.read("orders", 0, info.min_offset, info.max_offset, columns=["body"], verify_crc=True))
        return info.min_offset, [int(body.split(b":")[0]) for batch in batches for body in batch["body"].to_pylist()]


@pytest.mark.parametrize("rebuild", [False, True])
@pytest.mark.parametrize("copied_at", [1, 4, 5, 9, 11, 19, 20, 22])
def test_queues_that_end_before_the_log_begins_are_written_again(tmp_path: Path, copied_at: int, rebuild: bool) -> None:
    """Between their last unit and the first message that is left, no hole stays, in whichever file."""
    path, copy = tmp_path / "store", tmp_path / "older"
    with MessageStore.open(path, CONFIG) as store:
        put(store, 0, copied_at)
        shutil.copytree(path / "consumequeue", copy)
        put(store, copied_at, 60)
        store.clean(max_bytes=6 * CONFIG.mapped_file_size_commit_log)
    start, numbers = bodies(path)
    assert start > copied_at
    assert start % UNITS_PER_FILE, "the first message is within a queue file"
    shutil.rmtree(path / "consumequeue")
    shutil.copytree(copy, path / "consumequeue")
    with MessageStore.open(path, CONFIG, rebuild=rebuild):
        pass
    assert bodies(path) == (start, numbers)
    assert_clean(path)


@pytest.mark.parametrize("rebuild", [False, True])
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("deleted", [1, 4, 5, 7])
def test_messages_of_a_deleted_topic_do_not_come_back_with_older_queues(
    tmp_path: Path, deleted: int, killed: bool, rebuild: bool
) -> None:
    path, copy = tmp_path / "store", tmp_path / "older"
    store = MessageStore.open(path, CONFIG)
    put(store, 0, deleted)
    shutil.copytree(path / "consumequeue", copy)
    store.delete_topic("orders", with_messages=True)
    put(store, deleted, deleted + 3)
    if killed:
        kill(store)
    else:
        store.close()
    shutil.rmtree(path / "consumequeue")
    shutil.copytree(copy, path / "consumequeue")
    with MessageStore.open(path, CONFIG, rebuild=rebuild):
        pass
    assert bodies(path) == (deleted, list(range(deleted, deleted + 3)))
    assert_clean(path)
