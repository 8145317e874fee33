"""Disk use grows with data: files have RocketMQ's sizes from the beginning, and their space comes in steps."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from commitlog_store import FlushDiskType, Message, MessageStore, MessageStoreConfig
from commitlog_store.files import space
from tests.support.clean_store import assert_clean
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is allocated")

_AHEAD = 64 << 20
_MIB = 1 << 20


def settings(**others: Any) -> MessageStoreConfig:
    """RocketMQ's defaults, without a watermark: how full the tests' disk is does not matter here."""
    return MessageStoreConfig(**{"disk_space_warning_level_ratio": 1.0} | others)


def taken(path: Path) -> int:
    """The bytes that all files below a directory take on disk."""
    return sum(file.stat().st_blocks * 512 for file in path.rglob("*") if file.is_file())


def table(rows: int, size: int) -> pa.Table:
    body = np.random.default_rng(1).bytes(size)
    return pa.table({"body": [body] * rows, "keys": [f"key-{row}" for row in range(rows)]})


@pytest.mark.parametrize("flush", list(FlushDiskType), ids=lambda flush: flush.value)
def test_a_new_store_takes_little_and_its_files_have_their_sizes(tmp_path: Path, flush: FlushDiskType) -> None:
    with MessageStore.open(tmp_path, settings(flush_disk_type=flush)) as store:
        store.put_message(Message(topic="orders", body=b"first", queue_id=0)).raise_for_status()
        assert taken(tmp_path / "commitlog") <= 4 * _MIB + 4096
        store.put_message(Message(topic="orders", body=b"second", keys=["key"], queue_id=1)).raise_for_status()
        store.dispatch()
        assert taken(tmp_path) <= 25 * _MIB
    (log,) = (tmp_path / "commitlog").iterdir()
    (index,) = (tmp_path / "index").iterdir()
    sizes = {one.stat().st_size for one in (tmp_path / "consumequeue").rglob("*") if one.is_file()}
    assert (log.stat().st_size, index.stat().st_size, sizes) == (1 << 30, 420_000_040, {6_000_000})
    assert_clean(tmp_path)


def test_a_store_takes_at_most_64_mebibytes_more_than_its_data(tmp_path: Path) -> None:
    """While it grows, with a file of the log ahead of the one that is written."""
    rows = table(2_000, 4_000)
    config = settings(mapped_file_size_commit_log=96 << 20)
    with MessageStore.open(tmp_path, config) as store:
        for _ in range(19):
            store.put_messages(rows, topic="orders").raise_for_status()
            store.dispatch()
            assert taken(tmp_path) <= store.physical_bounds()[1] + _AHEAD
        wait_for(lambda: len(list((tmp_path / "commitlog").iterdir())) == 4)  # the second is half full
        assert taken(tmp_path) <= store.physical_bounds()[1] + _AHEAD


def test_many_queues_take_a_block_each(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, settings()) as store:
        for number in range(100):
            store.put_message(Message(topic=f"topic-{number}", body=b"x", queue_id=0)).raise_for_status()
        store.dispatch()
        assert taken(tmp_path / "consumequeue") <= 100 * 4096


def test_a_store_that_is_opened_again_and_again_takes_no_more(tmp_path: Path) -> None:
    for number in range(5):
        with MessageStore.open(tmp_path, settings()) as store:
            store.put_message(Message(topic="orders", body=bytes(number), queue_id=0)).raise_for_status()
    assert taken(tmp_path / "commitlog") <= 4 * _MIB + 4096


def test_opening_and_reading_allocate_nothing(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, settings(mapped_file_size_commit_log=32 << 20)) as store:
        store.put_message(Message(topic="orders", body=b"first", queue_id=0)).raise_for_status()
    log = tmp_path / "commitlog" / f"{0:020d}"
    made_sparse(log)
    before = log.stat().st_blocks
    with MessageStore.open(tmp_path, settings()) as store:
        assert store.recovered is None
        assert log.stat().st_blocks == before
    assert log.stat().st_blocks == before


@pytest.mark.parametrize("whole", [False, True], ids=["sparse", "allocated"])
def test_a_file_of_another_program_is_continued(tmp_path: Path, whole: bool) -> None:
    """A broker leaves files with holes, or warm ones without; a copy may have holes anywhere after the end."""
    with MessageStore.open(tmp_path, settings(mapped_file_size_commit_log=8 << 20)) as store:
        store.put_message(Message(topic="orders", body=bytes(100_000), queue_id=0)).raise_for_status()
        end = store.physical_bounds()[1]
    log = tmp_path / "commitlog" / f"{0:020d}"
    if whole:
        with log.open("r+b") as stream:
            os.posix_fallocate(stream.fileno(), 0, 8 << 20)
    else:
        made_sparse(log)
        assert log.stat().st_blocks * 512 < end + 4096
    with MessageStore.open(tmp_path) as store:
        for number in range(900):
            store.put_message(
                Message(topic="orders", body=bytes([number % 251]) * 8_000, queue_id=0)
            ).raise_for_status()
    assert_clean(tmp_path)


def made_sparse(path: Path) -> None:
    """Leave a file no space for its zeros, as ``cp --sparse=always`` does."""
    data, size = path.read_bytes().rstrip(b"\0"), path.stat().st_size
    with path.open("r+b") as stream:
        stream.truncate(0)
        stream.truncate(size)
        stream.write(data)
        os.fsync(stream.fileno())


def test_what_a_crash_leaves_after_the_end_takes_no_space_after_recovery(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, settings(mapped_file_size_commit_log=32 << 20)) as store:
        store.put_message(Message(topic="orders", body=b"first", queue_id=0)).raise_for_status()
        end = store.physical_bounds()[1]
    log = tmp_path / "commitlog" / f"{0:020d}"
    with log.open("r+b") as stream:
        stream.seek(end)
        stream.write(b"torn" * (5 << 20))
    (tmp_path / "abort").touch()
    with MessageStore.open(tmp_path) as store:
        assert store.physical_bounds()[1] == end
        assert taken(tmp_path / "commitlog") <= 4096
        assert not any(log.read_bytes()[end:])
        store.put_message(Message(topic="orders", body=b"second", queue_id=0)).raise_for_status()
    assert_clean(tmp_path)


def test_warm_files_take_all_of_their_space(tmp_path: Path) -> None:
    """Every page of them is written, so that no put touches a new one."""
    config = settings(mapped_file_size_commit_log=32 << 20, warm_mapped_file_enable=True)
    with MessageStore.open(tmp_path, config) as store:
        store.put_message(Message(topic="orders", body=b"first", queue_id=0)).raise_for_status()
        assert taken(tmp_path / "commitlog") >= 32 << 20


def test_space_is_allocated_before_a_put_needs_it(tmp_path: Path) -> None:
    """By the service, so that single puts do not wait for it."""
    with MessageStore.open(tmp_path, settings()) as store:
        body = bytes(500_000)
        while store.physical_bounds()[1] <= space.FIRST_STEP // 2:
            store.put_message(Message(topic="orders", body=body, queue_id=0)).raise_for_status()
        wait_for(lambda: taken(tmp_path / "commitlog") >= 2 * space.FIRST_STEP)
        assert store.physical_bounds()[1] < space.FIRST_STEP
