"""``MessageStore.clean``: what goes, what stays, and what readers and the next opening find."""

from __future__ import annotations

import json
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.errors import InvalidValue, OffsetOutOfRange, StoreIOError
from commitlog_store.files import disk
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.packed_json import pack_json
from commitlog_store.recovery.start import StartKind
from commitlog_store.retention.survey import clean_request, forecast_clean
from commitlog_store.testing import kill, parts_of, start_of
from commitlog_store.verify.store import verify_store
from tests.store.retention.small_stores import SMALL, Clock, fill, log_bases, queue_bases, store_clock
from tests.support.delayed import Deliverer, bodies_of
from tests.support.open_files import removed_files_of

HOUR = 3600.0


def _kinds(path: Path, **wishes: bool) -> StartKind:
    with MessageStore.open(path, SMALL, **wishes) as store:  # type: ignore[arg-type]
        return start_of(store).kind


def _bounds(path: Path, topic: str) -> tuple[int, int]:
    with StoreReader.open(path) as reader:
        (queue,) = reader.queues(topic)
        return queue.min_offset, queue.max_offset


def test_a_limit_of_bytes_deletes_the_oldest_files_with_their_queue_and_index_files(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        fill(store, 100)
        before = log_bases(tmp_path)
        report = store.clean(max_bytes=40_000)
        assert log_bases(tmp_path) == before[len(report.deleted) :]
        assert 24_000 <= report.log_end - report.log_start <= 40_000
        assert report.freed_bytes == report.log_start
        assert report.queue_files > 0
        assert report.index_files > 0
        low, high = _bounds(tmp_path, "orders")
        assert high == 100
        assert queue_bases(tmp_path, "orders")[0] == low - low % 10
        messages = [row for batch in store.reader().read("orders", 0, low, high) for row in batch["queueOffset"]]
        assert len(messages) == high - low
    assert not list(verify_store(tmp_path))
    assert _kinds(tmp_path) is StartKind.CLEAN


def test_files_of_consumequeue_ext_follow_the_first_message_that_is_left(tmp_path: Path) -> None:
    """A broker's queue: its units lead to entries of 40 bytes, ten in a file."""
    with MessageStore.open(tmp_path, SMALL) as store:
        fill(store, 100)
    for base in queue_bases(tmp_path, "orders"):
        path = tmp_path / "consumequeue/orders/0" / f"{base * 20:020d}"
        units = bytearray(path.read_bytes())
        for row in range(10):
            units[row * 20 + 12 : row * 20 + 20] = ((base + row) * 40 - 2**63).to_bytes(8, "big", signed=True)
        path.write_bytes(units)
    ext = tmp_path / "consumequeue_ext/orders/0"
    ext.mkdir(parents=True)
    for base in range(0, 4_000, 400):
        (ext / f"{base:020d}").write_bytes(bytes(400))
    with MessageStore.open(tmp_path, SMALL) as store:
        report = store.clean(max_bytes=40_000)
        low, _ = _bounds(tmp_path, "orders")
        assert low > 20
        left = sorted(int(one.name) for one in ext.iterdir())
        assert left == [base for base in range(0, 4_000, 400) if base + 400 >= low * 40]
        assert report.ext_files == 10 - len(left) > 0
        store.delete_topic("orders", with_messages=True)
        assert not list(ext.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="open files are looked for in /proc")
def test_an_owner_without_work_for_half_messages_keeps_no_deleted_file_open(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        half = store.half_messages
        for handle in [half.prepare(Message(topic="orders", body=bytes(1000)), "payments") for _ in range(30)]:
            half.commit(handle)
        assert store.clean(max_bytes=1).deleted
        assert not removed_files_of(os.getpid(), tmp_path)


def test_idle_readers_of_an_owner_keep_no_deleted_file_open(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        fill(store, 30)
        assert store.get_message("orders", 0, 0).messages
        assert store.clean(max_bytes=1).deleted
        assert not removed_files_of(os.getpid(), tmp_path)


def test_age_counts_from_the_newest_message_of_a_file(tmp_path: Path) -> None:
    clock = Clock()
    with store_clock(clock), MessageStore.open(tmp_path, SMALL) as store:
        fill(store, 30)
        clock.now += 10 * HOUR
        fill(store, 30)
        start = clock.now
        report = forecast_clean(tmp_path, clean_request(older_than_hours=5, max_bytes=None), clock=lambda: start)
        # The third file has old and new messages: it stays.
        assert [one.file.base for one in report.deleted] == [0, 16 << 10]
        later = start + 20 * HOUR
        report = forecast_clean(tmp_path, clean_request(older_than_hours=5, max_bytes=None), clock=lambda: later)
        assert [one.file.base for one in report.deleted] == log_bases(tmp_path)[: len(report.deleted)]
        assert len(report.deleted) >= 3
        assert report.log_start in log_bases(tmp_path)


def test_the_clock_mtime_takes_a_copy_for_young(tmp_path: Path) -> None:
    with store_clock(Clock()), MessageStore.open(tmp_path, SMALL) as store:
        fill(store, 60)
        assert store.clean(older_than_hours=24, dry_run=True).deleted
        assert not store.clean(older_than_hours=24, clock="mtime", dry_run=True).deleted


def test_a_dry_run_deletes_nothing_and_tells_what_the_cleaning_does(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        fill(store, 100)
        before = log_bases(tmp_path)
        forecast = store.clean(max_bytes=40_000, dry_run=True)
        assert log_bases(tmp_path) == before
        assert store.clean(max_bytes=40_000).deleted == forecast.deleted


def test_without_a_limit_nothing_is_deleted(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store, pytest.raises(InvalidValue, match="may be deleted"):
        store.clean()


@pytest.mark.parametrize("rebuild", [False, True])
@pytest.mark.parametrize("killed", [False, True])
def test_an_idle_queue_keeps_its_end(tmp_path: Path, *, killed: bool, rebuild: bool) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        fill(store, 25, topic="idle")
        fill(store, 100)
        store.clean(max_bytes=30_000)
        assert _bounds(tmp_path, "idle") == (25, 25)
        if killed:
            store.flush()
            kill(store)
    with MessageStore.open(tmp_path, SMALL, rebuild=rebuild) as store:
        expected = StartKind.REBUILD if rebuild else StartKind.SCAN if killed else StartKind.CLEAN
        assert start_of(store).kind is expected
        assert _bounds(tmp_path, "idle") == (25, 25)
        fill(store, 1, topic="idle")
        assert _bounds(tmp_path, "idle") == (25, 26)
    assert not list(verify_store(tmp_path))


def test_a_reader_gets_named_errors_for_what_is_gone_and_reads_the_rest(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store, store.reader() as reader:
        fill(store, 100)
        unread = reader.read("orders", 0, 0, 100, columns=["queueOffset"])
        store.clean(max_bytes=30_000)
        with pytest.raises(OffsetOutOfRange):
            list(reader.read("orders", 0, 0, 100))
        with pytest.raises(OffsetOutOfRange):
            list(unread)
        low, high = reader.queues("orders")[0].min_offset, 100
        assert sum(len(batch) for batch in reader.read("orders", 0, low, high)) == high - low
        assert not reader.query("orders", "3")
        assert reader.query("orders", "99")


def test_the_ledger_outlives_the_frames_of_its_batches(tmp_path: Path) -> None:
    table = pa.table({"body": [b"x" * 900] * 40})
    with MessageStore.open(tmp_path, SMALL) as store:
        with store.transaction("loader", version=7) as batch:
            batch.put_messages(table, topic="orders")
        fill(store, 80)
        assert store.clean(max_bytes=20_000).log_start > 40 * 900
        kill(store)
    with MessageStore.open(tmp_path, SMALL) as store:
        assert [one.batch.version for one in store.batches()] == [7]
        with store.transaction("loader", version=7) as batch:
            assert batch.already_there
    assert not list(verify_store(tmp_path))


def test_without_space_and_reserve_for_the_ledger_its_frames_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        fill(store, 40)
        with store.transaction("loader", version=7) as batch:
            batch.put_messages(pa.table({"body": [b"x"]}), topic="orders")
        fill(store, 60)

        def full(path: str, *, shared: bool = False) -> int:
            del shared
            raise OSError(28, "No space left on device", path)

        (tmp_path / "config" / "batchLedger.json.reserve").unlink()
        with monkeypatch.context() as patch:
            patch.setattr(disk, "create_file", full)
            patch.setattr(disk, "create_unnamed_file", full)
            report = store.clean(max_bytes=0)
        assert report.deleted
        assert any("ledger" in holder for holder in report.holders)
        assert store.writable
        assert not store.clean(max_bytes=0).holders


WAITS = ("delayed messages of level 18 that are not delivered yet",)


def _positions(path: Path, position: int) -> None:
    """Write the position of level 18 as a broker does."""
    (path / "config").mkdir(exist_ok=True)
    (path / "config" / "delayOffset.json").write_text(f'{{"offsetTable":{{18:{position}}}}}')


def _fill_around_delayed(store: MessageStore, count: int = 5) -> None:
    fill(store, 40)
    fill(store, count, properties={"DELAY": "18"})
    fill(store, 60)


def test_delayed_messages_stay_until_they_are_delivered(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        _fill_around_delayed(store)
        forecast = store.clean(max_bytes=0, dry_run=True)
        report = store.clean(max_bytes=0)
        assert report.holders == forecast.holders == WAITS
        assert report.held is not None
        assert report.held.base == report.log_start
        deliverer = Deliverer(store)
        deliverer.everything()
        assert len(bodies_of(store.path)) > 5
        assert store.clean(max_bytes=0).holders == WAITS, "the store's own service knows of no delivery"
    with MessageStore.open(tmp_path, SMALL) as store:
        assert forecast_clean(tmp_path, clean_request(older_than_hours=None, max_bytes=0)).holders == ()
        assert not store.clean(max_bytes=0).holders
        assert len(log_bases(tmp_path)) <= 2


@pytest.mark.parametrize("enabled", [None, False])
def test_a_position_after_the_end_of_a_queue_holds_all_that_came_since(tmp_path: Path, enabled: bool | None) -> None:
    """As after the loss of the log's end: the file says 50, the queue ends at 5, and what follows is not delivered."""
    config = replace(SMALL, schedule_enable=enabled)
    with MessageStore.open(tmp_path, config) as store:
        _fill_around_delayed(store)
    _positions(tmp_path, 50)
    with MessageStore.open(tmp_path, config) as store:
        start = store.clean(max_bytes=0).log_start
        _fill_around_delayed(store, 80)
        report = store.clean(max_bytes=0)
        assert report.holders == WAITS
        assert report.log_start > start
        with store.reader() as reader:
            assert reader.queue_info("SCHEDULE_TOPIC_XXXX", 17).min_offset <= 5


def test_delayed_messages_of_a_brokers_store_stay_by_what_its_file_says(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        _fill_around_delayed(store, 40)
    (tmp_path / "config" / "createdBy.json").unlink()
    _positions(tmp_path, 20)
    with MessageStore.open(tmp_path, SMALL) as store:
        report = store.clean(max_bytes=0)
        assert report.holders == WAITS
        with store.reader() as reader:
            assert 0 < reader.queue_info("SCHEDULE_TOPIC_XXXX", 17).min_offset <= 20
    _positions(tmp_path, 40)
    with MessageStore.open(tmp_path, SMALL) as store:
        assert not store.clean(max_bytes=0).holders


def test_delayed_messages_that_a_broker_deleted_before_their_time_hold_nothing(tmp_path: Path) -> None:
    """A broker deletes them like all others: the position then lies before the queue's first message."""
    config = replace(SMALL, schedule_enable=False)
    with MessageStore.open(tmp_path, config) as store:
        _fill_around_delayed(store)
        fill(store, 20, properties={"DELAY": "18"})
    for base in log_bases(tmp_path)[:4]:
        (tmp_path / "commitlog" / f"{base:020d}").unlink()
    with MessageStore.open(tmp_path, config) as store:
        report = store.clean(max_bytes=0)
        assert report.holders == WAITS
        assert report.log_start > 4 * SMALL.mapped_file_size_commit_log


def test_a_consumer_group_holds_what_it_has_not_read_up_to_a_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    with store_clock(clock), MessageStore.open(tmp_path, SMALL) as store:
        fill(store, 100)
        (tmp_path / "config").mkdir(exist_ok=True)
        (tmp_path / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@billing":{0:50}}}')
        report = store.clean(max_bytes=0, keep_for=["billing"], keep_at_most_hours=1e5)
        assert report.holders == ("consumer group billing",)
        assert _bounds(tmp_path, "orders")[0] <= 50
        with caplog.at_level(logging.WARNING):
            report = store.clean(max_bytes=0, keep_for=["billing"], keep_at_most_hours=1)
        assert report.deleted[0].overruled == ("consumer group billing",)
        assert "consumer group billing still needs it" in caplog.text
        with pytest.raises(InvalidValue, match="billing"):
            store.clean(max_bytes=0, keep_for=["accounting"])


def _checkpoint(path: Path, commits: int, offsets: dict[int, object]) -> Path:
    for name in ("commits", "offsets"):
        (path / name).mkdir(parents=True)
    for batch in range(commits):
        (path / "commits" / f"{batch}").write_text('v1\n{"nextBatchWatermarkMs":0}')
    for batch, value in offsets.items():
        (path / "offsets" / f"{batch}").write_text(f'v1\n{{"batchWatermarkMs":0}}\n-\n{json.dumps(value)}')
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_a_spark_checkpoint_holds_what_its_last_committed_batch_has_not_read(packed: bool, tmp_path: Path) -> None:
    ours: list[object] = [{"version": 1, "offsets": {"orders": {"0": at}}, "fence": {}} for at in (20, 50, 90)]
    if packed:  # as those of many queues are
        ours = [{"version": 3, "packed": pack_json(one)} for one in ours]
    checkpoint = _checkpoint(tmp_path / "checkpoint", 2, dict(enumerate(ours)))
    path = tmp_path / "store"
    with MessageStore.open(path, SMALL) as store:
        fill(store, 100)
        report = store.clean(max_bytes=0, keep_for=[checkpoint])
        assert report.holders == (f"checkpoint {checkpoint}",)
        low = _bounds(path, "orders")[0]
        assert 35 < low <= 50
        with pytest.raises(InvalidValue, match="not the checkpoint"):
            store.clean(max_bytes=0, keep_for=[tmp_path])


@pytest.mark.parametrize("lost", ["beyond the end", "another message"])
def test_a_spark_checkpoint_holds_a_queue_that_has_lost_what_it_has_read(tmp_path: Path, lost: str) -> None:
    """What stands in the places of lost messages was never read."""
    path = tmp_path / "store"
    with MessageStore.open(path, SMALL) as store:
        fill(store, 100)
        with store.reader() as reader:
            fence = reader.fence("orders", 0, 89)
        assert fence is not None
        offsets = {"version": 1, "offsets": {"orders": {"0": 90}}, "fence": {"orders": {"0": list(fence)}}}
        whole = _checkpoint(tmp_path / "whole", 1, {0: offsets})
        if lost == "beyond the end":
            offsets["offsets"] = {"orders": {"0": 120}}
        else:
            offsets["fence"] = {"orders": {"0": [fence.physical_offset, fence.crc ^ 1]}}
        checkpoint = _checkpoint(tmp_path / "checkpoint", 1, {0: offsets})
        report = store.clean(max_bytes=0, keep_for=[checkpoint])
        assert report.holders == (f"checkpoint {checkpoint}",)
        assert _bounds(path, "orders")[0] == 0
        store.clean(max_bytes=0, keep_for=[whole])
        assert 75 < _bounds(path, "orders")[0] <= 90


def test_before_its_first_commit_a_spark_checkpoint_holds_where_its_first_batch_began(tmp_path: Path) -> None:
    first = {"version": 1, "offsets": {"orders": {"0": 90}}, "from": {"orders": {"0": 50}}}
    checkpoint = _checkpoint(tmp_path / "checkpoint", 0, {0: first})
    path = tmp_path / "store"
    with MessageStore.open(path, SMALL) as store:
        fill(store, 100)
        store.clean(max_bytes=0, keep_for=[checkpoint])
        assert 35 < _bounds(path, "orders")[0] <= 50


def test_a_file_that_cannot_be_deleted_stays_and_the_store_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        fill(store, 100)
        with monkeypatch.context() as patch:
            patch.setattr(disk, "unlink", _denied)
            with pytest.raises(StoreIOError, match="delete"):
                store.clean(max_bytes=20_000)
        assert log_bases(tmp_path)[0] == 0
        fill(store, 1)
        assert store.clean(max_bytes=20_000).deleted


def _denied(path: str) -> None:
    raise PermissionError(13, "Permission denied", path)


def test_limits_of_the_settings_hold_for_a_cleaning_without_any(tmp_path: Path) -> None:
    config = MessageStoreConfig(**{**vars(SMALL), "retention_bytes": 40_000})
    with MessageStore.open(tmp_path, config) as store:
        fill(store, 100)
        assert store.clean().log_start > 0


@pytest.mark.parametrize("killed", [False, True])
def test_verify_finds_nothing_wrong_in_a_store_that_was_cleaned(tmp_path: Path, *, killed: bool) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        fill(store, 25, topic="idle")
        fill(store, 100)
        store.clean(max_bytes=30_000)
        fill(store, 10)
        if killed:
            store.flush()
            kill(store)
    assert [str(one) for one in verify_store(tmp_path) if one.severity == "error"] == []


def test_a_frame_that_retention_has_cut_in_two_reads_as_plain_messages(tmp_path: Path) -> None:
    table = pa.table({"body": [b"%04d" % number * 250 for number in range(60)]})
    with MessageStore.open(tmp_path, SMALL) as store:
        with store.transaction("loader", version=1) as batch:
            batch.put_messages(table.append_column("queueId", pa.array([0] * 60, pa.int32())), topic="orders")
        store.dispatch()
        assert store.clean(max_bytes=30_000).deleted
        low, high = _bounds(tmp_path, "orders")
        assert 0 < low < high == 60
        kill(store)
    for rebuild in (False, True):
        with MessageStore.open(tmp_path, SMALL, rebuild=rebuild) as store:
            assert _bounds(tmp_path, "orders") == (low, 60)
            assert [one.batch.version for one in store.batches()] == [1]
    assert not list(verify_store(tmp_path))


@pytest.mark.parametrize("has_space", [True, False])
def test_positions_committed_with_a_batch_survive_a_cleaning_and_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_space: bool
) -> None:
    config = replace(SMALL, flush_consumer_offset_interval=3_600_000)
    with MessageStore.open(tmp_path, config) as store:
        fill(store, 5)
        with store.consumer("billing", "orders") as consumer:
            with store.transaction("invoices", 1) as batch:
                orders = consumer.poll_batch(4, columns=["body"])
                assert orders is not None
                batch.put_messages(orders, topic="invoices")
                consumer.commit(in_transaction=batch)
            fill(store, 100)
            if not has_space:
                monkeypatch.setattr(parts_of(store).groups, "run_once", lambda: 5.0)
            report = store.clean(max_bytes=40_000)
            assert bool(report.deleted) is has_space
            assert any("consumerOffset.json" in holder for holder in report.holders) is not has_space
            kill(store)
    monkeypatch.undo()
    with MessageStore.open(tmp_path, config):
        assert ConsumerOffsets(str(tmp_path)).get("billing", "orders") == {0: 4}
