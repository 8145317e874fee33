"""Store times are read from records without their bodies, however long these are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog_store import StoreReader
from commitlog_store.cli.summary import summarize
from commitlog_store.errors import CorruptRecord, MessageNotFound
from commitlog_store.files import disk
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.record import HEADER_SIZE, MAGIC_V1
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.scan import first_store_timestamp
from commitlog_store.retention.survey import log_files
from tests.store.columnar.log_stretches import record_of, stretch
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


def _read_one_by_one(log: CommitLog, places: list[int]) -> list[int]:
    """Store times, -1 where a record is damaged, or none is there."""
    times = []
    for place in places:
        try:
            times.append(log.read_without_body(place).store_timestamp)
        except (CorruptRecord, MessageNotFound):
            times.append(-1)
    return times


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_times_of_many_places_are_those_of_each(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of records of all kinds, some damaged, in two files; those that are not plain may be left to the other look."""
    path = tmp_path_factory.mktemp("log")
    records = [
        record_of(
            data.draw(st.sampled_from(["t", "orders", "t" * 127])),
            data.draw(st.sampled_from(["", "TAGS\x01paid\x02"])),
            body=bytes(data.draw(st.integers(0, 40))),
            flags=data.draw(st.sampled_from([0, 0, 0, 16, 48])),
            store_timestamp=1000 + number,
        )
        for number in range(12)
    ]
    for base in (0, 4096):
        content = bytearray(stretch(records, base).ljust(4096, b"\0"))
        for at in data.draw(st.lists(st.integers(0, sum(one.total_size for one in records) - 1), max_size=4)):
            content[at] = data.draw(st.integers(0, 255))
        (path / f"{base:020d}").write_bytes(content)
    starts = np.cumsum([0, *(one.total_size for one in records)]).tolist()
    places = [base + start + extra for base in (0, 4096) for start in starts for extra in (0, 1)] + [-1, 8191, 9000]
    log = CommitLog(str(path))
    log.refresh()
    expected = _read_one_by_one(log, places)
    together = log.store_times(np.array(places, np.int64)).tolist()
    assert [one for one in zip(together, expected, strict=True) if one[0] not in (-1, one[1])] == []
    plain = [
        place
        for place, time in zip(places, expected, strict=True)
        if time >= 0 and (record := log.read_without_body(place)).magic == MAGIC_V1 and not record.sys_flag & 48
    ]
    assert log.store_times(np.array(plain, np.int64)).tolist() == _read_one_by_one(log, plain)
    log.close()
