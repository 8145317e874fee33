"""``corruptRecordMode`` and ``fromLog``: damaged records fail the query or are skipped, in planning and in tasks."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from commitlog_store.errors import CorruptConsumeQueue, CorruptRecord
from pyspark_commitlog.errors import DataLossError
from pyspark_commitlog.options.read import parse_batch_options, parse_stream_options
from pyspark_commitlog.source.batch_source import CommitLogBatchReader
from pyspark_commitlog.source.schema import check_schema
from pyspark_commitlog.source.stream_offset import StreamOffset
from pyspark_commitlog.source.stream_planner import StreamPlanner
from pyspark_commitlog.source.task import ReadTask
from tests.store.damage.flipped_bodies import BAD, COUNT, KINDS, make
from tests.support.store_builder import FIRST_STORE_TIME, StoreBuilder

PLACE = StructType([StructField("queueOffset", LongType())])
_LOG_FILE = 8 << 10


class Orders(StoreBuilder):
    """100 messages in one queue, stored a millisecond apart, of which some are damaged."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.places = self.append("orders", 0, [b"x" * 200] * 100).tolist()

    def damage(self, *numbers: int) -> None:
        for number in numbers:
            place = self.places[number]
            with open(self.path / "commitlog" / f"{place // _LOG_FILE * _LOG_FILE:020d}", "r+b") as file:
                file.seek(place % _LOG_FILE)
                file.write(b"junk")


@pytest.fixture
def store(tmp_path: Path) -> Orders:
    return Orders(tmp_path / "store", log_file_size=_LOG_FILE)


def options(store: Orders, **more: str) -> dict[str, str]:
    return {"path": str(store.path), "subscribe": "orders", "corruptRecordMode": "skip"} | more


def batch(store: Orders, **more: str) -> CommitLogBatchReader:
    return CommitLogBatchReader(parse_batch_options(options(store, **more)), check_schema(PLACE))


def rows(reader: CommitLogBatchReader) -> list[int]:
    return [
        offset
        for partition in reader.partitions()
        for found in reader.read(partition)
        for offset in found.column(0).to_pylist()
    ]


def without(*numbers: int) -> list[int]:
    return [number for number in range(100) if number not in numbers]


def test_a_damaged_record_fails_a_batch_unless_it_is_skipped(store: Orders, caplog: pytest.LogCaptureFixture) -> None:
    store.damage(40, 41, 70)
    with pytest.raises(CorruptRecord, match="offset 40"):
        rows(batch(store, corruptRecordMode="fail"))
    with caplog.at_level(logging.WARNING):
        assert rows(batch(store)) == without(40, 41, 70)
    assert "skipped the offsets [40, 42), 2 messages" in caplog.text
    assert "skipped the offsets [70, 71)" in caplog.text


def test_small_partitions_skip_the_same_messages(store: Orders) -> None:
    store.damage(0, 40, 41, 99)
    assert rows(batch(store, maxBytesPerPartition="1k")) == without(0, 40, 41, 99)


def test_a_missing_file_is_a_loss_though_damage_is_skipped(store: Orders) -> None:
    store.damage(90)
    (store.path / "commitlog" / f"{_LOG_FILE:020d}").unlink()
    with pytest.raises(DataLossError):
        rows(batch(store))
    missing = [number for number in range(100) if _LOG_FILE <= store.places[number] < 2 * _LOG_FILE]
    assert missing
    assert rows(batch(store, failOnDataLoss="false")) == without(90, *missing)


@pytest.mark.parametrize("damaged", [[49], [50], [24, 49, 74], [*range(40, 60)]])
def test_a_damaged_record_does_not_stop_the_search_by_time(store: Orders, damaged: list[int]) -> None:
    store.damage(*damaged)
    found = rows(batch(store, startingTimestamp=str(FIRST_STORE_TIME + 30), endingTimestamp=str(FIRST_STORE_TIME + 80)))
    assert found == [number for number in range(30, 80) if number not in damaged]


def test_a_stream_continues_after_damage_at_its_position(store: Orders) -> None:
    """The record that would identify the position is damaged, before or after the offset was recorded."""
    store.damage(19)
    given = parse_stream_options(options(store, startingOffsets="earliest", maxOffsetsPerTrigger="20"))
    task = ReadTask(given, check_schema(PLACE))
    planner = StreamPlanner.open(given)
    read: list[int] = []
    try:
        start = planner.initial_offset()
        for number in range(5):
            end = planner.latest_offset(start, limited=True)
            store.damage(20 * number + 19)
            for partition in planner.partitions(start, end):
                read += [offset for found in task.read(partition) for offset in found.column(0).to_pylist()]
            planner.close()
            planner = StreamPlanner.open(given)  # as after a restart: every fence is compared
            start = end
    finally:
        planner.close()
    assert read == without(19, 39, 59, 79, 99)


def test_damaged_units_lose_no_message_without_a_report(store: Orders, caplog: pytest.LogCaptureFixture) -> None:
    """Two queues are read side by side, as stretches of the log, which are found through their units."""
    store.append("audit", 0, [b"y" * 200] * 100)
    for topic in ("orders", "audit"):
        (path,) = (store.path / "consumequeue" / topic / "0").iterdir()
        with path.open("r+b") as file:
            file.seek(20 * 99)
            file.write((1 << 40).to_bytes(8, "big"))
            file.seek(20 * 30)
            file.write(b"\xff" * 20)
    with caplog.at_level(logging.WARNING):
        found = rows(batch(store, subscribe="orders,audit", maxBytesPerPartition="4k"))
    assert sorted(found) == sorted(without(30, 99) * 2)
    assert "skipped the offsets [30, 31)" in caplog.text
    assert "skipped the offsets [99, 100)" in caplog.text


def test_a_batch_reads_a_log_without_queues(store: Orders) -> None:
    shutil.rmtree(store.path / "consumequeue")
    store.damage(40)
    assert rows(batch(store, fromLog="true")) == without(40)
    assert rows(batch(store, fromLog="true", maxBytesPerPartition="2k")) == without(40)
    with pytest.raises(CorruptRecord, match=r"offsets \[40, 41\)"):
        rows(batch(store, fromLog="true", corruptRecordMode="fail"))


def test_zeroed_units_end_no_query_and_no_row_is_missing_without_a_word(store: Orders) -> None:
    """Wherever they are in the queue: planning takes no hole for its end, and tasks report it."""
    (file,) = (store.path / "consumequeue" / "orders" / "0").iterdir()
    whole = file.read_bytes()
    for first in range(0, 96, 3):
        damaged = bytearray(whole)
        damaged[first * 20 : first * 20 + 60] = bytes(60)
        file.write_bytes(damaged)
        assert rows(batch(store)) == [*range(first), *range(first + 3, 100)]
        with pytest.raises(CorruptConsumeQueue, match=f"Unit of queue offset {first} "):
            rows(batch(store, corruptRecordMode="fail"))
        for mode in ("skip", "fail"):
            planner = StreamPlanner.open(
                parse_stream_options(options(store, startingOffsets="earliest", corruptRecordMode=mode))
            )
            end = planner.latest_offset(planner.initial_offset(), limited=False)
            assert StreamOffset.from_json(end).offsets == {("orders", 0): 100}
            planner.close()


BODY = StructType([StructField("queueOffset", LongType()), StructField("body", BinaryType())])


def body_rows(path: Path, columns: StructType, **more: str) -> dict[int, bytes | None]:
    """By queue offset, the bodies that a batch reads; None where it reads none."""
    given = parse_batch_options({"path": str(path), "subscribe": "orders", **more})
    reader = CommitLogBatchReader(given, check_schema(columns))
    rows = (row for one in reader.partitions() for found in reader.read(one) for row in found.to_pylist())
    return {row["queueOffset"]: row.get("body") for row in rows}


@pytest.mark.parametrize("short", [{}, {"maxRecordsPerPartition": "1"}], ids=["one partition", "one a message"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_body_that_does_not_match_its_crc_fails_a_query_unless_it_is_asked_for(
    tmp_path: Path, kind: str, short: dict[str, str]
) -> None:
    store = make(kind, tmp_path / "store")
    with pytest.raises(CorruptRecord, match=r"BODYCRC.*verifyCrc=false.*corruptRecordMode to skip"):
        body_rows(store.path, BODY, **short)
    assert body_rows(store.path, BODY, verifyCrc="false", **short) == dict(enumerate(store.changed))
    whole = {offset: body for offset, body in enumerate(store.whole) if offset != BAD}
    assert body_rows(store.path, BODY, corruptRecordMode="skip", **short) == whole
    assert body_rows(store.path, PLACE, **short) == dict.fromkeys(range(COUNT))
