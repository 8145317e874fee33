"""What a task reads, also when the store changes under it."""

from __future__ import annotations

import logging
import os
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from commitlog.errors import CorruptRecord
from pyspark_commitlog.errors import DataLossError, TailLostError
from pyspark_commitlog.planning import QueueRange, RangePartition
from pyspark_commitlog.schema import check_schema
from pyspark_commitlog.task import ReadTask
from tests.support.store_builder import StoreBuilder

__all__: list[str] = []

SCHEMA = StructType([StructField("queueOffset", LongType()), StructField("body", BinaryType())])


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    builder = StoreBuilder(tmp_path / "store", log_file_size=16 << 10, queue_file_units=20)
    builder.append("orders", 0, [b"%04d" % number + b"x" * 1000 for number in range(100)])
    builder.append("audit", 0, [b"a"] * 3)
    return builder


def task(store: StoreBuilder, *, fail: bool = True, verify_crc: bool = False) -> ReadTask:
    return ReadTask(
        path=str(store.path), projection=check_schema(SCHEMA), verify_crc=verify_crc, fail_on_data_loss=fail
    )


def partition(start: int = 0, stop: int = 100) -> RangePartition:
    return RangePartition((QueueRange("orders", 0, start, stop), QueueRange("audit", 0, 0, 3)))


def offsets(batches: list[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]


def test_all_ranges_in_order(store: StoreBuilder) -> None:
    batches = list(task(store).read(partition(90)))
    assert offsets(batches) == [*range(90, 100), 0, 1, 2]
    assert batches[0].column(1)[0].as_py().startswith(b"0090")


def test_every_attempt_gives_the_same_batches(store: StoreBuilder) -> None:
    reader: ReadTask = pickle.loads(pickle.dumps(task(store)))
    wanted: RangePartition = pickle.loads(pickle.dumps(partition()))
    first = list(reader.read(wanted))
    store.append("orders", 0, [b"more"] * 50)
    assert list(reader.read(wanted)) == first


def test_every_batch_has_the_declared_schema(store: StoreBuilder) -> None:
    expected = pa.schema([pa.field("queueOffset", pa.int64()), pa.field("body", pa.binary())])
    assert {batch.schema for batch in task(store).read(partition())} == {expected}


@pytest.mark.parametrize("empty", [InputPartition(None), RangePartition(())])
def test_sparks_own_empty_partition_gives_nothing(store: StoreBuilder, empty: InputPartition) -> None:
    assert list(task(store).read(empty)) == []


def test_retention_before_the_task_began(store: StoreBuilder, caplog: pytest.LogCaptureFixture) -> None:
    store.delete_log_files(2)
    with pytest.raises(DataLossError, match=r"wanted offsets \[0, 100\), available are \[28, 100\)") as caught:
        list(task(store).read(partition()))
    assert caught.value.__cause__ is not None
    with caplog.at_level(logging.WARNING):
        assert offsets(list(task(store, fail=False).read(partition()))) == [*range(28, 100), 0, 1, 2]
    assert "Going on at offset 28" in caplog.text


@pytest.mark.parametrize("fail", [True, False])
def test_retention_overtaking_the_task(store: StoreBuilder, fail: bool) -> None:
    batches = task(store, fail=fail).read(partition())
    read = [next(batches)]
    store.delete_log_files(5)
    if fail:
        with pytest.raises(DataLossError) as caught:
            list(batches)
        assert caught.value.available is not None
        assert caught.value.wanted[0] < caught.value.available[0] == 70
        return
    read += batches
    found = offsets(read)
    assert found[-3:] == [0, 1, 2]
    assert sorted(set(found[:-3])) == found[:-3]
    assert found[-4] == 99
    assert set(range(70, 100)) <= set(found)


def test_a_tail_that_was_lost_after_planning(store: StoreBuilder) -> None:
    with pytest.raises(TailLostError, match="planned up to offset 120"):
        list(task(store).read(partition(90, 120)))
    assert offsets(list(task(store, fail=False).read(partition(90, 120)))) == [*range(90, 100), 0, 1, 2]


def test_a_missing_file_in_the_middle(store: StoreBuilder) -> None:
    sorted((store.path / "commitlog").iterdir())[3].unlink()
    with pytest.raises(DataLossError) as caught:
        list(task(store).read(partition()))
    assert caught.value.__cause__ is not None
    found = offsets(list(task(store, fail=False).read(partition())))
    assert found[:43] == [*range(42), 56]
    assert len(found) == 100 - 14 + 3


def test_a_queue_that_is_gone(store: StoreBuilder) -> None:
    for path in (store.path / "consumequeue" / "orders" / "0").iterdir():
        path.unlink()
    (store.path / "consumequeue" / "orders" / "0").rmdir()
    with pytest.raises(DataLossError, match="available are none"):
        list(task(store).read(partition()))
    assert offsets(list(task(store, fail=False).read(partition()))) == [0, 1, 2]


def test_damage_is_never_taken_for_retention(store: StoreBuilder) -> None:
    log = min((store.path / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(500)
        file.write(b"\x00")
    for fail in (True, False):
        with pytest.raises(CorruptRecord):
            list(task(store, fail=fail, verify_crc=True).read(partition()))


def test_no_file_stays_open(store: StoreBuilder) -> None:
    before = set(os.listdir("/proc/self/fd"))
    list(task(store).read(partition()))
    abandoned = task(store).read(partition())
    next(abandoned)
    del abandoned
    assert set(os.listdir("/proc/self/fd")) == before
