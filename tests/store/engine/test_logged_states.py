"""Changes of an open store's state are logged when they happen, once each, with their reason."""

from __future__ import annotations

import errno
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from commitlog_store import BrokerRole, Message, MessageStore, PutMessageStatus
from commitlog_store.batch_id import BatchId
from commitlog_store.engine.commit_batch import CommitBatchService
from commitlog_store.engine.disk_watermark import DiskWatermarkService
from commitlog_store.engine.flush import LogFlusher
from commitlog_store.engine.running_state import RunningFlags, RunningState
from commitlog_store.errors import StoreIOError
from commitlog_store.files.limits import DiskUse
from commitlog_store.files.mapped_file_queue_writer import MappedFileQueueWriter
from commitlog_store.retention.decision import RetentionLimits
from commitlog_store.retention.survey import CleanRequest
from commitlog_store.testing import parts_of
from tests.store.retention.small_stores import SMALL, fill
from tests.support.delayed import Deliverer, delayed
from tests.support.scripted_slave import ScriptedSlave
from tests.support.waiting import wait_for


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="commitlog_store")


def _state() -> RunningState:
    return RunningState("/store", on_halt=lambda: None)


def test_a_halted_store_is_logged_with_its_first_failure(caplog: pytest.LogCaptureFixture) -> None:
    state = _state()
    state.halt(StoreIOError("sync", path="/store/commitlog/0", cause=OSError(errno.EIO, "Input/output error")))
    state.halt(RuntimeError("a later one"), RunningFlags.WRITE_LOGICS_QUEUE_ERROR)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "/store is halted" in record.message
    assert "Cannot sync /store/commitlog/0: Input/output error" in record.message


def test_the_begin_and_the_end_of_a_full_disk_are_logged_with_figures(caplog: pytest.LogCaptureFixture) -> None:
    used = 0.95
    watermark = DiskWatermarkService(0.9, _state(), lambda: DiskUse("/store/index", used))
    for used in (0.95, 0.97, 0.99, 0.5, 0.4):  # noqa: B007 - the watermark looks at it
        watermark.run_once()
    begin, end = (record.message for record in caplog.records)
    assert "/store rejects puts and commits, since the disk is full" in begin
    assert "95% of the disk of /store/index is used (disk_space_warning_level_ratio 90%)" in begin
    assert "/store accepts puts and commits again" in end


def test_what_a_program_sets_is_logged_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    state = _state()
    for flag, on in (
        (RunningFlags.NOT_WRITEABLE, True), (RunningFlags.NOT_WRITEABLE, True), (RunningFlags.NOT_READABLE, True),
        (RunningFlags.NOT_WRITEABLE, False), (RunningFlags.NOT_READABLE, False),
    ):  # fmt: skip
        state.set_flag(flag, on=on)
    assert [record.message for record in caplog.records] == [
        "/store was set to reject messages.",
        "/store was set to reject new readers.",
        "/store was set to accept messages.",
        "/store was set to accept new readers.",
    ]


def test_slaves_that_do_not_confirm_are_logged_when_they_begin_and_when_they_confirm_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = replace(SMALL, broker_role=BrokerRole.SYNC_MASTER, in_sync_replicas=2, ha_listen_address="127.0.0.1:0")
    message = Message(topic="orders", body=b"x", queue_id=0)
    with MessageStore.open(tmp_path, config) as store:
        for _ in range(3):
            assert store.put_message(message).status is PutMessageStatus.SLAVE_NOT_AVAILABLE
        with ScriptedSlave(store.ha_address, 0).follow():
            wait_for(lambda: any(one.behind == 0 for one in store.slaves()))
            for _ in range(2):
                store.put_message(message).raise_for_status()
    begin, again = _of(caplog, "running_state")
    assert begin.startswith(f"{tmp_path}: the slaves do not confirm what is put. The message is in the log of this")
    assert again == f"{tmp_path}: the slaves confirm what is put again; 3 puts and commits before were not confirmed."


def _of(caplog: pytest.LogCaptureFixture, module: str) -> list[str]:
    return [record.message for record in caplog.records if record.name.endswith(f".{module}")]


def test_what_keeps_retention_from_deleting_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with MessageStore.open(tmp_path, replace(SMALL, schedule_enable=False)) as store:
        store.put_message(delayed(b"x", level=18)).raise_for_status()
        fill(store, 60)
        for _ in range(3):
            store.clean(max_bytes=0)
        (held,) = _of_retention(caplog)
        assert "keeps 00000000000000000000 for delayed messages of level 18" in held
        parts_of(store).delayed._positions = _delivered(store)
        assert store.clean(max_bytes=0).deleted
        assert "level 18 that are not delivered yet no longer keeps" in _of_retention(caplog)[1]


def _delivered(store: MessageStore) -> dict[int, int]:
    deliverer = Deliverer(store)
    deliverer.everything()
    return dict(deliverer.service._positions)


def test_retention_that_finds_nothing_on_a_full_disk_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        fill(store, 5)
        cleaner = parts_of(store).retention.cleaner
        request = CleanRequest(limits=RetentionLimits(at_once=True))
        for _ in range(3):
            parts_of(store).engine.run(lambda: cleaner.clean_log(request, 0))
        (nothing,) = _of_retention(caplog)
        assert "there is none to delete" in nothing


def _of_retention(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.message for record in caplog.records if record.name == "commitlog_store.retention.clean"]
    return [message for message in found if "deleted by" not in message]


class _Clock:
    """A time that goes on by ``step_s`` with each look."""

    def __init__(self) -> None:
        self.now = self.step_s = 0.0

    def __call__(self) -> float:
        self.now += self.step_s
        return self.now


def test_slow_syncs_are_logged_when_they_begin_and_when_they_are_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = _Clock()
    files = MappedFileQueueWriter(str(tmp_path), 64 << 10)
    flusher = LogFlusher(files, clock=clock)
    for clock.step_s in (0.1, 0.6, 2.0, 0.7, 0.1, 0.1):
        files.writable().append(b"x")
        files.appended()
        flusher.flush()
    files.close()
    begin, end = (record.message for record in caplog.records)
    assert begin == f"A sync of {tmp_path} took 600 ms: the disk does not keep up."
    assert end == f"A sync of {tmp_path} took 100 ms again; 3 before took more than 500 ms, the longest 2000 ms."


def test_slow_commits_are_logged_when_they_begin_and_when_they_are_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = _Clock()
    with MessageStore.open(tmp_path, SMALL) as store:
        owned = parts_of(store)
        batches = CommitBatchService(
            *(
                store.path,
                SMALL,
                owned.engine.log,
                owned.engine.store_flush,
                owned.engine.state,
                owned.engine.topics,
                lambda: None,
            ),
            clock,
        )
        owned.engine.batches = batches
        for version, clock.step_s in enumerate((0.1, 0.6, 0.9, 0.2)):
            with store.transaction("loader", version) as batch:
                batch.put_messages([{"body": b"x", "queueId": 0}], topic="orders")
        store.put_message(Message(topic="orders", body=b"x", queue_id=0)).raise_for_status()
        assert batches.check(BatchId("loader", 3)) is not None
    begin, end = (record.message for record in caplog.records if record.name == "commitlog_store.engine.commit_batch")
    assert begin.startswith(f"A commit of a batch to {tmp_path} took 600 ms")
    assert "200 ms again; 2 before" in end
