"""Saved positions after the end of the log was lost: by a power cut, or with files that are gone.

A position stands for work in the log. It is saved when that work is on the device, and where the log has lost the work
all the same, the position is noticed and made from the log again, before other messages take the places of lost ones.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from commitlog import FlushDiskType, Message, MessageStore, MessageStoreConfig
from tests.crash.simulated_disk import CrashImages, RecordingDisk, SyncedOnly
from tests.crash.workloads import kill
from tests.store.batch.batches import commit
from tests.store.retention.small_stores import SMALL, fill
from tests.support.delayed import Deliverer, bodies_of, delayed

__all__: list[str] = []

NEVER_MS = 3_600_000
SYNC = replace(SMALL, flush_disk_type=FlushDiskType.SYNC_FLUSH, schedule_enable=False)
# Nothing is flushed but where the store itself has to.
ASYNC = replace(
    SMALL,
    flush_disk_type=FlushDiskType.ASYNC_FLUSH,
    schedule_enable=False,
    flush_interval_commit_log=NEVER_MS,
    flush_commit_log_thorough_interval=NEVER_MS,
    flush_interval_consume_queue=NEVER_MS,
    flush_consume_queue_thorough_interval=NEVER_MS,
    flush_consumer_offset_interval=NEVER_MS,
)


def cut_power(recorder: RecordingDisk, memory: Path) -> Path:
    """The store as the device has it: nothing that was not synced is left."""
    images = CrashImages(recorder)
    images.advance(recorder.now)
    images.write(memory / "image", SyncedOnly())
    return memory / "image" / "store"


def lose_log(path: Path, start: int, file_size: int) -> None:
    """Zero a closed store's log from a physical offset on, as a device that lost it."""
    for file in sorted((path / "commitlog").iterdir()):
        base = int(file.name)
        if base + file_size > start:
            keep = max(start - base, 0)
            file.write_bytes(file.read_bytes()[:keep] + bytes(file_size - keep))


def end_a_half_message(store: MessageStore) -> int:
    """Roll back a half message, and return where its frame begins: a batch of no application."""
    handle = store.half_messages.prepare(Message(topic="orders", body=b"half"), "payments")
    place = store.physical_bounds()[1]
    store.half_messages.rollback(handle)
    return place


def commit_and_kill(path: Path, config: MessageStoreConfig, version: int, **wishes: bool) -> None:
    with MessageStore.open(path, config, **wishes) as store:  # type: ignore[arg-type]
        assert commit(store, version)
        kill(store)


def test_a_batch_is_stored_once_after_a_power_cut_that_lost_a_frame_before_it(memory: Path) -> None:
    """Cleaning saves the ledger beside messages that are not flushed."""
    recorder = RecordingDisk(memory)
    with recorder.recording():
        path = memory / "store"
        with MessageStore.open(path, ASYNC) as store:
            fill(store, 60)
        store = MessageStore.open(path, ASYNC)
        commit(store, 1)
        store.flush()
        end_a_half_message(store)
        assert store.clean(max_bytes=20_000).deleted
        kill(store)
    image = cut_power(recorder, memory)
    commit_and_kill(image, ASYNC, 2)
    with MessageStore.open(image, ASYNC) as store:
        assert not commit(store, 2), "it is in the log"


def test_a_batch_is_stored_once_in_a_log_that_lost_a_frame_that_the_ledger_counts(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SYNC) as store:
        commit(store, 1)
        place = end_a_half_message(store)
    lose_log(tmp_path, place, SYNC.mapped_file_size_commit_log)
    commit_and_kill(tmp_path, SYNC, 2, accept_lost_log=True)
    with MessageStore.open(tmp_path, SYNC) as store:
        assert [one.batch.version for one in store.batches()] == [2]
        assert not commit(store, 2), "it is in the log"


def test_a_delayed_message_is_delivered_once_in_a_log_that_lost_a_frame_that_the_ledger_counts(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SYNC) as store:
        store.put_message(delayed(b"a"))
        Deliverer(store).everything()
        place = end_a_half_message(store)
    lose_log(tmp_path, place, SYNC.mapped_file_size_commit_log)
    with MessageStore.open(tmp_path, SYNC, accept_lost_log=True) as store:
        store.put_message(delayed(b"b"))
        Deliverer(store, flush_interval_s=NEVER_MS).everything()
        kill(store)
    with MessageStore.open(tmp_path, SYNC) as store:
        Deliverer(store).everything()
        store.dispatch()
        assert bodies_of(store.path) == [b"a", b"b"]
