"""Reading in a task, also when the store changes concurrently."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import truediv
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from commitlog_store.errors import CorruptRecord, FileChanged
from pyspark_commitlog.errors import DataLossError, TailLostError
from pyspark_commitlog.options.read import SourceOptions
from pyspark_commitlog.options.subscription import Subscription
from pyspark_commitlog.source.partitions import RangePartition, plan_partitions
from pyspark_commitlog.source.schema import check_schema
from pyspark_commitlog.source.task import ReadTask
from pyspark_commitlog.source.task_reports import Tally
from pyspark_commitlog.source.units_of_ranges import QueueRange
from tests.connector.source.sized_store import NewStore, SizedStore
from tests.store.serve.servers import served
from tests.support.programs import run_program
from tests.support.store_builder import StoreBuilder
from tests.support.waiting import WAIT_LIMIT_S

SCHEMA = StructType([StructField("queueOffset", LongType()), StructField("body", BinaryType())])


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    builder = StoreBuilder(tmp_path / "store", log_file_size=16 << 10, queue_file_units=20)
    builder.append("orders", 0, [b"%04d" % number + b"x" * 1000 for number in range(100)])
    builder.append("audit", 0, [b"a"] * 3)
    return builder


def task(store: StoreBuilder, *, fail: bool = True, verify_crc: bool = False, skip: bool = False) -> ReadTask:
    return _task(store, SCHEMA, fail_on_data_loss=fail, verify_crc=verify_crc, skips_corrupt=skip)


def _task(store: StoreBuilder | SizedStore, schema: StructType, **options: Any) -> ReadTask:
    given = SourceOptions(path=str(store.path), subscription=Subscription(pattern=".*"), **options)
    return ReadTask(given, check_schema(schema))


def partition(start: int = 0, stop: int = 100, *, short: bool = False) -> RangePartition:
    return RangePartition((QueueRange("orders", 0, start, stop), QueueRange("audit", 0, 0, 3)), short=short)


one_by_one_or_at_once = pytest.mark.parametrize("short", [False, True], ids=["one by one", "at once"])


def offsets(batches: list[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]


@one_by_one_or_at_once
def test_ranges_are_read_in_their_order(store: StoreBuilder, short: bool) -> None:
    batches = list(task(store).read(partition(90, short=short)))
    assert offsets(batches) == [*range(90, 100), 0, 1, 2]
    assert batches[0].column(1)[0].as_py().startswith(b"0090")


@one_by_one_or_at_once
def test_every_attempt_gives_the_same_batches(store: StoreBuilder, short: bool) -> None:
    reader: ReadTask = pickle.loads(pickle.dumps(task(store)))
    wanted: RangePartition = pickle.loads(pickle.dumps(partition(short=short)))
    first = list(reader.read(wanted))
    store.append("orders", 0, [b"more"] * 50)
    assert list(reader.read(wanted)) == first


@one_by_one_or_at_once
def test_every_batch_has_the_declared_schema(store: StoreBuilder, short: bool) -> None:
    expected = pa.schema([pa.field("queueOffset", pa.int64()), pa.field("body", pa.binary())])
    assert {batch.schema for batch in task(store).read(partition(short=short))} == {expected}


@pytest.mark.parametrize("empty", [InputPartition(None), RangePartition(())])
def test_an_empty_partition_of_spark_gives_no_rows(store: StoreBuilder, empty: InputPartition) -> None:
    assert list(task(store).read(empty)) == []


@one_by_one_or_at_once
def test_retention_before_the_task_began_is_lost_data(
    store: StoreBuilder, short: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store.delete_log_files(2)
    with pytest.raises(DataLossError, match=r"wanted offsets \[0, 100\), available are \[28, 100\)") as caught:
        list(task(store).read(partition(short=short)))
    assert caught.value.__cause__ is not None
    with caplog.at_level(logging.WARNING):
        assert offsets(list(task(store, fail=False).read(partition(short=short)))) == [*range(28, 100), 0, 1, 2]
    assert "Continuing at offset 28" in caplog.text


def test_a_file_that_goes_while_ranges_are_read_together_is_looked_for_again(
    store: StoreBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each range is then read by itself, which knows retention from damage."""

    def changed(*_: object, **__: object) -> None:
        raise FileChanged("The file was removed while it was read.", path=str(store.path))

    monkeypatch.setattr("commitlog_store.queue.several_queues.read_together", changed)
    assert offsets(list(task(store).read(partition(90)))) == [*range(90, 100), 0, 1, 2]


@pytest.mark.parametrize("fail", [True, False])
def test_retention_overtaking_the_task_is_lost_data(store: StoreBuilder, fail: bool) -> None:
    # More than what is read at once.
    store.append("orders", 0, [b"%04d" % number + b"x" * 1000 for number in range(100, 1200)])
    batches = task(store, fail=fail).read(partition(stop=1200))
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
    assert found[-4] == 1199
    assert set(range(70, 1200)) <= set(found)


@pytest.mark.parametrize("damage", ["none", "missing file", "lost messages", "damaged records"])
def test_many_ranges_give_what_each_gives_by_itself(tmp_path: Path, damage: str) -> None:
    """In the order of the ranges, with the same losses, counted for the same topics."""
    store = StoreBuilder(tmp_path / "store", log_file_size=16 << 10, queue_file_units=20)
    for turn in range(25):
        for number in range(20):
            store.append(f"topic-{number:02d}", [0, 1, 2], [b"%d" % turn * (1 + number)] * 3)
    ranges = [QueueRange(f"topic-{number:02d}", queue_id, 0, 25) for number in range(20) for queue_id in range(3)]
    logs = sorted((store.path / "commitlog").iterdir())
    if damage == "missing file":
        logs[3].unlink()
    elif damage == "lost messages":
        store.delete_log_files(2)
    elif damage == "damaged records":
        for path in logs[1:4]:
            with path.open("r+b") as file:
                file.seek(40)
                file.write(b"\xff\xff")
    reader = task(store, fail=False, verify_crc=True, skip=True)
    together, apart = Tally(), Tally()
    found = list(reader._read(RangePartition(tuple(ranges)), together))
    alone = [batch for one in ranges for batch in reader._read(RangePartition((one,)), apart)]
    assert pa.Table.from_batches(found) == pa.Table.from_batches(alone)
    assert (together.rows, together.lost, together.damaged) == (apart.rows, apart.lost, apart.damaged)
    assert damage != "none" or (len(found) < 5 and together.rows == {f"topic-{number:02d}": 75 for number in range(20)})


@one_by_one_or_at_once
def test_a_tail_that_was_lost_after_planning_is_reported(store: StoreBuilder, short: bool) -> None:
    with pytest.raises(TailLostError, match="planned up to offset 120"):
        list(task(store).read(partition(90, 120, short=short)))
    assert offsets(list(task(store, fail=False).read(partition(90, 120, short=short)))) == [*range(90, 100), 0, 1, 2]


@one_by_one_or_at_once
def test_a_missing_file_in_the_middle_is_lost_data(store: StoreBuilder, short: bool) -> None:
    sorted((store.path / "commitlog").iterdir())[3].unlink()
    with pytest.raises(DataLossError) as caught:
        list(task(store).read(partition(short=short)))
    assert caught.value.__cause__ is not None
    found = offsets(list(task(store, fail=False).read(partition(short=short))))
    assert found[:43] == [*range(42), 56]
    assert len(found) == 100 - 14 + 3


@one_by_one_or_at_once
def test_a_removed_queue_is_lost_data(store: StoreBuilder, short: bool) -> None:
    for path in (store.path / "consumequeue" / "orders" / "0").iterdir():
        path.unlink()
    (store.path / "consumequeue" / "orders" / "0").rmdir()
    with pytest.raises(DataLossError, match="available are none"):
        list(task(store).read(partition(short=short)))
    assert offsets(list(task(store, fail=False).read(partition(short=short)))) == [0, 1, 2]


@one_by_one_or_at_once
def test_damage_is_never_taken_for_retention(store: StoreBuilder, short: bool) -> None:
    log = min((store.path / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(500)
        file.write(b"\x00")
    for fail in (True, False):
        with pytest.raises(CorruptRecord):
            list(task(store, fail=fail, verify_crc=True).read(partition(short=short)))


# -- side by side ------------------------------------------------------------------------------------------------------

PLACES = StructType(
    [StructField("queueId", IntegerType()), StructField("queueOffset", LongType()), StructField("body", BinaryType())]
)


def side_by_side(store: SizedStore, *, fail: bool = True, skip: bool = False) -> ReadTask:
    return _task(store, PLACES, fail_on_data_loss=fail, skips_corrupt=skip)


def all_queues(store: SizedStore) -> RangePartition:
    return RangePartition(tuple(store.whole()), side_by_side=True)


def by_queue(batches: Iterable[pa.RecordBatch]) -> dict[int, list[int]]:
    """The offsets of each queue in the order in which they came."""
    found: dict[int, list[int]] = {}
    for batch in batches:
        for queue_id, offset in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            found.setdefault(queue_id, []).append(offset)
    return found


def everything(store: SizedStore) -> dict[int, list[int]]:
    return {queue_id: list(range(stop)) for _, queue_id, _, stop in store.whole() if stop}


def interleaved(new_store: NewStore, counts: Sequence[int]) -> SizedStore:
    """Queues whose messages are spread evenly over the log, which has files of some 25 messages."""
    store = new_store(log_file_size=8 << 10, queue_file_units=30)
    rows = sorted((turn / count, queue_id) for queue_id, count in enumerate(counts) for turn in range(count))
    store.append("t", [queue_id for _, queue_id in rows], [300] * len(rows))
    return store


@given(st.lists(st.integers(1, 150), min_size=2, max_size=6))
def test_side_by_side_each_queue_is_complete_and_in_order(new_store: NewStore, counts: list[int]) -> None:
    store = interleaved(new_store, counts)
    assert by_queue(side_by_side(store).read(all_queues(store))) == everything(store)


def test_queues_of_a_stretch_are_read_side_by_side(new_store: NewStore) -> None:
    """In the order of the log, which is gone over once."""
    store = interleaved(new_store, [400, 100, 300])
    read = [
        store.places["t", queue_id][offset]
        for batch in side_by_side(store).read(all_queues(store))
        for queue_id, offset in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
    ]
    assert read == sorted(read)
    assert len(read) == 800


def test_side_by_side_queues_are_read_to_their_ends_around_damage(new_store: NewStore) -> None:
    """Up to the damage in the order of the log; after it, none gets ahead of another by more than a batch."""
    counts = [400, 100, 300]
    store = interleaved(new_store, counts)
    place = store.places["t", 2][150]
    log = sorted((store.path / "commitlog").iterdir())[place // (8 << 10)]
    with log.open("r+b") as file:
        file.seek(place % (8 << 10) + 4)
        file.write(b"\xff")
    batches = list(side_by_side(store, skip=True).read(all_queues(store)))
    expected = everything(store)
    expected[2].remove(150)
    assert by_queue(batches) == expected
    read = [0, 0, 0]
    for batch in batches:
        queue_ids = batch.column(0).to_pylist()
        if len(set(queue_ids)) == 1 and max(read) > 250:
            ahead = read[queue_ids[0]] / counts[queue_ids[0]] - min(map(truediv, read, counts))
            assert ahead < 0.2
        for queue_id in queue_ids:
            read[queue_id] += 1


def topics_in_turns(new_store: NewStore, counts: Sequence[int]) -> tuple[SizedStore, RangePartition]:
    """As ``interleaved``, with a topic for each queue."""
    store = new_store(log_file_size=8 << 10, queue_file_units=30)
    for _, queue_id in sorted(
        (turn / count, queue_id) for queue_id, count in enumerate(counts) for turn in range(count)
    ):
        store.append(f"t{queue_id}", queue_id, [300])
    ranges = tuple(QueueRange(f"t{queue_id}", queue_id, 0, count) for queue_id, count in enumerate(counts))
    return store, RangePartition(ranges, side_by_side=True)


def test_topics_of_a_stretch_are_read_in_step(new_store: NewStore) -> None:
    """None gets ahead of another by more than the batch it gave last, so that they use the same pages."""
    counts = [200, 50, 150]
    store, wanted = topics_in_turns(new_store, counts)
    read = [0, 0, 0]
    for batch in side_by_side(store).read(wanted):
        parts = [done / count for done, count in zip(read, counts, strict=True)]
        queue_id = batch.column(0)[0].as_py()
        assert parts[queue_id] == min(parts)
        read[queue_id] += batch.num_rows
    assert read == counts


@pytest.mark.parametrize("damaged", [False, True])
def test_a_short_partition_has_one_order_whether_it_is_read_at_once_or_not(new_store: NewStore, damaged: bool) -> None:
    store = interleaved(new_store, [90, 60, 30])
    if damaged:  # then the ranges are read one by one
        log = min((store.path / "commitlog").iterdir())
        with log.open("r+b") as file:
            file.seek(store.places["t", 2][0] + 4)
            file.write(b"\xff")
    task = side_by_side(store, skip=True)
    short = RangePartition(tuple(store.whole()), side_by_side=True, short=True)
    found = [
        place
        for batch in task.read(short)
        for place in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
    ]
    expected = [(queue_id, offset) for queue_id, offsets in everything(store).items() for offset in offsets]
    assert found == [place for place in expected if not (damaged and place == (2, 0))]


def test_side_by_side_every_attempt_gives_the_same_batches(new_store: NewStore) -> None:
    store = interleaved(new_store, [90, 200, 10])
    wanted: RangePartition = pickle.loads(pickle.dumps(all_queues(store)))
    first = list(side_by_side(store).read(wanted))
    assert len(first) > 10
    store.append("t", [0, 1, 2] * 50, [300] * 150)
    assert list(side_by_side(store).read(wanted)) == first


def test_a_topic_with_nearly_all_messages_keeps_step_with_the_small_ones(new_store: NewStore) -> None:
    """95 of 100 messages are of topic 0; the others are read where they lie, not first and not last."""
    counts = [950, 20, 20, 10]
    store, wanted = topics_in_turns(new_store, counts)
    batches = list(side_by_side(store).read(wanted))
    assert by_queue(batches) == {queue_id: list(range(count)) for queue_id, count in enumerate(counts)}
    order = [batch.column(0)[0].as_py() for batch in batches]
    for queue_id in (1, 2, 3):
        seen = [index / len(order) for index, one in enumerate(order) if one == queue_id]
        assert seen[0] < 0.1
        assert seen[-1] > 0.8
        assert max(after - before for before, after in pairwise(seen)) < 0.3


def test_the_planned_stretches_together_give_every_row_once_and_in_order(new_store: NewStore) -> None:
    store = interleaved(new_store, [300, 40, 160])
    partitions = plan_partitions(store.reader, store.whole(), max_bytes=20_000, min_partitions=None)
    assert sum(partition.side_by_side for partition in partitions) >= 7
    task = side_by_side(store)
    assert by_queue(batch for partition in partitions for batch in task.read(partition)) == everything(store)


def test_side_by_side_one_lost_queue_is_reported_or_left_out(new_store: NewStore) -> None:
    store = interleaved(new_store, [100, 100, 100])
    expected = everything(store)
    wanted = all_queues(store)
    store.delete_queue("t", 1)
    with pytest.raises(DataLossError, match="queue 1: wanted offsets from 0 on, available are none"):
        list(side_by_side(store).read(wanted))
    del expected[1]
    assert by_queue(side_by_side(store, fail=False).read(wanted)) == expected


def test_side_by_side_retention_takes_the_head_of_every_queue(new_store: NewStore) -> None:
    store = interleaved(new_store, [100, 100, 100])
    wanted = all_queues(store)
    store.builder.delete_log_files(2)
    with pytest.raises(DataLossError, match="no longer in the store"):
        list(side_by_side(store).read(wanted))
    left = {info.queue_id: list(range(info.min_offset, 100)) for info in store.reader.queues("t")}
    assert min(len(offsets) for offsets in left.values()) < 100
    assert by_queue(side_by_side(store, fail=False).read(wanted)) == left


def test_side_by_side_a_loss_that_a_server_finds_later_repeats_no_row(
    new_store: NewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer of the server ends within the ranges, and the next question is refused because of one of them."""
    monkeypatch.setattr("commitlog_store.remote.blocks._BUDGET", 10_000)
    store = interleaved(new_store, [300, 300, 300])
    expected = everything(store)
    with served(store.path) as url:
        task = side_by_side(store, fail=False)
        batches = replace(task, options=replace(task.options, path=url)).read(all_queues(store))
        read = [next(batches)]
        store.delete_queue("t", 1)
        read += batches
    found = by_queue(read)
    assert 0 < len(found[1]) < 300
    assert found == expected | {1: expected[1][: len(found[1])]}


# -- files -------------------------------------------------------------------------------------------------------------


def test_no_file_stays_open(store: StoreBuilder) -> None:
    before = set(os.listdir("/proc/self/fd"))
    list(task(store).read(partition()))
    abandoned = task(store).read(partition())
    next(abandoned)
    del abandoned
    assert set(os.listdir("/proc/self/fd")) == before


def test_without_descriptors_plans_and_tasks_fail_by_name_and_succeed_later(tmp_path: Path) -> None:
    done = run_program("-m", "tests.connector.source.without_descriptors", tmp_path, timeout=WAIT_LIMIT_S)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stdout + done.stderr
