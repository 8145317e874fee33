"""kill -9 of a real driver at any moment, and tasks that fail midway: still every message once."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.connector.source.crash_driver import into_files
from tests.support.killed_driver import Drivers
from tests.support.long_runs import LONG_RUN_S, Progress, part_of
from tests.support.spark_programs import SparkPrograms
from tests.support.store_builder import StoreBuilder
from tests.support.waiting import WAIT_LIMIT_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


DRIVER = "tests.connector.source.crash_driver"

pytestmark = pytest.mark.spark


@pytest.fixture
def drivers() -> Iterator[Drivers]:
    with Drivers() as drivers:
        yield drivers


@pytest.mark.stress
@pytest.mark.timeout(LONG_RUN_S)
def test_a_query_killed_many_times_reads_every_message_once(
    spark: SparkSession, tmp_path: Path, drivers: Drivers, progress: Progress
) -> None:
    """The driver dies between any two of: offset written, batch run, output renamed, commit written.

    In ``make test`` a driver that reads a store is killed by the example ``exactly_once.py``.
    """
    kill_again_and_again(spark, tmp_path, drivers, progress, kills=part_of(8, least=3))


def kill_again_and_again(
    spark: SparkSession, tmp_path: Path, drivers: Drivers, progress: Progress, *, kills: int
) -> None:
    """Driver after driver is killed; the tests' own session is the last one."""
    chance = random.Random(20240807)
    store = StoreBuilder(tmp_path / "store", log_file_size=32 << 10)
    output = tmp_path / "output"
    output.mkdir()
    fixed = [str(store.path), str(tmp_path / "checkpoint"), str(output)]
    written = 0

    def write(count: int) -> None:
        nonlocal written
        store.append("orders", [0, 1, 2], [f"message {written + i}".encode() for i in range(count)])
        written += count

    write(100)
    for attempt in range(kills):
        done = len(list(output.glob("*.json")))
        log = tmp_path / f"driver-{attempt}.log"
        with drivers.run(DRIVER, *fixed, str(tmp_path / f"scratch-{attempt}"), log=log) as process:
            deadline = time.monotonic() + WAIT_LIMIT_S
            until = None
            while until is None or time.monotonic() < until:
                assert time.monotonic() < deadline, "no batch within a minute"
                assert process.poll() is None, log.read_text()
                write(chance.randrange(1, 10))
                time.sleep(0.05)
                if until is None and len(list(output.glob("*.json"))) > done:
                    until = time.monotonic() + chance.uniform(0, 1.5)
        assert process.returncode == -signal.SIGKILL
        progress.count("driver kills", attempt + 1)
    for _ in range(2):  # in Spark 4.0 and 4.1 the first may only repeat the batch that was killed
        last = into_files(spark, *fixed).trigger(availableNow=True).start()
        assert last.awaitTermination(WAIT_LIMIT_S)

    batches = [json.loads((output / f"{i}.json").read_text()) for i in range(len(list(output.glob("*.json"))))]
    rows = [tuple(row) for batch in batches for row in batch]
    assert len(batches) > kills
    for queue_id in (0, 1, 2):
        offsets = [offset for number, offset, _ in rows if number == queue_id]
        assert offsets == list(range(store.next_offsets["orders", queue_id]))
    assert sorted(body for *_, body in rows) == sorted(f"message {i}" for i in range(written))


RETRY = """
import sys
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import SparkSession
import pyspark_commitlog
spark = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false").getOrCreate()

def flaky(rows):
    # The first two attempts read some rows and fail, each at another place.
    attempt = TaskContext.get().attemptNumber()
    for count, row in enumerate(rows):
        if attempt < 2 and count == 20 + 30 * attempt:
            raise RuntimeError("the task fails, as the test wants")
        yield (TaskContext.get().partitionId(), row.queueOffset, bytes(row.body).decode())

frame = spark.read.format("commitlog").schema("queueOffset bigint, body binary").option("subscribe", "orders")
frame = frame.option("maxBytesPerPartition", "16k").load(sys.argv[1])
rows = frame.rdd.mapPartitions(flaky).collect()
assert len({partition for partition, _, _ in rows}) > 3
assert [(offset, body) for _, offset, body in rows] == [(i, f"message {i}") for i in range(600)], rows
"""


def test_a_task_that_is_tried_again_gives_the_same_rows(spark_programs: SparkPrograms, tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store", log_file_size=32 << 10)
    store.append("orders", 0, [f"message {i}".encode() for i in range(600)])
    script = tmp_path / "retry_program.py"
    script.write_text(RETRY)
    ran = spark_programs.run(script, store.path, directory=tmp_path)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "the task fails, as the test wants" in ran.stderr
