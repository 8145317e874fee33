"""Spark reads a store and its archive as one: batches and streams across the border, beside retention at work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from commitlog_store import StoreReader
from commitlog_store.archive.archiver import archive_store
from pyspark_commitlog.errors import DataLossError, OptionError
from pyspark_commitlog.options.read import parse_batch_options, parse_stream_options
from pyspark_commitlog.source.schema import check_schema
from pyspark_commitlog.source.stream_planner import StreamPlanner
from pyspark_commitlog.source.task import ReadTask
from tests.store.archive_reader.test_archive_equals_directory import add
from tests.store.history.test_one_history import Aged, aged_store, delete_head
from tests.support import quick_programs
from tests.support.programs import child_environment
from tests.support.waiting import WAIT_LIMIT_S

S3 = "s3://past/orders"
SCHEMA = StructType([StructField("queueId", IntegerType()), StructField("queueOffset", LongType())])


class _Stream:
    """A query that plans and reads one batch after the other, with the planner in place of Spark's own."""

    def __init__(self, aged: Aged, **more: str) -> None:
        options = {"path": str(aged.store), "archive": aged.archive, "subscribe": "orders"}
        parsed = parse_stream_options(options | {"startingOffsets": "earliest"} | more)
        self._planner = StreamPlanner(parsed, clock=lambda: 0.0)
        self._task = ReadTask(parsed, check_schema(SCHEMA))
        self._start = self._planner.initial_offset()

    def plan(self) -> None:
        self._end = self._planner.latest_offset(self._start, limited=True)

    def read(self) -> list[tuple[int, int]]:
        partitions = self._planner.partitions(self._start, self._end)
        self._start = self._end
        batches = [batch for one in partitions for batch in self._task.read(one)]
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]

    def rows(self) -> list[tuple[int, int]]:
        """Of batches up to the present end."""
        found: list[tuple[int, int]] = []
        while True:
            self.plan()
            if self._end == self._start:
                return found
            found += self.read()


def _all(count: int) -> list[tuple[int, int]]:
    return [(queue, at) for queue in range(3) for at in range(count // 3 + (queue < count % 3))]


def test_a_stream_from_earliest_reads_each_row_once_across_the_border(tmp_path: Path) -> None:
    aged = aged_store(tmp_path)
    stream = _Stream(aged, maxOffsetsPerTrigger="50")
    found = []
    for _ in range(3):
        stream.plan()
        found += stream.read()
    # It has fallen behind: what it has planned, and what comes after it, is in the archive alone.
    stream.plan()
    archive_store(aged.store, aged.archive.removeprefix("archive+"), with_last=True)
    delete_head(aged.store, len(list((aged.store / "commitlog").iterdir())) - 1)
    add(aged.builder, "orders", 3, 30, 400)
    found += stream.read() + stream.rows()
    assert sorted(found) == _all(250)


def test_a_gap_is_a_loss_as_fail_on_data_loss_has_it(tmp_path: Path) -> None:
    aged = aged_store(tmp_path, archived=40, deleted=9)
    with StoreReader.open(aged.archive) as archive, StoreReader.open(aged.store) as live:
        lost = {
            (queue, at)
            for queue in range(3)
            for at in range(archive.queue_info("orders", queue).max_offset, live.queue_info("orders", queue).min_offset)
        }
    assert lost
    with pytest.raises(DataLossError, match="ends before them and") as raised:
        _Stream(aged).rows()
    assert aged.archive in str(raised.value)
    assert sorted(_Stream(aged, failOnDataLoss="false").rows()) == sorted({*_all(100)} - lost)


@pytest.fixture(scope="module")
def aged(tmp_path_factory: pytest.TempPathFactory) -> Aged:
    return aged_store(tmp_path_factory.mktemp("aged"))


def test_a_batch_has_the_rows_of_the_whole_store(spark: SparkSession, aged: Aged) -> None:
    with StoreReader.open(aged.whole) as whole:
        after_some = str(whole.store_timestamp("orders", 0, 10))
    for chosen in ({"tags": "a"}, {"startingTimestamp": after_some, "filter": "amount > 3"}):
        tables = []
        for path, options in ((aged.whole, {}), (aged.store, {"archive": aged.archive})):
            frame = spark.read.format("commitlog").options(subscribe="orders", **chosen, **options).load(str(path))
            tables.append(frame.orderBy("queueId", "queueOffset").collect())
        assert tables[0] == tables[1]
        assert len(tables[0]) > 10


def test_a_stream_beside_retention_in_another_process_reads_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    """The owner archives and deletes all the time; the stream reads less a trigger than comes, so it falls behind."""
    store, past = tmp_path / "store", tmp_path / "past"
    command = [sys.executable, "-m", "tests.support.aging_owner", str(store), f"file://{past}"]
    pipe = subprocess.PIPE
    with quick_programs.Popen(command, stdin=pipe, stdout=pipe, text=True, env=child_environment()) as owner:
        assert owner.stdin
        assert owner.stdout
        try:
            while int(owner.stdout.readline()) < 400:
                pass
            frame = (
                spark.readStream.format("commitlog")
                .option("subscribe", "orders")
                .option("archive", f"archive+file://{past}")
            )
            frame = frame.option("startingOffsets", "earliest")

            def run(**more: str) -> None:
                rows = frame.options(**more).load(str(store)).select("queueId", "queueOffset", "body")
                writer = rows.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
                query = writer.option("path", str(tmp_path / "rows")).trigger(availableNow=True).start()
                assert query.awaitTermination(int(WAIT_LIMIT_S))

            run(maxOffsetsPerTrigger="200")
            run(maxOffsetsPerTrigger="400")
            with StoreReader.open(store) as live:
                assert live.queue_info("orders", 0).min_offset > 100
        finally:
            owner.stdin.close()
        count = int(owner.stdout.read().split()[-1])
    assert owner.returncode == 0
    run()
    found = spark.read.parquet(str(tmp_path / "rows")).collect()
    numbers = sorted(int(row["body"].decode()) for row in found)
    assert numbers == list(range(count))
    assert all(int(row["body"].decode()) == row["queueOffset"] * 2 + row["queueId"] for row in found)


def test_the_option_reaches_the_reader(tmp_path: Path) -> None:
    parsed = parse_batch_options(
        {"path": "/data/store", "archive": S3, "subscribe": "orders", "cacheDir": str(tmp_path), "region": "eu"}
    )
    assert parsed.remote.of("/data/store") == {
        "archive": S3,
        "storage_options": {"region": "eu"},
        "cache_dir": str(tmp_path),
        "cache_size": None,
    }
    served = parse_batch_options({"path": "grpc://host:1", "archive": S3, "subscribe": "orders", "token": "t"})
    assert served.remote.of("grpc://host:1")["token"] == "t"
    assert served.remote.of("grpc://host:1")["archive"] == S3
    several = parse_batch_options({"path": "a=/a,b=/b", "archive": f"b={S3}", "subscribe": "orders"})
    assert several.of_store("b").remote.of("/b")["archive"] == S3
    assert several.of_store("a").remote.of("/a") == {}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "/a", "archive": "/past"}, "the address of an archive"),
        ({"path": S3, "archive": S3}, "no archive for"),
        ({"path": "/a", "archive": S3, "fromLog": "true"}, "give one of them"),
        ({"path": "a=/a,b=/b", "archive": S3}, "archives by the names of the stores"),
        ({"path": "a=/a,b=/b", "archive": f"c={S3}"}, "names of the stores in path"),
    ],
)
def test_an_archive_that_is_not_one_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse_batch_options({"subscribe": "orders", **options})
