"""Saved positions after the end of the log was lost: by a power cut, or with files that are gone.

A position stands for work in the log. It is saved when that work is on the device, and where the log has lost the work
all the same, the position is noticed and made from the log again, before other messages take the places of lost ones.
"""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from commitlog_store import FlushDiskType, Message, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.batch import ledger
from commitlog_store.batch.visibility import GateReader
from commitlog_store.columnar.batch_frame import decode_frame
from commitlog_store.delayed.levels import DelayOffsetFile
from commitlog_store.errors import DiskFull, LogShort
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.owned_store.owned_store import OwnedStore
from commitlog_store.paths import BATCH_TOPIC
from commitlog_store.testing import kill, parts_of
from tests.crash.batch_workloads import BatchRun
from tests.crash.batch_workloads import commit as commit_rows
from tests.crash.crash_images import check_images
from tests.crash.simulated_disk import CrashImages, RecordingDisk, SyncedOnly
from tests.crash.stored_messages import log_records
from tests.crash.workloads import slow_clock, small_config
from tests.store.batch.batches import commit
from tests.store.retention.small_stores import SMALL, fill
from tests.support.clean_store import assert_clean
from tests.support.delayed import Deliverer, bodies_of, delayed
from tests.support.long_runs import part_of

IMAGES, STRESS_IMAGES = 6, part_of(200)
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


def deliver_and_save(store: MessageStore) -> None:
    deliverer = Deliverer(store, flush_interval_ms=NEVER_MS)
    deliverer.everything()
    deliverer.service._save_flushed()


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


def test_a_lost_batch_is_stored_again_though_the_ledger_had_no_space_when_the_loss_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the log begins after the place of the lost frame, it looks like one that retention has removed."""
    with MessageStore.open(tmp_path, SYNC) as store:
        place = store.physical_bounds()[1]
        commit(store, 1)
    lose_log(tmp_path, place, SYNC.mapped_file_size_commit_log)
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "replace_durably", _no_space)
        store = MessageStore.open(tmp_path, SYNC, accept_lost_log=True)
    with store:
        fill(store, 100)
        with monkeypatch.context() as patch:
            patch.setattr(ledger, "replace_durably", _no_space)
            report = store.clean(max_bytes=0)
            assert (report.deleted, len(report.holders)) == ([], 1)
        assert store.clean(max_bytes=0).deleted
        kill(store)
    with MessageStore.open(tmp_path, SYNC) as store:
        assert commit(store, 1)


def _no_space(path: str, *_: object, **__: object) -> None:
    raise DiskFull("write", path=path, cause=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def test_a_delayed_message_is_delivered_once_in_a_log_that_lost_a_frame_that_the_ledger_counts(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SYNC) as store:
        store.put_message(delayed(b"a"))
        Deliverer(store).everything()
        place = end_a_half_message(store)
    lose_log(tmp_path, place, SYNC.mapped_file_size_commit_log)
    with MessageStore.open(tmp_path, SYNC, accept_lost_log=True) as store:
        store.put_message(delayed(b"b"))
        Deliverer(store, flush_interval_ms=NEVER_MS).everything()
        kill(store)
    with MessageStore.open(tmp_path, SYNC) as store:
        Deliverer(store).everything()
        store.dispatch()
        assert bodies_of(store.path) == [b"a", b"b"]


def test_delayed_messages_in_the_places_of_lost_ones_are_delivered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The owner that put them was killed before its service came to save positions of its own."""
    with MessageStore.open(tmp_path, SYNC) as store:
        store.put_message(delayed(b"a"))
        deliver_and_save(store)
        place = store.physical_bounds()[1]
        store.put_message(delayed(b"b"))
        store.put_message(delayed(b"c"))
        deliver_and_save(store)
    lose_log(tmp_path, place, SYNC.mapped_file_size_commit_log)
    with MessageStore.open(tmp_path, SYNC, accept_lost_log=True) as store:
        store.put_message(delayed(b"d"))
        store.put_message(delayed(b"e"))
        kill(store)
    with MessageStore.open(tmp_path, SYNC) as store:
        Deliverer(store).everything()
        store.dispatch()
        assert bodies_of(store.path) == [b"a", b"d", b"e"]
    assert "Level 1 of the delayed messages continues at offset 1: its position 3" in caplog.text


def deliver_twice(store: MessageStore) -> int:
    """Two messages, each delivered and its position saved; the end of the log before the second delivery."""
    store.put_message(delayed(b"a"))
    deliver_and_save(store)
    store.put_message(delayed(b"b"))
    place = store.physical_bounds()[1]
    deliver_and_save(store)
    assert bodies_of(store.path) == [b"a", b"b"]
    return place


def test_deliveries_that_are_lost_happen_again(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SYNC) as store:
        place = deliver_twice(store)
    lose_log(tmp_path, place, SYNC.mapped_file_size_commit_log)
    with MessageStore.open(tmp_path, SYNC, accept_lost_log=True) as store:
        Deliverer(store).everything()
        store.dispatch()
        assert bodies_of(store.path) == [b"a", b"b"]


def test_the_only_deliveries_of_a_level_that_are_lost_happen_again(tmp_path: Path) -> None:
    """The ledger knows nothing of the level any more."""
    with MessageStore.open(tmp_path, SYNC) as store:
        store.put_message(delayed(b"a"))
        place = store.physical_bounds()[1]
        deliver_and_save(store)
        assert bodies_of(store.path) == [b"a"]
    lose_log(tmp_path, place, SYNC.mapped_file_size_commit_log)
    with MessageStore.open(tmp_path, SYNC, accept_lost_log=True) as store:
        Deliverer(store).everything()
        store.dispatch()
        assert bodies_of(store.path) == [b"a"]


def test_deliveries_that_are_lost_happen_again_though_the_ledger_does_not_count_them(tmp_path: Path) -> None:
    """Its file is older than the file of the positions."""
    with MessageStore.open(tmp_path, SYNC) as store:
        store.put_message(delayed(b"a"))
        deliver_and_save(store)
    with MessageStore.open(tmp_path, SYNC) as store:
        store.put_message(delayed(b"b"))
        place = store.physical_bounds()[1]
        deliver_and_save(store)
        store.flush()
        kill(store)
    lose_log(tmp_path, place, SYNC.mapped_file_size_commit_log)
    with MessageStore.open(tmp_path, SYNC, accept_lost_log=True) as store:
        Deliverer(store).everything()
        store.dispatch()
        assert bodies_of(store.path) == [b"a", b"b"]


def test_no_saved_position_is_ahead_of_the_checkpoint(tmp_path: Path) -> None:
    """Killed before the periodic checkpoint, on a device that lost synced bytes: the log is refused as too short.

    Without that, a delayed message was neither waiting nor delivered, and a half message neither pending nor ended.
    """
    with MessageStore.open(tmp_path / "delayed", SYNC) as store:
        place = deliver_twice(store)
        kill(store)
    lose_log(tmp_path / "delayed", place, SYNC.mapped_file_size_commit_log)
    with pytest.raises(LogShort):
        MessageStore.open(tmp_path / "delayed", SYNC)
    with MessageStore.open(tmp_path / "delayed", SYNC, accept_lost_log=True) as store:
        Deliverer(store).everything()
        store.dispatch()
        assert bodies_of(store.path) == [b"a", b"b"]

    with MessageStore.open(tmp_path / "half", SYNC) as store:
        half = store.half_messages
        first, later = (half.prepare(Message(topic="orders", body=body), "payments") for body in (b"a", b"b"))
        half.commit(later)
        place = store.physical_bounds()[1]
        half.commit(first)
        half.check(lambda _: "unknown")
        kill(store)
    lose_log(tmp_path / "half", place, SYNC.mapped_file_size_commit_log)
    with pytest.raises(LogShort):
        MessageStore.open(tmp_path / "half", SYNC)
    with MessageStore.open(tmp_path / "half", SYNC, accept_lost_log=True) as store:
        assert [one.handle for one in store.half_messages.pending()] == [first]


def test_a_half_message_is_pending_that_ended_after_later_ones_by_what_is_lost(tmp_path: Path) -> None:
    """The position in the op queue stays at the end of the later one, so it is not after the queue's end."""
    with MessageStore.open(tmp_path, SYNC) as store:
        half = store.half_messages
        first, second, third = (
            half.prepare(Message(topic="orders", body=body), "payments") for body in (b"a", b"b", b"c")
        )
        half.commit(third)
        place = store.physical_bounds()[1]
        half.commit(first)
        half.check(lambda _: "unknown")
    lose_log(tmp_path, place, SYNC.mapped_file_size_commit_log)
    with MessageStore.open(tmp_path, SYNC, accept_lost_log=True) as store:
        assert [one.handle for one in store.half_messages.pending()] == [first, second]


def test_a_half_message_whose_end_is_lost_is_pending(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with MessageStore.open(tmp_path, SYNC) as store:
        half = store.half_messages
        first, second = (half.prepare(Message(topic="orders", body=body), "payments") for body in (b"a", b"b"))
        half.commit(first)
        place = store.physical_bounds()[1]
        half.commit(second)
        half.check(lambda _: "unknown")  # reads both queues, and saves the positions
    lose_log(tmp_path, place, SYNC.mapped_file_size_commit_log)
    with MessageStore.open(tmp_path, SYNC, accept_lost_log=True) as store:
        assert [one.handle for one in store.half_messages.pending()] == [second]
        store.half_messages.commit(second)
        store.dispatch()
        assert sorted(bodies_of(store.path)) == [b"a", b"b"]
    assert caplog.text.count("those whose end is lost are pending") == 1


def test_positions_committed_with_a_lost_batch_go_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its messages are lost, so those that it was made of are consumed again."""
    with MessageStore.open(tmp_path, SYNC) as store:
        fill(store, 6, size=6)
        with store.consumer("billing", "orders") as consumer:
            places = []
            for version in range(3):
                places.append(store.physical_bounds()[1])
                with store.transaction("billing", version) as batch:
                    found = consumer.poll(2)
                    consumer.commit(in_transaction=batch)
                    batch.put_messages([{"body": one.body} for one in found], topic="bills")
    lose_log(tmp_path, places[2], SYNC.mapped_file_size_commit_log)
    with MessageStore.open(tmp_path, SYNC, accept_lost_log=True) as store:
        with store.reader() as reader:
            assert reader.group_offsets("billing")["orders", 0] == 4
        with store.consumer("billing", "orders") as consumer:
            assert [one.queue_offset for one in consumer.poll(10)] == [4, 5]
    assert "The log has lost 1 positions that were committed with batches" in caplog.text


def test_nothing_is_saved_that_stands_for_work_beside_the_device(
    memory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = RecordingDisk(memory)
    with recorder.recording():
        store = MessageStore.open(memory / "store", ASYNC)
        fill(store, 40)
        fill(store, 3, topic="read")
        with store.consumer("billing", "read") as consumer:
            assert len(consumer.poll(3)) == 3
            consumer.commit(sync=True)
        wait = store.half_messages.prepare(Message(topic="orders", body=b"half"), "payments")
        store.half_messages.rollback(wait)
        store.half_messages.check(lambda _: "unknown")
        store.put_message(delayed(b"late"))
        deliver_and_save(store)
        with store.consumer("bills", "read") as consumer, store.transaction("bills", 1) as batch:
            consumer.poll(3)
            consumer.commit(in_transaction=batch)
        parts_of(store).groups.flush()
        store.delete_topic("read", with_messages=True)
        commit(store, 1)
        end_a_half_message(store)
        assert store.clean(max_bytes=20_000).deleted
        kill(store)
    image = cut_power(recorder, memory)
    with MessageStore.open(image, ASYNC) as store:
        assert [one.batch.version for one in store.batches()] == [1, 1]
        assert DelayOffsetFile(store.path).read() == {1: 1}
    said = [record.message for record in caplog.records if "lost" in record.message or "continues" in record.message]
    assert said == []


def test_positions_are_corrected_before_a_service_puts_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delayed message that is due goes to its topic as soon as the services have begun."""
    with MessageStore.open(tmp_path, SYNC) as store:
        place = store.physical_bounds()[1]
        fill(store, 3)
        with store.consumer("billing", "orders") as consumer:
            consumer.poll(3)
            consumer.commit()
    lose_log(tmp_path, place, SYNC.mapped_file_size_commit_log)
    at_start: list[dict[int, int]] = []
    begin = OwnedStore.start

    def start(store: OwnedStore) -> None:
        at_start.append(ConsumerOffsets(store.path).get("billing", "orders"))
        begin(store)

    monkeypatch.setattr(OwnedStore, "start", start)
    with MessageStore.open(tmp_path, SYNC, accept_lost_log=True):
        assert at_start == [{0: 0}]


def test_a_gate_that_has_shown_lost_frames_is_corrected_on_the_device(memory: Path) -> None:
    path = memory / "store"
    with MessageStore.open(path, SYNC) as store:
        place = store.physical_bounds()[1]
        commit(store, 1)
    lose_log(path, place, SYNC.mapped_file_size_commit_log)
    recorder = RecordingDisk(memory)
    with recorder.recording():
        kill(MessageStore.open(path, SYNC, accept_lost_log=True))
    gate = GateReader(str(cut_power(recorder, memory)))
    assert gate.look().shown_to == place
    gate.close()


def _steps(run: BatchRun) -> None:
    """Batches, ends of half messages and deliveries, all of them frames, with cleanings that save the ledger."""
    for number in range(4):
        run.put(12)
        run.commit("app", 3, 5)
        end_a_half_message(run.store)
        run.store.put_message(delayed(b"%d" % number))
        Deliverer(run.store).everything()
        run.commit("loader", 2)
        end_a_half_message(run.store)
        run.store.clean(max_bytes=20_000)
        end_a_half_message(run.store)
        if number % 2:
            run.kill_and_reopen()
        else:
            run.reopen()


def _last_frames(store: Path) -> dict[str, int]:
    """The version of the last frame of each application in the log."""
    frames = [decode_frame(one.body).batch for one in log_records(store) if one.topic == BATCH_TOPIC]
    return {one.app_id: one.version for one in frames if one.app_id in ("app", "loader")}


def _check_ledger(store: Path, config: MessageStoreConfig) -> None:
    with MessageStore.open(store, config) as opened:
        there = _last_frames(store)
        known = {one.batch.app_id: one.batch.version for one in opened.batches()}
        assert {app: known[app] for app in there} == there
        assert not commit_rows(opened, "app", known.get("app", 0) + 1, 2).already_there
        kill(opened)
    with MessageStore.open(store, config) as opened:
        assert commit_rows(opened, "app", known.get("app", 0) + 1, 2).already_there
    assert_clean(store)


def check_ledgers(flush: FlushDiskType, seed: str, images: int, memory: Path) -> None:
    config = small_config(flush)
    (memory / "run").mkdir()
    recorder = RecordingDisk(memory / "run")
    with slow_clock(), recorder.recording():
        run = BatchRun(recorder, memory / "run" / "store", config)
        _steps(run)
        run.close()
    check_images("ledger", recorder, seed, images, memory, lambda store, _: _check_ledger(store, config))


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_a_crash_at_any_point_leaves_a_ledger_of_what_is_in_the_log(flush: FlushDiskType, memory: Path) -> None:
    check_ledgers(flush, f"ledger/{flush.value}", IMAGES, memory)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_a_crash_at_any_point_leaves_a_ledger_of_what_is_in_the_log_many_times(
    flush: FlushDiskType, memory: Path
) -> None:
    check_ledgers(flush, f"ledger/{flush.value}/stress", STRESS_IMAGES, memory)


def test_a_batch_that_lost_its_last_properties_is_stored_again(memory: Path) -> None:
    """No CRC covers properties: the frame's checksum alone says that a part of the lost end was the batch's."""
    path = memory / "store"
    rows = [{"topic": "orders", "body": b"paid", "properties": {"note": "n" * 2000}}]
    with MessageStore.open(path, SYNC) as store:
        with store.transaction("loader", 1) as batch:
            batch.put_messages(rows)
        end = store.physical_bounds()[1]
        fill(store, 5)
    lose_log(path, (end - 600) // 512 * 512, SYNC.mapped_file_size_commit_log)
    with MessageStore.open(path, SYNC, accept_lost_log=True) as store:
        with store.transaction("loader", 1) as batch:
            assert not batch.already_there
            batch.put_messages(rows)
        store.dispatch()
        with store.reader() as reader:
            (message,) = reader.get_message("orders", 0, 0, 32).messages
        assert message.properties["note"] == "n" * 2000
    assert_clean(path)


@pytest.mark.parametrize("lost", [600, 1200, 1800])
@pytest.mark.parametrize("killed", [False, True])
def test_a_message_that_lost_its_last_properties_is_cut_off_with_the_lost_end(
    tmp_path: Path, lost: int, killed: bool
) -> None:
    """Its TOTALSIZE and its body's CRC are right, so it would be kept with zeros in place of its properties."""
    with MessageStore.open(tmp_path, SYNC) as store:
        fill(store, 3)
        place = store.physical_bounds()[1]
        note = Message(topic="orders", body=b"paid", queue_id=0, properties={"note": "n" * 2000})
        store.put_message(note).raise_for_status()
        end = store.physical_bounds()[1]
        fill(store, 5)
        if killed:
            store.dispatch()
            store.flush()
            parts_of(store).engine.store_flush.write_checkpoint()
            kill(store)
    lose_log(tmp_path, (end - lost) // 512 * 512, SYNC.mapped_file_size_commit_log)
    with MessageStore.open(tmp_path, SYNC, accept_lost_log=True) as store:
        assert store.physical_bounds()[1] == place
        (kept,) = (tmp_path / "repair").iterdir()
        with StoreReader.open(kept, from_log=True) as reader:
            (message,) = reader.get_message("orders", 0, 3).messages
            assert message.body == b"paid"
        fill(store, 1)
        store.dispatch()
    assert [len(body) for body in bodies_of(str(tmp_path))] == [996] * 4
    assert_clean(tmp_path)


def test_a_whole_last_message_stays_where_the_log_was_lost_after_it(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SYNC) as store:
        fill(store, 3)
        end = store.physical_bounds()[1]
        fill(store, 5)
    lose_log(tmp_path, end, SYNC.mapped_file_size_commit_log)
    with MessageStore.open(tmp_path, SYNC, accept_lost_log=True) as store:
        assert store.physical_bounds()[1] == end
