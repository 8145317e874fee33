"""Recovery of parts that are missing or unsafe although the log does not show it."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import os
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from commitlog_store import FlushDiskType, Message, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.columnar.dispatch import GroupedUnits, QueueUnits
from commitlog_store.errors import LogShort, StoreIOError
from commitlog_store.files import disk
from commitlog_store.format.checkpoint import decode_checkpoint, decode_mark
from commitlog_store.format.consume_queue_unit import FILLER_SIZE, UNIT_FILE_DTYPE
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.queue.catalog import QueueCatalog
from commitlog_store.queue.consume_queue_store import ConsumeQueueStore
from commitlog_store.queue.consume_queue_writer import ConsumeQueueWriter, OpenFiles
from commitlog_store.queue.new_names import NewNames
from commitlog_store.testing import kill, parts_of
from tests.crash.simulated_disk import CrashImages, RecordingDisk
from tests.crash.stored_messages import check_store, log_records
from tests.crash.workloads import slow_clock, small_config
from tests.support.clean_store import assert_clean
from tests.support.waiting import WAIT_LIMIT_S

SYNC, ASYNC = FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH
CONFIG = small_config(SYNC)
# Nothing is flushed or written to the checkpoint but by hand.
QUIET = dataclasses.replace(
    CONFIG, flush_interval_consume_queue=3_600_000, flush_consume_queue_thorough_interval=3_600_000
)


def put(store: MessageStore, count: int, *, topic: str = "topic", first: int = 0) -> None:
    for number in range(first, first + count):
        message = Message(topic=topic, body=b"%05d" % number * 20, keys=[f"key-{number}"], queue_id=0)
        store.put_message(message).raise_for_status()


def crashed_store(path: Path, config: MessageStoreConfig = CONFIG) -> None:
    """Killed long after the last flush of everything: recovery starts near the log's end."""
    with slow_clock():
        store = MessageStore.open(path, config)
        put(store, 60, topic="early")
        put(store, 240)
        store.flush()
        kill(store)


def files_of(directory: Path) -> list[Path]:
    return sorted(one for one in directory.iterdir() if one.is_file())


@pytest.mark.parametrize("which", [0, 2, -1])
def test_a_missing_queue_file_of_a_closed_store_is_built_again(which: int, memory: Path) -> None:
    """Otherwise queue offsets would be handed out twice."""
    store = memory / "store"
    with MessageStore.open(store, CONFIG) as opened:
        put(opened, 250)
    files_of(store / "consumequeue" / "topic" / "0")[which].unlink()
    with MessageStore.open(store, CONFIG) as opened:
        assert opened.recovered is not None
        assert opened.put_message(Message(topic="topic", body=b"next", queue_id=0)).queue_offset == 250
    check_store(store, log_records(store))


@pytest.mark.parametrize(
    "missing",
    [
        "consumequeue/early",
        "consumequeue/early/0",
        f"consumequeue/early/0/{0:020d}",
        f"consumequeue/topic/0/{1000:020d}",
        "index",
    ],
)
def test_parts_missing_from_before_the_scan_of_a_crashed_store_are_built_again(missing: str, memory: Path) -> None:
    store = memory / "store"
    crashed_store(store)
    records = log_records(store)
    gone = store / missing
    if gone.is_dir():
        shutil.rmtree(gone)
    else:
        gone.unlink()
    with MessageStore.open(store, CONFIG) as opened:
        assert opened.recovered is not None
        assert opened.recovered.started_at == 0
    check_store(store, records)


def test_a_crashed_store_that_lacks_nothing_is_scanned_near_its_end_only(memory: Path) -> None:
    store = memory / "store"
    crashed_store(store)
    with MessageStore.open(store, CONFIG) as opened:
        assert opened.recovered is not None
        assert opened.recovered.started_at > 0
    check_store(store, log_records(store))


@pytest.mark.parametrize("entries", range(9, 21))
def test_no_index_entry_is_lost_between_the_index_files_and_the_scan(entries: int, memory: Path) -> None:
    """Some of them are full with the last message before the scan's start: that one is not indexed again."""
    store = memory / "store"
    crashed_store(store, dataclasses.replace(CONFIG, max_index_num=entries + 1))
    with MessageStore.open(store, CONFIG) as opened:
        assert opened.recovered is not None
        assert opened.recovered.started_at > 0
    check_store(store, log_records(store))
    assert_clean(store)


def test_a_missing_index_is_detected_by_the_times_of_rocketmqs_checkpoint_too(memory: Path) -> None:
    store = memory / "store"
    crashed_store(store)
    checkpoint = store / "checkpoint"
    data = checkpoint.read_bytes()
    checkpoint.write_bytes(data[:512] + bytes(len(data) - 512))
    shutil.rmtree(store / "index")
    with MessageStore.open(store, CONFIG):
        pass
    check_store(store, log_records(store))


def losing(recorder: RecordingDisk, part: str) -> Callable[[int], None]:
    """``disk.sync`` that fails for the files of one directory, and loses what it was for."""
    real = disk.sync

    def sync(descriptor: int) -> None:
        if f"/{part}/" in os.readlink(f"/proc/self/fd/{descriptor}"):
            recorder.sync_failed(descriptor)
            raise OSError(errno.EIO, "injected")
        real(descriptor)

    return sync


@pytest.mark.parametrize("part", ["commitlog", "consumequeue"])
def test_bytes_that_a_failed_sync_lost_are_written_again_before_they_count_as_safe(part: str, memory: Path) -> None:
    """The kernel shows it, and takes it for clean: the next sync would say that all is well."""
    root = memory / "run"
    root.mkdir()
    recorder = RecordingDisk(root)
    with recorder.recording():
        with MessageStore.open(root / "store", QUIET) as store:
            put(store, 5)
        store = MessageStore.open(root / "store", QUIET)
        put(store, 60, first=5)  # more than the sector that the next put dirties
        with pytest.MonkeyPatch.context() as patch:
            store.dispatch()
            patch.setattr(disk, "sync", losing(recorder, part))
            if part == "commitlog":
                assert not store.put_message(Message(topic="topic", body=b"unknown" * 200, queue_id=0)).ok
            else:
                with pytest.raises(StoreIOError):
                    store.flush()
        kill(store)
        store = MessageStore.open(root / "store", QUIET)
        put(store, 1, first=65)
        if part == "consumequeue":
            store.close()
        stopped = recorder.now
        there = log_records(root / "store")
        if part == "commitlog":
            kill(store)
    crashes = CrashImages(recorder)
    crashes.advance(stopped)
    for seed in range(5):
        crashes.write(memory / "stopped", random.Random(seed))
        image = memory / "stopped" / "store"
        with MessageStore.open(image, CONFIG) as opened:
            assert (opened.recovered is None) == (part == "consumequeue")
            assert log_records(image) == there
            check_store(image, there)


def test_messages_put_without_an_index_are_indexed_when_it_is_enabled(memory: Path) -> None:
    store = memory / "store"
    without = dataclasses.replace(CONFIG, message_index_enable=False)
    for config, first in ((CONFIG, 0), (without, 10), (CONFIG, 20)):
        with MessageStore.open(store, config) as opened:
            put(opened, 10, first=first)
    check_store(store, log_records(store))
    with MessageStore.open(store, CONFIG) as opened:
        assert opened.recovered is None


def test_a_store_of_messages_without_keys_is_not_indexed_again(memory: Path) -> None:
    store = memory / "store"
    with MessageStore.open(store, CONFIG) as opened:
        opened.put_message(Message(topic="topic", body=b"no key", properties={}, queue_id=0)).raise_for_status()
    values = decode_checkpoint((store / "checkpoint").read_bytes())
    assert values.index_msg_timestamp == values.physic_msg_timestamp > 0
    with MessageStore.open(store, CONFIG) as opened:
        assert opened.recovered is None


def test_a_record_in_the_place_of_one_that_was_cut_off_is_indexed(memory: Path) -> None:
    store = memory / "store"
    with MessageStore.open(store, CONFIG) as opened:
        put(opened, 8)
    last = log_records(store)[-1]
    with open(store / "commitlog" / f"{0:020d}", "r+b") as stream:
        stream.seek(last.physical_offset)
        stream.write(bytes(last.size))
    with pytest.raises(LogShort, match=f"{last.size} bytes are missing at its end, with 1 message"):
        MessageStore.open(store, CONFIG)
    with MessageStore.open(store, CONFIG, accept_lost_log=True) as opened:
        result = opened.put_message(Message(topic="topic", body=b"x", keys=["another"], queue_id=0))
        assert (result.physical_offset, result.queue_offset) == (last.physical_offset, last.queue_offset)
    check_store(store, log_records(store))
    with StoreReader.open(store) as reader:
        assert not list(reader.query("topic", "key-7"))


def test_the_checkpoint_is_synced_only_when_it_changed(memory: Path) -> None:
    root = memory / "run"
    root.mkdir()
    recorder = RecordingDisk(root)
    with recorder.recording():
        store = MessageStore.open(root / "store", QUIET)
        put(store, 3)
        store.flush()
        written = recorder.now
        parts_of(store).engine.store_flush.write_checkpoint()
        checkpoint = recorder._files[str(root / "store" / "checkpoint")]
        assert checkpoint not in [one.file for one in recorder.operations[written:]]
        end = parts_of(store).engine.log.files.flushed_where
        kill(store)
    crashes = CrashImages(recorder)
    crashes.advance(written)
    for seed in range(5):
        crashes.write(memory / "stopped", random.Random(seed))
        mark = decode_mark((memory / "stopped" / "store" / "checkpoint").read_bytes())
        assert mark is not None
        assert mark.flushed_offset == end
        assert (mark.queue_file_count, mark.index_file_count) == (1, 1)


def units_from(first: int, count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    units = np.zeros(count, UNIT_FILE_DTYPE)
    units["physical_offset"] = np.arange(count) * 100
    units["size"] = 100
    return np.arange(first, first + count), units


@pytest.mark.parametrize("turn", [0, 1], ids=["fillers", "units"])
def test_a_queue_that_begins_with_fillers_continues_once_space_is_available(
    turn: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "consumequeue" / "topic" / "0"
    path.parent.mkdir(parents=True)
    writer = ConsumeQueueWriter(str(path), "topic", 0, 1000, OpenFiles(), NewNames())
    real, calls = disk.write_at, itertools.count()

    def write_at(descriptor: int, data: Any, offset: int) -> None:
        if next(calls) == turn:
            raise OSError(errno.ENOSPC, "injected")
        real(descriptor, data, offset)

    monkeypatch.setattr(disk, "write_at", write_at)
    with pytest.raises(StoreIOError):
        writer.append(*units_from(30, 5))
    writer.append(*units_from(30, 5))
    assert writer.next_offset == 35
    assert writer.read(0, 50)["size"].tolist() == [FILLER_SIZE] * 30 + [100] * 5 + [0] * 15
    assert writer.begin_sync() == {str(path / f"{0:020d}")}


def queues_below(path: Path) -> ConsumeQueueStore:
    return ConsumeQueueStore(str(path), 1000, QueueCatalog(str(path), CommitLog(str(path / "commitlog"))))


def test_dispatch_and_puts_continue_while_queues_are_synced(tmp_path: Path) -> None:
    queues = queues_below(tmp_path)
    queues.append(GroupedUnits.of([QueueUnits("topic", 0, *units_from(0, 5))]))
    real = disk.sync
    seen: list[int] = []

    def sync(descriptor: int) -> None:
        patch.undo()
        other = threading.Thread(target=lambda: seen.append(queues.next_offset("other", 0)))
        other.start()
        other.join(WAIT_LIMIT_S)
        real(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "sync", sync)
        queues.flush_all()
    assert seen == [0]
    queues.close()


def test_a_queue_sync_that_failed_is_not_tried_again(tmp_path: Path) -> None:
    queues = queues_below(tmp_path)
    queues.append(GroupedUnits.of([QueueUnits("topic", 0, *units_from(0, 5))]))

    def sync(descriptor: int) -> None:
        raise OSError(errno.EIO, "injected")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "sync", sync)
        with pytest.raises(StoreIOError):
            queues.flush_all()
    assert queues.writer("topic", 0).dirty_pages
    with pytest.raises(StoreIOError):
        queues.flush_all()
    queues.close()


def test_queue_files_are_counted_as_they_come_and_go(tmp_path: Path) -> None:
    queues = queues_below(tmp_path)
    queues.append(
        GroupedUnits.of([QueueUnits("topic", 0, *units_from(0, 130)), QueueUnits("topic", 7, *units_from(0, 1))])
    )
    assert queues.file_count == 0  # a power cut may still lose them
    queues.flush_all()
    assert queues.file_count == 4
    queues.writer("topic", 0).cut(60)
    assert queues.file_count == 3
    queues.close()
    assert queues_below(tmp_path).survey().count == 3


def test_the_abort_file_exists_at_every_moment_of_the_recovery(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery writes ``abort`` again; a crash in between must not look like a clean close."""
    crashed_store(memory / "crashed")
    shutil.rmtree(memory / "crashed" / "index")
    store = memory / "store"
    shutil.copytree(memory / "crashed", store)
    seen: list[bool] = []

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            try:
                return real(*arguments, **named)
            finally:
                seen.append((store / "abort").exists())

        return call

    for name in ("write_at", "sync", "sync_directory", "rename", "unlink", "create_file"):
        monkeypatch.setattr(disk, name, watched(getattr(disk, name)))
    kill(MessageStore.open(store, CONFIG))
    assert len(seen) > 10
    assert all(seen)


def test_a_store_that_was_not_closed_is_recovered_though_only_its_checkpoint_says_so(memory: Path) -> None:
    """Of what was not flushed a crash may leave anything; after a clean close it would be damage."""
    store = memory / "store"
    never = 3_600_000
    config = dataclasses.replace(QUIET, flush_disk_type=ASYNC, flush_interval_commit_log=never)
    opened = MessageStore.open(store, config)
    put(opened, 30)
    opened.flush()
    put(opened, 2)
    kill(opened)
    records = log_records(store)
    log = files_of(store / "commitlog")[0]
    with log.open("r+b") as file:
        file.seek(records[-2].physical_offset)
        file.write(bytes(records[-2].size))
    (store / "abort").unlink()
    with MessageStore.open(store, CONFIG) as opened:
        assert opened.recovered is not None
    assert log_records(store) == records[:-2]
    check_store(store, records[:-2])
    assert_clean(store)
