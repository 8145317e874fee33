"""An idle query of Spark: processor time of the Java machine and its Python workers in 10 s, by source.

In turns with Spark's own rate source, which has a batch of one row each second, and with a Python source that never has
anything. Triggers follow each other as Spark's defaults have it. Of 2,000 queues there are two stores: one that this
package has closed, and one without its files, as a broker leaves it, where each queue is asked.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from commitlog_store import MessageStore
from tests.benchmarks.idle_source import IdleSource
from tests.benchmarks.measure import machine, many_queues, message_store, scratch, show
from tests.benchmarks.shapes import Shape
from tests.support.local_spark import start_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_TURNS = 2
_WARM_S = 3.0
_IDLE_S = float(os.environ.get("SMALL_IDLE_SECONDS", "10"))
_RATE, _NOTHING = "Spark's rate source", "a Python source without messages"
_MANY = Shape(200, 10)
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


def _idle_s(frame: DataFrame, checkpoint: Path) -> float:
    """Seconds of the processor that an idle query takes in 10 s."""
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    try:
        while query.lastProgress is None:
            if (error := query.exception()) is not None:
                raise error
            time.sleep(0.2)
        time.sleep(_WARM_S)
        before = _used_s()
        time.sleep(_IDLE_S)
        return (_used_s() - before) * 10 / _IDLE_S
    finally:
        query.stop()


def _of_store(spark: SparkSession, path: Path) -> DataFrame:
    options = {"path": str(path), "subscribePattern": ".*", "startingOffsets": "latest"}
    return spark.readStream.format("commitlog").options(**options).load()


def _closed_store(path: Path) -> Path:
    with MessageStore.open(path) as store:
        for table in _MANY.tables():
            store.put_messages(table).raise_for_status()
    return path


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        work = Path(name)
        spark = start_spark(work)
        spark.dataSource.register(IdleSource)
        stores = {
            "4 queues": message_store("small", body_size=100, size=1 << 20),
            f"{_MANY.queues:,} queues": _closed_store(work / "closed"),
            f"{_MANY.queues:,} queues of a broker": many_queues(),
        }
        ways: dict[str, Callable[[], DataFrame]] = {
            _RATE: lambda: spark.readStream.format("rate").option("rowsPerSecond", "1").load(),
            _NOTHING: lambda: spark.readStream.format("idle").load(),
        }
        ways |= {label: partial(_of_store, spark, path) for label, path in stores.items()}
        used: dict[str, list[float]] = {label: [] for label in ways}
        for turn in range(_TURNS):
            for label, frame in ways.items():
                used[label].append(_idle_s(frame(), work / f"checkpoint-{label}-{turn}"))
        least = {label: min(found) for label, found in used.items()}
        for label, taken in least.items():
            beside = f"{taken - least[_RATE]:+.2f} s to the rate source's (goal at most +0.1)"
            beside += f", {taken - least[_NOTHING]:+.2f} s to that of {_NOTHING}"
            show(f"processor time of 10 s idle, {label}", f"{taken:.2f} s", beside if label in stores else "")
        spark.stop()
