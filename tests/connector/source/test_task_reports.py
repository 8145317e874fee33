"""The files in which tasks report what they read: written where a listener waits, once for each partition."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.sql.types import LongType, StructField, StructType

from pyspark_commitlog.options.read import SourceOptions, parse_stream_options
from pyspark_commitlog.options.subscription import Subscription
from pyspark_commitlog.source.limits_by_spark import CommitLogStreamReader
from pyspark_commitlog.source.partitions import RangePartition
from pyspark_commitlog.source.schema import check_schema
from pyspark_commitlog.source.task import ReadTask
from pyspark_commitlog.source.task_reports import close_reports, drop_reports, open_reports, read_reports
from pyspark_commitlog.source.units_of_ranges import QueueRange
from tests.connector.source.planned_query import filled
from tests.connector.source.sized_store import NewStore, SizedStore

QUERY = "5d2e"
SCHEMA = check_schema(StructType([StructField("queueOffset", LongType())]))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary directory of this test, in which batch 3 of a query runs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    context = TaskContext()
    context._localProperties = {"sql.streaming.queryId": QUERY, "streaming.sql.batchId": "3"}
    monkeypatch.setattr(TaskContext, "_taskContext", context)
    yield tmp_path
    close_reports(QUERY)


def task(store: SizedStore) -> ReadTask:
    subscription = Subscription(pattern=".*")
    options = SourceOptions(path=str(store.path), subscription=subscription, verify_crc=False, fail_on_data_loss=False)
    return ReadTask(options, SCHEMA)


def partition(number: int, *ranges: QueueRange, count: int = 2) -> RangePartition:
    return RangePartition(ranges, run="1", number=number, count=count)


def reports_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("commitlog-*/*/*"))


def test_nothing_is_written_unless_a_listener_waits(temporary: Path, new_store: NewStore) -> None:
    store = filled(new_store)
    assert list(task(store).read(partition(0, QueueRange("orders", 0, 0, 10))))
    assert list(temporary.glob("commitlog-*")) == []


def test_the_reports_of_a_batch_are_complete_when_every_task_has_ended(temporary: Path, new_store: NewStore) -> None:
    store = filled(new_store)
    open_reports(QUERY)
    list(task(store).read(partition(0, QueueRange("orders", 0, 0, 10), QueueRange("audit", 0, 2, 5))))
    assert read_reports(QUERY, 3) == {}
    next(task(store).read(partition(1, QueueRange("orders", 1, 0, 10))))
    assert read_reports(QUERY, 3) == {}, "a task that a LIMIT ends has no numbers"
    list(task(store).read(partition(1, QueueRange("orders", 1, 0, 10))))
    found = read_reports(QUERY, 3)["1"]
    assert found.rows == {"orders": 20, "audit": 3}
    assert found.path == str(store.path)
    assert read_reports(QUERY, 4) == {}


def test_a_task_that_is_repeated_counts_once(temporary: Path, new_store: NewStore) -> None:
    store = filled(new_store)
    open_reports(QUERY)
    for _ in range(3):
        list(task(store).read(partition(0, QueueRange("orders", 0, 0, 10), count=1)))
    assert read_reports(QUERY, 3)["1"].rows == {"orders": 10}
    assert reports_in(temporary) == ["3.1.0"]


def test_reports_of_earlier_batches_and_ended_queries_are_removed(temporary: Path, new_store: NewStore) -> None:
    store = filled(new_store)
    open_reports(QUERY)
    list(task(store).read(partition(0, QueueRange("orders", 0, 0, 10), count=1)))
    drop_reports(QUERY, 3)
    assert reports_in(temporary) == ["3.1.0"]
    drop_reports(QUERY, 4)
    assert reports_in(temporary) == []
    close_reports(QUERY)
    assert list(temporary.glob("commitlog-*")) == []


def test_without_a_listener_any_more_old_reports_are_removed_by_tasks(
    temporary: Path, new_store: NewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(new_store)
    open_reports(QUERY)
    context = TaskContext.get()
    assert context is not None
    for batch in ("3", "4", "1004"):
        monkeypatch.setitem(context._localProperties, "streaming.sql.batchId", batch)  # type: ignore[arg-type]
        list(task(store).read(partition(0, QueueRange("orders", 0, 0, 10), count=1)))
    assert reports_in(temporary) == ["1004.1.0", "4.1.0"]


def test_a_directory_that_another_user_made_is_left_alone(temporary: Path, new_store: NewStore) -> None:
    store = filled(new_store)
    (temporary / "elsewhere").mkdir()
    (temporary / f"commitlog-{os.getuid()}").symlink_to(temporary / "elsewhere")
    open_reports(QUERY)
    list(task(store).read(partition(0, QueueRange("orders", 0, 0, 10), count=1)))
    assert list((temporary / "elsewhere").glob("*/*")) == []


def test_messages_that_a_task_finds_lost_are_counted(temporary: Path, new_store: NewStore) -> None:
    """Retention has taken five; then the file with five others of the same queue is missing."""
    store = filled(new_store, count=20)
    open_reports(QUERY)
    store.expire("orders", 0, 5)
    next(path for path in sorted((store.path / "commitlog").iterdir())[1:]).unlink()
    rows = [batch.num_rows for batch in task(store).read(partition(0, QueueRange("orders", 0, 0, 20), count=1))]
    found = read_reports(QUERY, 3)["1"]
    assert (sum(rows), found.rows, found.lost) == (10, {"orders": 10}, {("orders", 0): 10})


@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("side_by_side", [True, False])
def test_rows_count_by_topic_however_they_are_read(
    temporary: Path, new_store: NewStore, short: bool, side_by_side: bool
) -> None:
    store = filled(new_store)
    open_reports(QUERY)
    ranges = (*store.whole(), QueueRange("audit", 0, 0, 0))
    list(task(store).read(RangePartition(ranges, short=short, side_by_side=side_by_side, run="1", count=1)))
    assert read_reports(QUERY, 3)["1"].rows == {"orders": 20, "audit": 20}


class Planned:
    """The reader of a stream as Spark uses it, which has planned a batch of the whole topic ``orders``."""

    def __init__(self, store: SizedStore) -> None:
        options = {"path": str(store.path), "subscribe": "orders", "startingOffsets": "earliest"}
        self.reader = CommitLogStreamReader(parse_stream_options(options | {"failOnDataLoss": "false"}), SCHEMA)
        self.start = self.reader.initialOffset()
        self.end = self.reader.latestOffset(self.start, self.reader.getDefaultReadLimit())

    def run(self) -> list[RangePartition]:
        partitions = self.reader.partitions(self.start, self.end)
        for one in partitions:
            list(self.reader.read(one))
        self.reader.stop()
        return partitions  # type: ignore[return-value]


def test_a_batch_that_is_lost_as_a_whole_has_a_task_that_reports_it(temporary: Path, new_store: NewStore) -> None:
    store = filled(new_store)
    planned = Planned(store)
    open_reports(QUERY)
    store.expire("audit", 0, 0)
    assert [one.ranges for one in planned.run()] == [()]
    (found,) = read_reports(QUERY, 3).values()
    assert (found.wanted, found.rows) == ({}, {})


def test_a_source_without_new_messages_has_no_task(new_store: NewStore) -> None:
    planned = Planned(filled(new_store))
    assert planned.reader.partitions(planned.end, planned.end) == []
    planned.reader.stop()
