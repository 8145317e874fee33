"""Spark over many queues: a batch count, a stream's first trigger with all rows, and its idle triggers.

50,000 topics of one queue with two messages of 100 B each; ``SCALE_QUEUES`` names other shapes, as ``5000,200x16``.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commitlog_store import MessageStore, MessageStoreConfig
from tests.benchmarks.measure import best_of, machine, scratch, show
from tests.benchmarks.shapes import Shape, shapes
from tests.support.local_spark import start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_ROUNDS = 2
_CONFIG = MessageStoreConfig(mapped_file_size_commit_log=256 << 20)
_IDLE_TRIGGERS = 5


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
        reports = _reports(query)
        first = next(reports)
        assert first["numInputRows"] == rows, first["numInputRows"]
        took = {name: milliseconds / 1000 for name, milliseconds in first["durationMs"].items()}
        show(f"{shape}: first trigger, latestOffset", f"{took['latestOffset']:.2f} s", "≤ 0.5 s")
        show(f"{shape}: first trigger, {rows:,} rows", f"{took['triggerExecution']:.2f} s", "≤ 3 s")
        idle = list(islice(reports, 1 + _IDLE_TRIGGERS))[1:]
        assert not any(one["numInputRows"] for one in idle)
    finally:
        query.stop()
    taken = statistics.median(one["durationMs"]["triggerExecution"] for one in idle)
    show(f"{shape}: idle trigger", f"{taken:.0f} ms", "≤ 50 ms")
    size = (checkpoint / "offsets" / "0").stat().st_size
    show(f"{shape}: a batch's offset in the checkpoint", f"{size / 1e6:.2f} MB")


def _reports(query: StreamingQuery) -> Iterator[dict[str, Any]]:
    """The reports of triggers as they come. Each has all positions three times, so only the last one is asked for."""
    seen = None
    while True:
        if (error := query.exception()) is not None:
            raise error
        last = query.lastProgress
        if last is not None and last["timestamp"] != seen:
            seen = last["timestamp"]
            yield last
        time.sleep(0.2)


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    with tempfile.TemporaryDirectory() as work:
        spark = start_spark(
            Path(work),
            spark__driver__memory="2g",
            # A report of a trigger without data in so many milliseconds.
            spark__sql__streaming__noDataProgressEventInterval="2000",
            spark__sql__streaming__pollingDelay="200ms",
            spark__sql__streaming__numRecentProgressUpdates="10",
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
