"""Spark over many queues: a batch count, a stream's first trigger with all rows, and its idle triggers.

50,000 topics of one queue with two messages of 100 B each; ``SCALE_QUEUES`` names other shapes, as ``5000,200x16``.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commitlog_store import MessageStore, MessageStoreConfig
from tests.benchmarks.measure import best_of, machine, scratch, show
from tests.benchmarks.shapes import Shape, shapes
from tests.support.local_spark import start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


_ROUNDS = 2
_CONFIG = MessageStoreConfig(mapped_file_size_commit_log=256 << 20)
_IDLE_TRIGGERS = 20


def _build(path: Path, shape: Shape) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    with MessageStore.open(path, _CONFIG) as store:
        for _ in range(_ROUNDS):
            for table in shape.tables():
                store.put_messages(table).raise_for_status()
    return path


def _measure(spark: SparkSession, path: Path, shape: Shape, checkpoint: Path) -> None:
    rows = _ROUNDS * shape.queues
    options = {"path": str(path), "subscribePattern": "topic-.*"}
    found: list[int] = []
    count = spark.read.format("commitlog").options(**options).load
    seconds = best_of(2, lambda: found.append(count().count()))
    assert set(found) == {rows}, found
    show(f"{shape}: batch count of {rows:,} rows", f"{seconds:.2f} s", "≤ 4 s")
    frame = spark.readStream.format("commitlog").options(**options, startingOffsets="earliest").load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    try:
        first = _progress(query, lambda one: one["numInputRows"] > 0, 1)[0]
        assert first["numInputRows"] == rows, first
        took = {name: milliseconds / 1000 for name, milliseconds in first["durationMs"].items()}
        show(f"{shape}: first trigger, latestOffset", f"{took['latestOffset']:.2f} s", "≤ 0.5 s")
        show(f"{shape}: first trigger, {rows:,} rows", f"{took['triggerExecution']:.2f} s", "≤ 3 s")
        idle = _progress(query, lambda one: one["numInputRows"] == 0, _IDLE_TRIGGERS)[1:]
    finally:
        query.stop()
    taken = statistics.median(one["durationMs"]["triggerExecution"] for one in idle)
    show(f"{shape}: idle trigger", f"{taken:.0f} ms", "≤ 50 ms")
    size = (checkpoint / "offsets" / "0").stat().st_size
    show(f"{shape}: a batch's offset in the checkpoint", f"{size / 1e6:.2f} MB")


def _progress(query: StreamingQuery, wanted: Any, count: int) -> list[dict[str, Any]]:
    """Wait for so many reports of triggers that are wanted."""
    while True:
        found = [one for one in query.recentProgress if wanted(one)]
        if len(found) >= count:
            return found
        if (error := query.exception()) is not None:
            raise error
        time.sleep(0.2)


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    with tempfile.TemporaryDirectory() as work:
        spark = start_spark(
            Path(work),
            spark__driver__memory="2g",
            # A report for every trigger, also for those without data.
            spark__sql__streaming__noDataProgressEventInterval="0",
            spark__sql__streaming__pollingDelay="200ms",
            spark__sql__streaming__numRecentProgressUpdates="10000",
        )
        path = scratch() / "scale-spark"
        try:
            # The first queries of a Java machine are slow, as are the first ones in a worker.
            warm = spark.read.format("commitlog").options(path=str(_build(path, Shape(100))), subscribePattern=".*")
            warm.load().count()
            for number, shape in enumerate(shapes(Shape(50_000))):
                _measure(spark, _build(path, shape), shape, Path(work, f"checkpoint-{number}"))
        finally:
            shutil.rmtree(path, ignore_errors=True)
            spark.stop()
