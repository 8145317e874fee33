"""New queues are made without a sync: the flush of the queues syncs their names, before the checkpoint counts them."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from pathlib import Path

import pytest

from commitlog_store import FlushDiskType, Message, MessageStore, StoreReader
from commitlog_store.log.store_checkpoint import read_mark
from commitlog_store.testing import kill, parts_of
from tests.crash.simulated_disk import CrashImages, RecordingDisk, SyncedOnly
from tests.crash.stored_messages import check_store, log_records
from tests.crash.workloads import small_config

QUEUES = 20
# Nothing is flushed or written to the checkpoint but by hand.
NEVER = 3_600_000
QUIET_ASYNC = dataclasses.replace(
    small_config(FlushDiskType.ASYNC_FLUSH),
    flush_interval_commit_log=NEVER,
    flush_interval_consume_queue=NEVER,
    flush_consume_queue_thorough_interval=NEVER,
)


def put_to_each(store: MessageStore, topic: str, queues: int = QUEUES) -> None:
    for number in range(queues):
        store.put_message(Message(topic=f"{topic}-{number}", body=b"x" * 50, queue_id=0)).raise_for_status()


def synced_below(recorder: RecordingDisk, first: int, root: Path) -> Counter[str]:
    """How often each directory below ``root`` was synced since an operation."""
    below = str(root)
    return Counter(
        one.path for one in recorder.operations[first:] if one.kind == "syncdir" and one.path.startswith(below)
    )


def test_dispatch_to_new_queues_syncs_nothing_and_the_flush_syncs_each_directory_once(memory: Path) -> None:
    root = memory / "run"
    root.mkdir()
    recorder = RecordingDisk(root)
    with recorder.recording():
        store = MessageStore.open(root / "store", QUIET_ASYNC)
        put_to_each(store, "new")
        begun = recorder.now
        store.dispatch()
        queues = root / "store" / "consumequeue"
        assert not synced_below(recorder, begun, queues)
        assert parts_of(store).engine.log.queues.file_count == 0
        begun = recorder.now
        store.flush()
        synced = synced_below(recorder, begun, queues)
        assert set(synced.values()) == {1}
        assert len(synced) == 1 + 2 * QUEUES  # the root's, the topics', the queues'
        assert parts_of(store).engine.log.queues.file_count == QUEUES
        kill(store)


@pytest.mark.parametrize("seed", range(12))
def test_new_queues_that_a_power_cut_has_lost_are_made_again(seed: int, memory: Path) -> None:
    """The checkpoint is older than the queues, so recovery reads the log from before them."""
    root = memory / "run"
    root.mkdir()
    recorder = RecordingDisk(root)
    with recorder.recording():
        store = MessageStore.open(root / "store", QUIET_ASYNC)
        put_to_each(store, "old")
        store.flush()
        put_to_each(store, "new")
        store.dispatch()
        parts_of(store).engine.store_flush.flush_log()
        parts_of(store).engine.store_flush.write_checkpoint()
        kill(store)
    records = log_records(root / "store")
    crashes = CrashImages(recorder)
    crashes.advance(recorder.now)
    image = memory / "cut"
    crashes.write(image, SyncedOnly() if seed == 0 else random.Random(seed))
    store_path = image / "store"
    mark = read_mark(str(store_path / "checkpoint"))
    assert mark is not None
    assert mark.queue_file_count == QUEUES
    if seed == 0:
        assert sorted(one.name for one in (store_path / "consumequeue").iterdir()) == sorted(
            f"old-{number}" for number in range(QUEUES)
        )
    with MessageStore.open(store_path, QUIET_ASYNC) as store:
        assert store.recovered is not None
        assert store.put_message(Message(topic="new-3", body=b"next", queue_id=0)).queue_offset == 1
    check_store(store_path, log_records(store_path))
    assert len(log_records(store_path)) == len(records) + 1


def test_queues_made_before_a_kill_are_on_the_device_once_the_next_owner_has_opened_the_store(memory: Path) -> None:
    """Nothing remembers which names the killed process left unsynced."""
    root = memory / "run"
    root.mkdir()
    killed = MessageStore.open(root / "store", QUIET_ASYNC)
    put_to_each(killed, "new")
    killed.dispatch()
    kill(killed)
    recorder = RecordingDisk(root)
    with recorder.recording():
        store = MessageStore.open(root / "store", QUIET_ASYNC)
        assert parts_of(store).engine.log.queues.file_count == QUEUES
        kill(store)
    synced = synced_below(recorder, 0, root / "store")
    queues = root / "store" / "consumequeue"
    expected = {str(root / "store"), str(queues)}
    expected |= {str(queues / f"new-{number}") for number in range(QUEUES)}
    expected |= {str(queues / f"new-{number}" / "0") for number in range(QUEUES)}
    assert expected <= set(synced)


def test_a_close_after_new_queues_leaves_a_store_that_a_power_cut_opens_clean(memory: Path) -> None:
    root = memory / "run"
    root.mkdir()
    recorder = RecordingDisk(root)
    with recorder.recording():
        with MessageStore.open(root / "store", QUIET_ASYNC) as store:
            put_to_each(store, "new")
        crashes = CrashImages(recorder)
        crashes.advance(recorder.now)
    crashes.write(memory / "cut", SyncedOnly())
    with MessageStore.open(memory / "cut" / "store", QUIET_ASYNC) as store:
        assert store.recovered is None
    with StoreReader.open(memory / "cut" / "store") as reader:
        assert len(reader.topics()) == QUEUES
