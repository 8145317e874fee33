"""The cleaning services step by step, with the clock and the disk as inputs."""

from __future__ import annotations

import functools
import time
from pathlib import Path

import pytest

from commitlog_store import MessageStore, MessageStoreConfig
from commitlog_store.errors import InvalidValue, StoreIOError
from commitlog_store.files import disk
from commitlog_store.files.limits import DiskUse
from commitlog_store.retention import clean
from commitlog_store.retention.clean import CleanCommitLogService, CleanConsumeQueueService, RetentionSettings
from commitlog_store.retention.survey import clean_request
from commitlog_store.testing import kill, parts_of
from tests.store.retention.small_stores import SMALL, Clock, fill, log_bases, queue_bases, store_clock
from tests.support.waiting import wait_for

HOUR = 3600.0
# A batch of two files, and three pauses that differ.
SETTINGS = {
    "retention_enable": True,
    "delete_file_batch_max": 2,
    "clean_resource_interval": 10_000,
    "delete_commit_log_files_interval": 100,
    "delete_consume_queue_files_interval": 200,
}


def _config(**given: object) -> MessageStoreConfig:
    return MessageStoreConfig(**{**vars(SMALL), **SETTINGS, **given})


def _at_hour(hour: int) -> float:
    """A local time at that hour."""
    day = time.struct_time((2024, 3, 5, hour, 30, 0, 0, 0, -1))
    return time.mktime(day)


class _Cleaning:
    """A store with seven files of messages, its services, its time and its disk."""

    def __init__(self, store: MessageStore, config: MessageStoreConfig, clock: Clock) -> None:
        self.store = store
        self.path = Path(store.path)
        self.clock = clock
        self.used = 0.5
        cleaner = parts_of(store).retention.cleaner
        self._log = CleanCommitLogService(cleaner, config, RetentionSettings(config, self._disk_use), clock=clock)
        self._queues = CleanConsumeQueueService(cleaner, config)
        assert self.log() == 60.0, "the first round comes a minute after the start"

    def _disk_use(self) -> DiskUse:
        return DiskUse(self.store.path, self.used)

    def log(self) -> float:
        return parts_of(self.store).engine.run(self._log.run_once)

    def queues(self) -> float:
        return parts_of(self.store).engine.run(self._queues.run_once)

    def gone(self) -> int:
        """Count the files that are gone."""
        return log_bases(self.path)[0] // SMALL.mapped_file_size_commit_log

    def round(self) -> int:
        """Do steps until the pause between two rounds; returns the number of files that went."""
        before = self.gone()
        while (pause := self.log()) != 10.0:
            assert pause == 0.1
        return self.gone() - before


@pytest.fixture
def clock() -> Clock:
    return Clock(_at_hour(12))


def _cleaning(path: Path, clock: Clock, **given: object) -> _Cleaning:
    # The store's own threads do not come in between: their first round is a minute away.
    config = _config(**given)
    with store_clock(clock):
        store = MessageStore.open(path, config)
    fill(store, 100)
    return _Cleaning(store, config, clock)


def test_old_files_go_in_the_hours_of_delete_when_and_a_few_in_a_round(tmp_path: Path, clock: Clock) -> None:
    cleaning = _cleaning(tmp_path, clock, delete_when="04")
    with cleaning.store:
        clock.now = _at_hour(12) + 4 * 24 * HOUR
        assert cleaning.round() == 0
        clock.now = _at_hour(4) + 4 * 24 * HOUR
        assert cleaning.round() == 2
        assert cleaning.round() == 2
        assert cleaning.store.writable


@pytest.mark.parametrize("cause", ["hour", "space", "at once", "by hand"])
def test_ten_files_go_in_a_round_and_queue_and_index_files_follow(tmp_path: Path, clock: Clock, cause: str) -> None:
    """RocketMQ's DefaultMessageStoreCleanFilesTest: 55 messages, one in a log file, six in one of the queue, seven
    in one of the index. 15 are old; over 85 percent of the disk that does not matter.
    """
    config = _config(
        mapped_file_size_commit_log=4_096,
        mapped_file_size_consume_queue=6 * 20,
        max_index_num=8,
        delete_file_batch_max=10,
        delete_when="14" if cause == "hour" else "04",
        file_reserved_time=1,
    )
    with store_clock(clock), MessageStore.open(tmp_path, config) as store:
        for number in range(55):
            # A file's age is that of the next one's message.
            clock.now += 2 * HOUR if number == 16 else 0
            fill(store, 1, size=3_000)
        cleaning = _Cleaning(store, config, clock)
        assert _counts(tmp_path) == (55, 10, 8)
        if cause == "by hand":
            now_ms = int(clock.now * 1000)
            request = clean_request(older_than_hours=1, max_bytes=None)
            report = parts_of(store).engine.run(
                lambda: parts_of(store).retention.cleaner.clean(request, now_ms, dry_run=False)
            )
            assert (len(report.deleted), report.queue_files, report.index_files) == (15, 2, 2)
            assert _counts(tmp_path) == (40, 8, 6)
            return
        cleaning.used = {"hour": 0.5, "space": 0.76, "at once": 0.86}[cause]
        deleted = [10, 20, 30, 40, 50] if cause == "at once" else [10, 15]
        for gone in deleted:
            while (pause := cleaning.log()) != 10.0:
                assert pause == 0.1
            while cleaning.queues() != 10.0:
                pass
            assert _counts(tmp_path) == (55 - gone, 10 - gone // 6, 8 - gone // 7)


def _counts(path: Path) -> tuple[int, int, int]:
    """The numbers of files of messages, of the queue and of the index."""
    log = [base for base in log_bases(path) if (path / "commitlog" / f"{base:020d}").read_bytes().strip(b"\0")]
    return len(log), len(queue_bases(path, "orders")), len(list((path / "index").iterdir()))


def test_young_files_stay_in_these_hours(tmp_path: Path, clock: Clock) -> None:
    cleaning = _cleaning(tmp_path, clock, delete_when="04;12")
    with cleaning.store:
        assert cleaning.round() == 0


def test_over_75_percent_old_files_go_at_any_hour(tmp_path: Path, clock: Clock) -> None:
    cleaning = _cleaning(tmp_path, clock)
    with cleaning.store:
        cleaning.used = 0.76
        assert cleaning.round() == 0
        clock.now = _at_hour(12) + 4 * 24 * HOUR
        assert cleaning.round() == 2


def test_over_85_percent_young_files_go_too_unless_that_is_forbidden(tmp_path: Path, clock: Clock) -> None:
    cleaning = _cleaning(tmp_path / "a", clock)
    with cleaning.store:
        cleaning.used = 0.85
        assert cleaning.round() == 0
        cleaning.used = 0.86
        assert cleaning.round() == 2
    cleaning = _cleaning(tmp_path / "b", clock, clean_file_forcibly_enable=False)
    with cleaning.store:
        cleaning.used = 0.99
        assert cleaning.round() == 0


def test_the_last_file_stays_on_a_full_disk(tmp_path: Path, clock: Clock) -> None:
    cleaning = _cleaning(tmp_path, clock)
    with cleaning.store:
        cleaning.used = 1.0
        while cleaning.round():
            pass
        assert len([base for base in log_bases(tmp_path) if base < cleaning.store.physical_bounds()[1]]) == 1
        fill(cleaning.store, 1)


def test_a_limit_of_bytes_alone_holds_at_every_hour_and_deletes_nothing_by_age(tmp_path: Path, clock: Clock) -> None:
    cleaning = _cleaning(tmp_path, clock, retention_enable=False, retention_bytes=60_000)
    with cleaning.store:
        while cleaning.round():
            pass
        start, end = cleaning.store.physical_bounds()
        assert 60_000 - SMALL.mapped_file_size_commit_log < end - start <= 60_000
        clock.now = _at_hour(4) + 400 * 24 * HOUR
        cleaning.used = 0.99
        assert cleaning.round() == 0


def test_queues_follow_one_in_a_step_and_rest_until_the_log_moves_again(tmp_path: Path, clock: Clock) -> None:
    cleaning = _cleaning(tmp_path, clock)
    with cleaning.store:
        fill(cleaning.store, 100, topic="payments")
        assert cleaning.queues() == 10.0
        cleaning.used = 0.9
        while cleaning.round():
            pass
        assert cleaning.queues() == 0
        assert [cleaning.queues(), cleaning.queues(), cleaning.queues()] == [0.2, 0.2, 10.0]
        assert queue_bases(tmp_path, "orders") == [90]
        assert queue_bases(tmp_path, "payments") == [90]


def test_a_file_that_cannot_be_deleted_is_tried_again_after_two_minutes(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cleaning = _cleaning(tmp_path, clock)
    with cleaning.store:
        cleaning.used = 0.9
        with monkeypatch.context() as patch:
            patch.setattr(disk, "unlink", _denied)
            assert [cleaning.log(), cleaning.log()] == [120.0, 120.0]
        assert cleaning.store.writable
        assert cleaning.round() == 2
    begin, end = (one.message for one in caplog.records if one.message.startswith("Cleaning"))
    assert begin.startswith(f"Cleaning of the log of {tmp_path} waits: Cannot delete {tmp_path}/commitlog/000000000")
    assert end == f"Cleaning of the log of {tmp_path} continues"


def test_a_disk_that_has_space_again_ends_the_report_that_nothing_is_left_to_delete(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    cleaning = _cleaning(tmp_path, clock)
    with cleaning.store:
        cleaning.used = 0.95
        while cleaning.round():
            pass
        cleaning.used = 0.5
        assert [cleaning.round(), cleaning.round()] == [0, 0]
    begin, end = (one.message for one in caplog.records if one.levelname == "WARNING")
    assert "there is none to delete" in begin
    assert end == f"{tmp_path}: retention finds files to delete again, or the disk has space."


def _denied(path: str) -> None:
    raise PermissionError(13, "Permission denied", path)


def test_a_failed_sync_of_the_directory_fences_the_store(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it, the next deletion could leave a gap: the older name might come back, the next one not."""
    cleaning = _cleaning(tmp_path, clock)
    cleaning.used = 0.9
    cleaning.store.flush()
    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync_directory", _io_error)
        with pytest.raises(StoreIOError, match="sync"):
            cleaning.log()
    assert not cleaning.store.writable
    kill(cleaning.store)
    with MessageStore.open(tmp_path, SMALL) as store:
        assert store.physical_bounds()[0] == log_bases(tmp_path)[0]


def _io_error(path: str) -> None:
    raise OSError(5, "Input/output error", path)


def test_a_store_deletes_nothing_unless_it_is_asked_to() -> None:
    assert not MessageStoreConfig().retention
    assert MessageStoreConfig(retention_enable=True).retention
    assert MessageStoreConfig(retention_bytes=1).retention


@pytest.mark.parametrize(
    "settings",
    [
        {"delete_when": "24"},
        {"delete_when": "four"},
        {"disk_max_used_space_ratio": 0},
        {"disk_space_clean_forcibly_ratio": 85.0},
        {"retention_bytes": -1},
        {"delete_file_batch_max": 0},
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(settings))):
        MessageStoreConfig.from_mapping(settings)


def test_the_threads_of_an_open_store_delete_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = functools.partial(CleanCommitLogService, first_round_s=0.01)
    monkeypatch.setattr(clean, "CleanCommitLogService", at_once)
    config = _config(
        retention_enable=False,
        retention_bytes=40_000,
        clean_resource_interval=10,
        delete_commit_log_files_interval=1,
        delete_consume_queue_files_interval=1,
    )
    with MessageStore.open(tmp_path, config) as store:
        fill(store, 150)
        wait_for(lambda: store.physical_bounds()[1] - store.physical_bounds()[0] <= 40_000)
        wait_for(lambda: queue_bases(tmp_path, "orders")[0] > 0)
        assert store.writable


def test_a_cleaning_by_settings_ends_when_the_disk_has_space_again(tmp_path: Path) -> None:
    config = _config()
    with MessageStore.open(tmp_path, config) as store:
        fill(store, 100)
        store.flush()
        uses = iter([0.95, 0.91, 0.86, 0.85])
        settings = RetentionSettings(config, lambda: DiskUse(store.path, next(uses)))
        owned = parts_of(store)
        request = clean_request(older_than_hours=72, max_bytes=None)
        now_ms = int(time.time() * 1000)
        report = owned.engine.run(lambda: owned.retention.cleaner.clean_by_settings(settings, request, now_ms))
        assert [one.reason.value for one in report.deleted] == ["disk"] * 3
        assert log_bases(tmp_path)[0] == report.log_start
