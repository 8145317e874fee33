"""Store times are read from records without their bodies, however long these are."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog_store import StoreReader
from commitlog_store.cli.summary import summarize
from commitlog_store.errors import CorruptRecord
from commitlog_store.files import disk
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.record import HEADER_SIZE
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.scan import first_store_timestamp
from commitlog_store.retention.survey import log_files
from tests.support.store_builder import FIRST_STORE_TIME, StoreBuilder

COUNT = 16
BODY = bytes(5 << 20)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Four messages of 5 MiB in each of four log files."""
    builder = StoreBuilder(tmp_path / "store", log_file_size=(20 << 20) + 4096)
    builder.append("t", 0, [BODY] * COUNT, step_ms=10)
    return builder.path


class Counted:
    """The bytes that were read from files since."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.total = 0
        real = disk.read_at

        def read(descriptor: int, length: int, position: int) -> bytes:
            data = real(descriptor, length, position)
            self.total += len(data)
            return data

        patch.setattr(disk, "read_at", read)


def test_offset_by_time_reads_no_bodies(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreReader.open(store) as reader:
        counted = Counted(monkeypatch)
        for number in range(COUNT):
            assert reader.offset_by_time("t", 0, FIRST_STORE_TIME + 10 * number) == number
            assert reader.store_timestamp("t", 0, number) == FIRST_STORE_TIME + 10 * number
        assert counted.total < len(BODY)


def test_summary_and_retention_read_no_bodies(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    with StoreReader.open(store) as reader:
        (queue,) = summarize(reader, with_sizes=False).queues
    assert queue.last_store_timestamp == FIRST_STORE_TIME + 10 * (COUNT - 1)
    found = log_files(StorePaths.of(str(store), None))
    assert [one.newest_ms for one in found.files] == [*(FIRST_STORE_TIME + 10 * at for at in (4, 8, 12)), None]
    assert counted.total < len(BODY)


def test_first_record_of_a_file_has_a_time_whatever_its_length(store: Path) -> None:
    log = CommitLog(str(store / "commitlog"))
    log.refresh()
    file = log.find(log.bases[1])
    assert file is not None
    assert first_store_timestamp(file) == FIRST_STORE_TIME + 40
    log.close()


def test_damage_after_a_long_body_is_still_an_error(store: Path) -> None:
    log = CommitLog(str(store / "commitlog"))
    log.refresh()
    path = log.path_of(0)
    with open(path, "r+b") as file:
        file.seek(HEADER_SIZE + len(BODY))
        file.write(b"\xff")
    with pytest.raises(CorruptRecord, match="TOPICLENGTH") as whole:
        log.read_record(0, check_crc=False)
    with pytest.raises(CorruptRecord) as without:
        log.read_without_body(0)
    assert str(without.value) == str(whole.value)
    log.close()
