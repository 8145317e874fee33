"""An idle query of Spark: processor time of the Java machine and its Python workers in 10 s, by source.

In turns with Spark's own rate source (a row a second), a Python source that never has anything, and no query at all.
Triggers follow each other as Spark's defaults have it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.benchmarks.idle_source import IdleSource
from tests.benchmarks.measure import machine, many_queues, message_store, show
from tests.support.local_spark import start_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_TURNS = 2
_WARM_S = 4.0
_IDLE_S = float(os.environ.get("SMALL_IDLE_SECONDS", "10"))
_GOAL_S = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")


class _Process(NamedTuple):
    parent: int
    ticks: int
    """Its own time of the processor, and that of its children that have ended."""


def _processes() -> dict[int, _Process]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found[int(path.parent.name)] = _Process(int(fields[1]), sum(map(int, fields[11:15])))
    return found


def _used_s() -> float:
    """Processor time of all processes that this one has started, and of theirs: the Java machine and its workers."""
    found = _processes()

    def below(pid: int) -> Iterator[int]:
        for child, process in found.items():
            if process.parent == pid:
                yield process.ticks
                yield from below(child)

    return sum(below(os.getpid())) / _TICKS


def _idle_s(frame: DataFrame | None, checkpoint: Path) -> float:
    """Seconds of the processor that an idle query takes in 10 s."""
    query = None
    if frame is not None:
        query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
        while query.lastProgress is None:
            if (error := query.exception()) is not None:
                raise error
            time.sleep(0.2)
    time.sleep(_WARM_S)
    before = _used_s()
    time.sleep(_IDLE_S)
    used = _used_s() - before
    if query is not None:
        query.stop()
    return used * 10 / _IDLE_S


def _of_store(spark: SparkSession, path: Path) -> DataFrame:
    options = {"path": str(path), "subscribePattern": ".*", "startingOffsets": "latest"}
    return spark.readStream.format("commitlog").options(**options).load()


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    with tempfile.TemporaryDirectory() as work:
        spark = start_spark(Path(work))
        spark.dataSource.register(IdleSource)
        few, many = message_store("small", body_size=100, size=1 << 20), many_queues()
        ways: dict[str, Callable[[], DataFrame | None]] = {
            "no query": lambda: None,
            "Spark's rate source": lambda: spark.readStream.format("rate").option("rowsPerSecond", "1").load(),
            "a Python source without messages": lambda: spark.readStream.format("idle").load(),
            "4 queues": lambda: _of_store(spark, few),
            "2,000 queues": lambda: _of_store(spark, many),
        }
        used: dict[str, list[float]] = {label: [] for label in ways}
        for turn in range(_TURNS):
            for label, frame in ways.items():
                used[label].append(_idle_s(frame(), Path(work, f"{label}-{turn}")))
        rate = min(used["Spark's rate source"])
        for label, found in used.items():
            beside = (
                f"{min(found) - rate:+.2f} s to the rate source's, goal at most {_GOAL_S}" if "queues" in label else ""
            )
            show(f"processor time of 10 s idle, {label}", f"{min(found):.2f} s", beside)
        spark.stop()
